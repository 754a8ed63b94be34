"""`MetricFigures`: first, last, least and greatest value of a metric, and its value at a step, without its curve.

A table of a thousand runs is sorted by the best value of one metric: of each stream only that metric is decoded, and
numpy is not loaded. What does not fit the short way is read by `Metrics`, with the same result.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import attrgetter, or_
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from linnet.files import is_file, open_regular
from linnet.runs.events import decode
from linnet.runs.folder import CACHE, EVENTS
from linnet.runs.lines import BOM, LineReader, split_lines
from linnet.runs.metric_names import Goal, goal_of, rows

Wanted = Mapping[str, frozenset[int]]  # metrics, and the steps at which their values are wanted
Point = tuple[int, float]  # step, value

_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SHORT = 8 << 20  # bytes of a stream that is read at once
_QUIET_KINDS = (
    *("run_start", "run_end", "sample", "tap", "grad", "drift", "op_timing", "compare", "region_enter", "region_exit"),
    *("note", "align", "mask", "system", "heartbeat", "checkpoint", "artifact", "plan", "git"),
)
_OWN_ROWS = ("sys/", "align/", "mask/")  # metrics of events that are passed over
_UNFIT = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')  # no field of a decoder may be called so
_RESERVED = frozenset(("kind", "t", "step", "phase", "epoch", "values", "nonfinite", "type", "name", "extra"))


class MetricFigures(msgspec.Struct, array_like=True):
    """A metric in a few points, each step and value.

    - `low`, `high`: of the finite values, the first of equals.
    - `at`: by step, the last point at or before it.
    - `goal`: which way is better, where the stream itself declares it.
    """

    count: int = 0
    first: Point | None = None
    last: Point | None = None
    low: Point | None = None
    high: Point | None = None
    at: dict[int, Point | None] = {}
    goal: Goal | None = None

    def add(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Take points in the order of the stream."""
        if not values:
            return
        self.first = self.first or (steps[0], values[0])
        self.last = steps[-1], values[-1]
        self.count += len(values)
        if self.at:
            self._add_at(list(steps), values)
        if not math.isfinite(sum(values)):  # a NaN or an infinity, or a sum that is too large
            finite = [at for at, value in enumerate(values) if math.isfinite(value)]
            steps, values = [steps[at] for at in finite], [values[at] for at in finite]
        if values:
            low, high = min(values), max(values)
            if self.low is None or low < self.low[1]:
                self.low = steps[values.index(low)], low
            if self.high is None or high > self.high[1]:
                self.high = steps[values.index(high)], high

    def _add_at(self, steps: list[int], values: Sequence[float]) -> None:
        """The last points at or before the wanted steps; of equal steps the one logged last."""
        if steps != sorted(steps):
            order = sorted(range(len(steps)), key=steps.__getitem__)
            steps, values = [steps[at] for at in order], [values[at] for at in order]
        for wanted, known in self.at.items():
            at = bisect_right(steps, wanted) - 1
            if at >= 0 and (known is None or steps[at] >= known[0]):
                self.at[wanted] = steps[at], values[at]

    def add_sparse(self, steps: Sequence[int], values: Sequence[float | None]) -> None:
        """The same of points among which some are missing; where `at` is empty."""
        present = [value for value in values if value is not None]
        if not present:
            return
        if not math.isfinite(sum(present)):
            at = [index for index, value in enumerate(values) if value is not None]
            self.add([steps[index] for index in at], present)
            return
        low, high = min(present), max(present)
        self.count += len(present)
        self.first = self.first or next((steps[at], value) for at, value in enumerate(values) if value is not None)
        last = next(at for at in range(len(values) - 1, -1, -1) if values[at] is not None)
        self.last = steps[last], present[-1]
        if self.low is None or low < self.low[1]:
            self.low = steps[values.index(low)], low
        if self.high is None or high > self.high[1]:
            self.high = steps[values.index(high)], high


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


class _UnfitError(Exception):
    """The stream is not to be read the short way."""


def read_figures(folder: str, wanted: Wanted, *, foreign: bool = False) -> dict[str, MetricFigures]:
    """The figures of the wanted metrics that the run has. `foreign`: another writer's events, in its own words."""
    events = Path(folder) / EVENTS
    if not foreign and not any(name.startswith(_OWN_ROWS) for name in wanted) and not _has_cache(folder):
        try:
            return _scan(events, wanted)
        except _UnfitError:
            pass
    return _figures_of_metrics(folder, wanted)


def _has_cache(folder: str) -> bool:
    return is_file(f"{folder}/{CACHE}/metrics")


def _figures_of_metrics(folder: str, wanted: Wanted) -> dict[str, MetricFigures]:
    from linnet.runs.metrics import Metrics
    from linnet.runs.summary import load_manifest

    manifest = load_manifest(Path(folder))
    metrics = Metrics(Path(folder) / EVENTS, origin=manifest.origin if manifest is not None else 0.0)
    figures = {}
    for name, steps in wanted.items():
        series = metrics.get(name)
        if series is None or not len(series):
            continue
        figures[name] = MetricFigures(
            count=len(series),
            last=series.latest,
            low=series.best_by("min"),
            high=series.best_by("max"),
            first=(int(series.step[0]), float(series.value[0])),
            goal=goal_of(name, metrics.goals) if name in metrics.goals else None,
        )
        for wanted_step in steps:
            before = (series.step <= wanted_step).nonzero()[0]
            point = None
            if len(before):
                highest = series.step[before].max()
                at = before[(series.step[before] == highest).nonzero()[0][-1]]
                point = int(series.step[at]), float(series.value[at])
            figures[name].at[wanted_step] = point
    return figures


