"""`FigureDecoder`: the figures of a few metrics from the lines of a stream, of each no more than these metrics.

Numpy is not loaded for it: a table of a thousand runs is sorted by the best value of one metric. What does not fit the
short way is left to `Metrics`, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import attrgetter, or_
from typing import Any, Literal

import msgspec

from linnet.runs.events import decode
from linnet.runs.figures import MetricFigures
from linnet.runs.line_struct import Int64, LineStructs, NumberFields
from linnet.runs.lines import UnfitLinesError, split_lines
from linnet.runs.metric_names import is_field_name, rows

OWN_ROWS = ("sys/", "align/", "mask/")  # metrics of events that are passed over
_QUIET_KINDS = (
    *("run_start", "run_end", "sample", "tap", "grad", "drift", "op_timing", "compare", "region_enter", "region_exit"),
    *("note", "align", "mask", "system", "heartbeat", "checkpoint", "artifact", "plan", "git"),
)
_RESERVED = frozenset(("kind", "t", "step", "phase", "epoch", "values", "nonfinite", "type", "name", "extra"))


@lru_cache(maxsize=16)
def figure_decoder(names: tuple[str, ...]) -> FigureDecoder:
    """The decoder of some metrics; making one takes a millisecond."""
    return FigureDecoder(names)


class FigureDecoder:
    """Decodes the lines of a block, of each no more than the wanted metrics."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        metrics = NumberFields(name for name in names if name not in _RESERVED and is_field_name(name))
        self._getters = metrics.getters
        odd = [(name, type(None), None) for name in ("nonfinite", "type")]  # lines with these are taken singly

        def row(kind: str, *fields: Any, rename: Mapping[str, str] | None = None) -> type[Any]:
            names = [field[0] for field in fields]
            # Kinds without the metrics have them all the same, as None: then rows need not be told apart.
            absent = {name: None for name in ("step", *metrics.rename) if name not in names}
            return msgspec.defstruct(
                f"Row_{kind}",
                fields,
                tag_field="kind",
                tag=kind,
                rename=dict(rename or {}),
                namespace=absent,
                gc=False,
            )

        numbers = metrics.optional()
        values = msgspec.defstruct("Values", numbers, rename=metrics.rename, gc=False)
        step, phase = ("step", Int64), ("phase", Literal["train"], "train")
        self._step = row("step", step, phase, ("values", type(None), None), *odd, *numbers, rename=metrics.rename)
        self._scalars = row("scalars", step, ("values", values), *odd)
        # An evaluation's numbers carry its name: "validation/loss" is `loss` of `validation`.
        self._parts = [
            (name, name[:cut], name[cut + 1 :])
            for name in names
            for cut, letter in enumerate(name)
            if letter == "/" and name[cut + 1 :] not in _RESERVED and is_field_name(name)
        ]
        suffixes = NumberFields((suffix for _, _, suffix in self._parts), prefix="s")
        self._suffixes = suffixes.getters
        name, extra = ("name", str, "eval"), ("extra", type(None), None)
        self._eval = row("eval", step, name, extra, *odd, *suffixes.optional(), rename=suffixes.rename)
        self._resume = row("resume", ("step", int | None, None))
        kinds = [self._step, self._scalars, self._eval, self._resume, *(row(kind) for kind in _QUIET_KINDS)]
        self._passed_over = {self._step, *kinds[4:]}
        self._structs = LineStructs(reduce(or_, kinds))

    def take(self, block: bytes, figures: dict[str, MetricFigures]) -> None:
        """Add what a block of whole lines says."""
        decoded = self._structs.decode(block)
        if decoded is None:
            self._take_singly(block, figures)
            return
        others = [row for row in decoded if type(row) not in self._passed_over]
        if any(type(row) is self._resume and row.step is not None for row in others):
            raise UnfitLinesError  # steps beyond it are void
        named = {name for row in others for name, _ in self._points(row)}
        if any(value is not None for name in named for value in map(self._getters[name], decoded)):
            self._take_in_order(decoded, figures)
            return
        self._take_steps(decoded, figures)
        for row in others:
            for name, value in self._points(row):
                figures[name].add((row.step,), (value,))

    def _take_steps(self, decoded: list[Any], figures: dict[str, MetricFigures]) -> None:
        for name, value_of in self._getters.items():
            values = list(map(value_of, decoded))
            if None not in values:
                figures[name].add(_Steps(decoded), values)
            elif figures[name].at:
                rows = [row for row, value in zip(decoded, values, strict=True) if value is not None]
                figures[name].add(_Steps(rows), [value for value in values if value is not None])
            else:
                figures[name].add_sparse(_Steps(decoded), values)

    def _take_in_order(self, decoded: list[Any], figures: dict[str, MetricFigures]) -> None:
        """Of a metric that several kinds of events have."""
        for row in decoded:
            if type(row) is self._step:
                self._take_steps([row], figures)
            elif type(row) not in self._passed_over:
                for name, value in self._points(row):
                    figures[name].add((row.step,), (value,))

    def _points(self, row: Any) -> Iterator[tuple[str, float]]:
        """The wanted metrics of an event that is no step."""
        if type(row) is self._scalars:
            for name, value_of in self._getters.items():
                if (value := value_of(row.values)) is not None:
                    yield name, value
        elif type(row) is self._eval:
            for name, prefix, suffix in self._parts:
                value = self._suffixes[suffix](row)
                if value is not None and prefix == (row.name or "eval"):
                    yield name, value

    def _take_singly(self, block: bytes, figures: dict[str, MetricFigures]) -> None:
        """The careful way, line by line."""
        for line in split_lines(block):
            event = decode(line)
            if event is None:
                continue
            if event.kind == "goal" or (event.kind == "resume" and event.step is not None):
                raise UnfitLinesError
            for name, value in dict(rows(event)).items():
                if name in figures:
                    if event.step is None:
                        raise UnfitLinesError
                    figures[name].add((event.step,), (value,))


class _Steps(Sequence[int]):
    """The steps of rows, each looked up when it is asked for: of a thousand, four are."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def __getitem__(self, at: Any) -> Any:
        return self._rows[at].step

    def __iter__(self) -> Iterator[int]:
        return map(attrgetter("step"), self._rows)

    def __len__(self) -> int:
        return len(self._rows)
