"""Lines of one kind to the points of their metrics, a column each: most of a stream is lines with the same fields."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

import msgspec

from linnet.runs.events import NONFINITE, parse
from linnet.runs.line_struct import Int64, LineStructs, NumberFields
from linnet.runs.lines import UnfitLinesError
from linnet.runs.metric_names import ENVELOPE, is_field_name

_MOST_NAMES = 256  # of a decoder; lines of more are taken one by one
_FIELDS = ENVELOPE | {"nonfinite", "values", "type"}  # of a line, that are no metrics
_APART = ("sys/", "decode/", "serve/")  # metrics that have rules of their own
_any_lines = LineStructs(dict[str, Any])


@dataclass(slots=True)
class MetricPoints:
    """Steps and values of a metric, in the order of the stream."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def keep_to(self, step: int) -> None:
        """Drop the points beyond a step."""
        kept = [at for at, other in enumerate(self.steps) if other <= step]
        self.steps = array("q", [self.steps[at] for at in kept])
        self.values = array("d", [self.values[at] for at in kept])


class LineGroup:
    """Some of many lines, and where they stand. `steps`: theirs, once they are decoded."""

    def __init__(self, lines: list[bytes], at: list[int]) -> None:
        self.at = at
        self.lines = [lines[index] for index in at]
        self.steps: list[int] = []


class LineDecoder:
    """A decoder of lines of one kind, made for the names of metrics that they had so far, each of which may be absent.

    `within`: the field that holds the metrics; None: they are fields of the line itself.
    """

    def __init__(self, kind: str, within: str | None = None) -> None:
        self._kind = kind
        self._within = within
        self._names: dict[str, None] = {}
        self._metrics = NumberFields(())
        self._structs: LineStructs | None = None

    def learn(self, fields: Mapping[str, Any]) -> None:
        """Know the names that a line has in the next lines."""
        metrics = fields if self._within is None else fields.get(self._within)
        reserved = _FIELDS if self._within is None else ()
        names = [name for name in metrics if name not in reserved] if isinstance(metrics, dict) else []
        if not self._names.keys() >= set(names):
            self._names |= dict.fromkeys(names)
            self._structs = None

    def columns(self, group: LineGroup) -> dict[str, MetricPoints]:
        """The points of each metric; UnfitLinesError where not every line is of numbers by known names."""
        if not group.lines:
            return {}
        if not self._names:
            self.learn(parse(group.lines[0]) or {})
        block = b"\n".join([*group.lines, b""])
        decoded = (self._structs or self._prepared()).decode(block)
        if decoded is None:
            decoded = self._decoded_again(block)
        for line in filter(attrgetter("nonfinite"), decoded):
            self._restore(line)
        group.steps = list(map(attrgetter("step"), decoded))
        metrics = decoded if self._within is None else list(map(attrgetter("values"), decoded))
        return self._points(array("q", group.steps), metrics)

    def _decoded_again(self, block: bytes) -> list[Any]:
        """The same with the names that all these lines have, where that is news."""
        known = len(self._names)
        for line in _any_lines.decode(block) or ():
            self.learn(line)
        decoded = self._prepared().decode(block) if len(self._names) > known else None
        if decoded is None:
            raise UnfitLinesError
        return decoded

    def _prepared(self) -> LineStructs:
        if len(self._names) > _MOST_NAMES or not all(map(_is_plain, self._names)):
            raise UnfitLinesError
        self._metrics = NumberFields(self._names)
        options: dict[str, Any] = {"forbid_unknown_fields": True, "gc": False}
        numbers, names = self._metrics.optional(), self._metrics.rename
        fields: list[Any] = [("step", Int64), ("t", Any, None), ("epoch", Any, None)]
        fields.append(("nonfinite", dict[str, str] | None, None))
        if self._within is None:
            fields += [("phase", Literal["train"], "train"), *numbers]
        else:
            fields.append(("values", msgspec.defstruct("Values", numbers, rename=names, **options)))
            names = {"values": self._within}
        row = msgspec.defstruct("Line", fields, tag_field="kind", tag=self._kind, rename=names, kw_only=True, **options)
        self._structs = LineStructs(row)
        return self._structs

    def _restore(self, line: Any) -> None:
        """Put NaN and the infinities back where the writer listed them, as `restore_nonfinite` does."""
        prefix, target = ("", line) if self._within is None else (f"{self._within}.", line.values)
        for path, word in line.nonfinite.items():
            name = path.removeprefix(prefix)
            if word in NONFINITE:
                if not path.startswith(prefix) or name not in self._metrics.attributes or (prefix and "." in name):
                    raise UnfitLinesError
                setattr(target, self._metrics.attributes[name], NONFINITE[word])

    def _points(self, steps: array[int], rows: list[Any]) -> dict[str, MetricPoints]:
        points: dict[str, MetricPoints] = {}
        sparse: dict[str, list[float | None]] = {}
        for name, value_of in self._metrics.getters.items():
            values = list(map(value_of, rows))
            try:
                points[name] = MetricPoints(steps, array("d", values))
            except TypeError:  # some lines do not have it
                sparse[name] = values
        lines_with = range(len(rows)) if points else {at for values in sparse.values() for at in _present(values)}
        if len(lines_with) < len(rows):  # a step without a number is none of any metric's
            raise UnfitLinesError
        for name, values in sparse.items():
            if at := _present(values):
                present = array("d", [value for value in values if value is not None])
                points[name] = MetricPoints(array("q", [steps[index] for index in at]), present)
        return points


def _present(values: list[float | None]) -> list[int]:
    return [at for at, value in enumerate(values) if value is not None]


def _is_plain(name: str) -> bool:
    return is_field_name(name) and not name.startswith(_APART)