def _scan(events: Path, wanted: Wanted) -> dict[str, MetricFigures]:
    figures = {name: MetricFigures(at=dict.fromkeys(steps)) for name, steps in wanted.items()}
    decoder = _row_decoder(tuple(wanted))
    for block in _blocks(events):
        decoder.take(block, figures)
    return {name: figure for name, figure in figures.items() if figure.count}


def _blocks(events: Path) -> Iterator[bytes]:
    """Whole lines of a stream; a short one at once."""
    try:
        with os.fdopen(open_regular(events), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size) if size <= _SHORT else b""
    except OSError:
        return
    if size <= _SHORT:
        if block := content[: content.rfind(b"\n") + 1].removeprefix(BOM):
            yield block
        return
    reader = LineReader(events)
    while block := reader.read_block():
        if reader.generation:
            raise _UnfitError  # replaced while it was read
        yield block
    reader.close()


class _RowDecoder:
    """Decodes the lines of a block, of each no more than the wanted metrics."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        fields = [name for name in names if name not in _RESERVED and not _UNFIT.search(name)]
        self._attributes = {name: f"m{index}" for index, name in enumerate(fields)}
        self._getters = {name: attrgetter(attribute) for name, attribute in self._attributes.items()}
        metrics = [(attribute, float | None, None) for attribute in self._attributes.values()]
        renamed = {attribute: name for name, attribute in self._attributes.items()}
        odd = [(name, type(None), None) for name in ("nonfinite", "type")]  # lines with these are taken singly

        def row(kind: str, *fields: Any, rename: Mapping[str, str] | None = None) -> type[Any]:
            names = [field[0] for field in fields]
            # Kinds without the metrics have them all the same, as None: then rows need not be told apart.
            absent = {name: None for name in ("step", *self._attributes.values()) if name not in names}
            return msgspec.defstruct(
                f"Row_{kind}",
                fields,
                tag_field="kind",
                tag=kind,
                rename=dict(rename or {}),
                namespace=absent,
                gc=False,
            )

        values = msgspec.defstruct("Values", metrics, rename=renamed, gc=False)
        step, phase = ("step", _Int64), ("phase", Literal["train"], "train")
        self._step = row("step", step, phase, ("values", type(None), None), *odd, *metrics, rename=renamed)
        self._scalars = row("scalars", step, ("values", values), *odd)
        # An evaluation's numbers carry its name: "validation/loss" is `loss` of `validation`.
        self._parts = [
            (name, name[:cut], name[cut + 1 :])
            for name in names
            for cut, letter in enumerate(name)
            if letter == "/" and name[cut + 1 :] not in _RESERVED and not _UNFIT.search(name)
        ]
        suffixes = {suffix: f"s{index}" for index, suffix in enumerate(dict.fromkeys(part[2] for part in self._parts))}
        self._suffixes = suffixes
        numbers = [(attribute, float | None, None) for attribute in suffixes.values()]
        self._eval = row(
            "eval",
            step,
            ("name", str, "eval"),
            ("extra", type(None), None),
            *odd,
            *numbers,
            rename={attribute: suffix for suffix, attribute in suffixes.items()},
        )
        self._resume = row("resume", ("step", int | None, None))
        kinds = [self._step, self._scalars, self._eval, self._resume, *(row(kind) for kind in _QUIET_KINDS)]
        self._passed_over = {self._step, *kinds[4:]}
        self._decode = msgspec.json.Decoder(reduce(or_, kinds)).decode_lines

    def take(self, block: bytes, figures: dict[str, MetricFigures]) -> None:
        """Add what a block of whole lines says."""
        try:
            decoded: list[Any] = self._decode(block)
        except (ValueError, RecursionError):
            self._take_singly(block, figures)
            return
        others = [row for row in decoded if type(row) not in self._passed_over]
        if any(type(row) is self._resume and row.step is not None for row in others):
            raise _UnfitError  # steps beyond it are void
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
            for name, attribute in self._attributes.items():
                if (value := getattr(row.values, attribute)) is not None:
                    yield name, value
        elif type(row) is self._eval:
            for name, prefix, suffix in self._parts:
                value = getattr(row, self._suffixes[suffix])
                if value is not None and prefix == (row.name or "eval"):
                    yield name, value

    def _take_singly(self, block: bytes, figures: dict[str, MetricFigures]) -> None:
        """The careful way, line by line."""
        for line in split_lines(block):
            event = decode(line)
            if event is None:
                continue
            if event.kind == "resume" and event.step is not None:
                raise _UnfitError
            for name, value in dict(rows(event)).items():
                if name in figures:
                    if event.step is None:
                        raise _UnfitError
                    figures[name].add((event.step,), (value,))


@lru_cache(maxsize=16)
def _row_decoder(names: tuple[str, ...]) -> _RowDecoder:
    return _RowDecoder(names)
