"""`PointCollector`: from the lines of a stream to the points of every metric, without numpy.

A run that ends leaves its points beside its stream (`points_cache.py`), and its training loop may have no numpy. What
is collected is what `Metrics` reads, point by point.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from linnet.runs.events import Event, decode
from linnet.runs.inspection_lines import without_inspection
from linnet.runs.lines import UnfitLinesError
from linnet.runs.metric_names import rows
from linnet.runs.point_decoder import LineDecoder, LineGroup, MetricPoints

_MOST_METRICS = 4096
_TOKENS = ("decode/", "serve/")  # metrics whose steps count tokens or requests, not steps of training
_STEP, _SCALARS = b'{"kind":"step",', b'{"kind":"scalars",'  # as Linnet writes them
_TELLING = 10  # where the lines of no other kind have the letter that a step has


class UnfitStreamError(Exception):
    """A stream that is left to the readers that know everything."""


class PointCollector:
    """Takes blocks of whole lines in the order of a stream. `metrics`: the points so far, by name."""

    def __init__(self) -> None:
        self.metrics: dict[str, MetricPoints] = {}
        self._decoders = {"step": LineDecoder("step"), "scalars": LineDecoder("scalars", within="values")}
        self._step = 0  # of the latest line with metrics, or resume, that has one; a line without one belongs to it
        self._machine_only = True  # whatever is called `sys/` came from the machine's own events

    def take(self, block: bytes) -> None:
        """Add what a block says; UnfitStreamError where only another reader can tell."""
        lines, begin = without_inspection(block).removesuffix(b"\n").split(b"\n"), 0
        for at in [at for at, line in enumerate(lines) if b"resume" in line] if b"resume" in block else []:
            event = decode(lines[at])
            if event is not None and event.kind == "resume":  # it makes void what stands before
                self._take_lines(lines[begin:at])
                self._resume(event.step)
                begin = at + 1
        self._take_lines(lines[begin:])

    def _take_lines(self, lines: list[bytes]) -> None:
        """Steps and scalars by columns, as long as nothing depends on the order of lines; the others one by one."""
        try:  # the decoder looks at the rest of the line
            others_at = [at for at, line in enumerate(lines) if line[_TELLING] != _STEP[_TELLING]]
        except IndexError:
            others_at = [at for at, line in enumerate(lines) if not line.startswith(_STEP)]
        scalars_at = [at for at in others_at if lines[at].startswith(_SCALARS)]
        groups = {"step": LineGroup(lines, _gaps(others_at, len(lines))), "scalars": LineGroup(lines, scalars_at)}
        others = [
            (at, event)
            for at in sorted({*others_at}.difference(scalars_at))
            if (event := decode(lines[at])) is not None
        ]
        metrics = [dict(rows(event)) for _, event in others]
        try:
            if any(event.kind == "resume" for _, event in others):  # spelled in another way
                raise UnfitLinesError
            columns = [decoder.columns(groups[kind]) for kind, decoder in self._decoders.items()]
            _require_apart(*columns, (name for names in metrics for name in names))
        except UnfitLinesError:
            self._take_singly(lines)
            return
        for name, points in (item for column in columns for item in column.items()):
            known = self._known(name)
            known.steps.extend(points.steps)
            known.values.extend(points.values)
        latest = -1  # line with a step
        for (at, event), numbers in zip(others, metrics, strict=True):
            latest = self._pass(groups.values(), at, latest)
            if self._take_event(event, numbers):
                latest = at
        self._pass(groups.values(), len(lines), latest)

    def _pass(self, groups: Iterable[LineGroup], at: int, latest: int) -> int:
        """Remember the step of the last line before `at`, where it is a later one than `latest`; which it is."""
        for group in groups:
            before = bisect_left(group.at, at) - 1
            if before >= 0 and group.at[before] > latest:
                latest, self._step = group.at[before], group.steps[before]
        return latest

    def _take_singly(self, lines: list[bytes]) -> None:
        """One line after the other, and learn which names they have."""
        for line in lines:
            event = decode(line)
            if event is not None:
                if event.kind in self._decoders:
                    self._decoders[event.kind].learn(event.data)
                self._take_event(event, dict(rows(event)))

    def _take_event(self, event: Event, metrics: dict[str, float]) -> bool:
        """One event; True when its step is that of lines without one from here on."""
        if event.kind == "goal":
            raise UnfitStreamError("a goal that the stream declares")
        if event.kind == "resume":
            self._resume(event.step)
            return False
        is_token = {name.startswith(_TOKENS) for name in metrics}
        if len(is_token) > 1:
            raise UnfitStreamError("steps that count training and tokens")
        step = self._step if event.step is None else event.step
        for name, value in metrics.items():
            self._machine_only &= event.kind == "system" or not name.startswith("sys/")
            known = self._known(name)
            known.steps.append(step)
            known.values.append(value)
        if event.step is None or is_token != {False}:
            return False
        self._step = event.step
        return True

    def _resume(self, step: int | None) -> None:
        """Steps beyond the one a run went on from are void; the machine's figures stay."""
        if step is None:
            return
        if not self._machine_only:
            raise UnfitStreamError("metrics that are called like the machine's")
        self._step = step
        for name, points in self.metrics.items():
            if not name.startswith("sys/"):
                points.keep_to(step)

    def _known(self, name: str) -> MetricPoints:
        """The points of a metric so far."""
        if name not in self.metrics:
            if len(self.metrics) == _MOST_METRICS:
                raise UnfitStreamError("more metrics than are worth keeping")
            self.metrics[name] = MetricPoints()
        return self.metrics[name]


def _gaps(rows: list[int], count: int) -> list[int]:
    """The indices below `count` that are not among some, which ascend."""
    indices: list[int] = []
    for before, at in zip([-1, *rows], [*rows, count], strict=True):
        indices += range(before + 1, at)
    return indices


def _require_apart(*names: Iterable[str]) -> None:
    """Of a metric that several kinds of lines have, columns would not tell the order."""
    kinds = [set(of_kind) for of_kind in names]
    if len(set().union(*kinds)) < sum(map(len, kinds)):
        raise UnfitLinesError
