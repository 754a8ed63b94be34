"""`FigureTable`: the figures of a kind of look by row and step, as heat maps, curves, histograms or a DataFrame.

A row is a region or a tensor, of a layer, of a head of it; so one kind of table serves activations, gradients and
drift, and whatever draws a heat map needs to know of nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linnet.errors import LinnetError, suggestion

if TYPE_CHECKING:
    from pandas import DataFrame

_NO_STEPS = np.empty(0, np.int64)
_LONGEST = 10  # digits of a layer: what has more is no number of one


class Row(NamedTuple):
    """What a figure is of: a region or a tensor by its name within the block, its layer, one of its heads."""

    name: str
    layer: int | None = None
    head: int | None = None

    def __str__(self) -> str:
        layer = "" if self.layer is None else f".{self.layer}"
        return f"{self.name}{layer}{'' if self.head is None else f' head {self.head}'}"


@dataclass(frozen=True)
class HeatMap:
    """A figure of some rows over the steps: `values[row, step]`, NaN where it was not told."""

    figure: str
    rows: list[Row]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def labels(self) -> list[str]:
        """What tells the rows apart: the head, the layer, or all of it."""
        for part in ("head", "layer"):
            own = [getattr(row, part) for row in self.rows]
            if None not in own and len(set(own)) == len(own):
                return [str(number) for number in own]
        return [str(row) for row in self.rows]


@dataclass(frozen=True)
class NameContents:
    """What is told of the rows of one name: in which layers (none for a name outside them), which figures, and which of
    its heads."""

    name: str
    layers: list[int]
    figures: list[str]
    head_figures: list[str]


@dataclass(frozen=True)
class Histograms:
    """How the numbers of a row were spread, step by step: `counts[step, bin]` between `edges[step, bin]` and the next.

    The outer bins hold what lies beyond them too.
    """

    row: Row
    steps: NDArray[np.int64]
    edges: NDArray[np.float64]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Grams:
    """Gram matrices of a region on the probe, step by step: `values[step]` is square, of centred activations."""

    row: Row
    steps: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass
class _Points:
    """The numbers of a row at its steps, `width` of them each."""

    width: int = 1
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, values: Iterable[float]) -> None:
        self.steps.append(step)
        self.values.extend(values)

    def keep_to(self, step: int) -> None:
        kept = [at for at, other in enumerate(self.steps) if other <= step]
        if len(kept) < len(self.steps):
            wide = self.width
            values = [value for at in kept for value in self.values[at * wide : (at + 1) * wide]]
            self.steps, self.values = array("q", [self.steps[at] for at in kept]), array("d", values)

    def numbers(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        steps, values = np.array(self.steps, np.int64), np.array(self.values, np.float64)
        return steps, values if self.width == 1 else values.reshape(len(steps), self.width)


class FigureTable:
    """The figures of one kind of events: rows in the order of the model, each with its figures over the steps."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._points: dict[Row, dict[str, _Points]] = {}

    @property
    def rows(self) -> list[Row]:
        """All rows, heads too."""
        return list(self._points)

    @property
    def names(self) -> list[str]:
        """Regions, or tensors by their names within a block."""
        return list(dict.fromkeys(row.name for row in self._points))

    @property
    def figures(self) -> list[str]:
        """What is told of the rows."""
        return list(dict.fromkeys(name for figures in self._points.values() for name in figures))

    @property
    def contents(self) -> list[NameContents]:
        """What is told of each name, in the order of the model."""
        contents: dict[str, NameContents] = {}
        for row, figures in self._points.items():
            known = contents.setdefault(row.name, NameContents(row.name, [], [], []))
            if row.layer is not None and row.layer not in known.layers:
                known.layers.append(row.layer)
            of_rows = known.figures if row.head is None else known.head_figures
            of_rows.extend(figure for figure in figures if figure not in of_rows)
        return list(contents.values())

    @property
    def cells(self) -> int:
        """Numbers that it holds."""
        return sum(2 * len(points.steps) for figures in self._points.values() for points in figures.values())

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps at which somebody looked."""
        every = [points.steps for figures in self._points.values() for points in figures.values()]
        return np.unique(np.concatenate([np.array(steps, np.int64) for steps in every])) if every else _NO_STEPS

    def __len__(self) -> int:
        return len(self._points)

    def series(self, figure: str, row: Row) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Steps and values of a figure of one row."""
        points = self._points.get(row, {}).get(figure)
        if points is None:
            self._require(figure, row.name)
            raise LinnetError(f"no {figure} was told of {row}")
        return points.numbers()

    def value(self, figure: str, row: Row, step: int) -> float | None:
        """A figure of one row at a step; None where it was not told."""
        points = self._points.get(row, {}).get(figure)
        return None if points is None or step not in points.steps else points.values[points.steps.index(step)]

    def rows_with(self, figure: str, *, heads: bool = False) -> list[Row]:
        """The rows that tell a figure; or their heads."""
        return [row for row, points in self._points.items() if figure in points and (row.head is not None) == heads]

    def heat_map(
        self, figure: str, name: str | None = None, *, layer: int | None = None, heads: bool = False
    ) -> HeatMap:
        """A figure over the steps: of a name in all layers, of all names of a layer, or of all rows.

        `heads`: of their heads instead.
        """
        self._require(figure, name)
        rows = [
            row
            for row in self.rows_with(figure, heads=heads)
            if (name is None or row.name == name) and (layer is None or row.layer == layer)
        ]
        series = [self._points[row][figure].numbers() for row in rows]
        steps = np.unique(np.concatenate([own for own, _ in series])) if series else _NO_STEPS
        values = np.full((len(rows), len(steps)), np.nan)
        for number, (own, numbers) in enumerate(series):
            values[number, np.searchsorted(steps, own)] = numbers
        return HeatMap(figure, rows, steps, values)

    def to_pandas(self) -> DataFrame:
        """A DataFrame with a line for each row and step: `name`, `layer`, `head`, `step`, and a column a figure."""
        from linnet.runs.frame import require_pandas

        return require_pandas().DataFrame(list(self.records()))

    def records(self) -> Iterator[dict[str, Any]]:
        """The same one by one."""
        for row, figures in self._points.items():
            by_step: dict[int, dict[str, Any]] = {}
            for figure, points in figures.items():
                for step, value in zip(points.steps, points.values, strict=True):
                    by_step.setdefault(step, {})[figure] = value
            for step in sorted(by_step):
                yield {**row._asdict(), "step": step, **by_step[step]}

    def add(self, row: Row, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a row at a step."""
        known = self._points.setdefault(row, {})
        for name, value in figures.items():
            points = known.get(name)
            if points is None:
                points = known[name] = _Points()
            points.steps.append(step)
            points.values.append(value)

    def keep_to(self, step: int) -> None:
        """Drop what was told of steps beyond one that a run went on from."""
        for figures in self._points.values():
            for points in figures.values():
                points.keep_to(step)

    def _require(self, figure: str, name: str | None) -> None:
        if name is not None and name not in self.names:
            raise LinnetError(f"no {self.kind} of {name!r}{known_words(name, self.names)}")
        if figure not in self.figures:
            raise LinnetError(f"no {self.kind} tells {figure!r}{known_words(figure, self.figures)}")


class TapTable(FigureTable):
    """Figures of activations, with their histograms."""

    def __init__(self) -> None:
        super().__init__("tap")
        self._histograms: dict[Row, _Points] = {}  # two edges, then the counts

    @property
    def histogram_rows(self) -> list[Row]:
        """The rows whose histograms are known."""
        return list(self._histograms)

    @property
    def cells(self) -> int:
        """With those of the histograms."""
        return super().cells + sum(len(points.values) for points in self._histograms.values())

    def histograms(self, name: str, layer: int | None = None) -> Histograms:
        """The histogram of a region over the steps."""
        row = Row(name, layer)
        if row not in self._histograms:
            rows = [str(known) for known in self._histograms]
            raise LinnetError(f"no histogram of {row}{known_words(str(row), rows)}")
        steps, values = self._histograms[row].numbers()
        share = np.linspace(0, 1, values.shape[1] - 1)
        edges = values[:, :1] + (values[:, 1:2] - values[:, :1]) * share
        return Histograms(row, steps, edges, values[:, 2:].astype(np.int64))

    def add_histogram(self, row: Row, step: int, edges: list[float], counts: list[int]) -> None:
        """Take a histogram; one of another number of bins than the row's others, or of none, is left out."""
        if not counts or len(edges) != 2:
            return
        points = self._histograms.setdefault(row, _Points(2 + len(counts)))
        if points.width == 2 + len(counts):
            points.add(step, (*edges, *counts))

    def keep_to(self, step: int) -> None:
        """Drop the histograms too."""
        super().keep_to(step)
        for points in self._histograms.values():
            points.keep_to(step)


@lru_cache(maxsize=16_384)
def tensor_row(tensor: str, head: int | None = None) -> Row:
    """The row of a tensor of the file: `blk.3.attn_q.weight` is `attn_q.weight` of layer 3."""
    *before, last = tensor.removeprefix("v.").split("blk.", 1)
    layer, dot, name = last.partition(".")
    if before == [""] and dot and layer.isascii() and layer.isdecimal() and len(layer) < _LONGEST:
        return Row(name, int(layer), head)
    return Row(tensor, None, head)


def known_words(word: str, known: list[str]) -> str:
    """The end of an error about what was not told: what may have been meant."""
    return suggestion(word, known) if known else "; nothing of that kind was told"
