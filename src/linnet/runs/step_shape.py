"""Decoding many lines of one shape at once: a long run is a million lines with the same fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.runs.events import Event, parse
from linnet.runs.metric_names import rows

_ENVELOPE = ("kind", "phase", "t", "step", "epoch")
_MOST_SHAPES = 256  # held ready; a stream of ever new fields must not take memory for each
_LEAST_LINES = 32  # fewer lines are not worth decoding together
_HEAD = re.compile(rb"[^0-9\-\n]{1,24}")  # how the lines of one shape begin: all that stands before the first number
_UNFIT = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')  # no field of a decoder may be called so
_NEWLINE, _BRACE = ord("\n"), ord("{")
_shapes: dict[tuple[str, ...], StepShape] = {}

Columns = list[NDArray[Any]]  # `step`, `t`, `epoch`, and one a metric


class StepShape:
    """Lines of plain `step` events with the same fields: a decoder made for them, and how to get at each column.

    `names`: the metrics, in the order of the line.
    """

    def __init__(self, example: dict[str, Any]) -> None:
        self.names = tuple(name for name in example if name not in _ENVELOPE)
        fields: dict[str, Any] = dict.fromkeys(example, float)
        fields |= {"kind": Literal["step"], "step": int}
        if "phase" in example:
            fields["phase"] = Literal["train"]
        attributes = {name: f"f{index}" for index, name in enumerate(fields)}
        row = msgspec.defstruct(
            "Row",
            [(attributes[name], kind) for name, kind in fields.items()],
            rename={attribute: name for name, attribute in attributes.items()},
            forbid_unknown_fields=True,
            gc=False,
        )
        self._decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(row).decode_lines
        self._getters = {name: attrgetter(attribute) for name, attribute in attributes.items()}

    def decode(self, lines: bytes) -> Columns | None:
        """The columns of whole lines; None when one of them is of another shape, damaged or empty."""
        try:
            decoded = self._decode(lines)
            if not _one_a_line(len(decoded), lines):
                return None
            return [self._column(decoded, name) for name in ("step", "t", "epoch", *self.names)]
        except (ValueError, RecursionError, OverflowError):  # the last: a step of more than 64 bits
            return None

    def _column(self, decoded: Sequence[Any], name: str) -> NDArray[Any]:
        """One field of every row; NaN where the shape has none."""
        if name not in self._getters:
            return np.full(len(decoded), np.nan)
        kind = np.int64 if name == "step" else np.float64
        return np.fromiter(map(self._getters[name], decoded), dtype=kind, count=len(decoded))


def shape_of(line: bytes) -> StepShape | None:
    """The shape of a line; None when it is no plain training step."""
    fields = parse(line)
    if fields is None or not _is_plain_step(fields):
        return None
    key = tuple(fields)
    if key not in _shapes:
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        _shapes[key] = StepShape(fields)
    return _shapes[key]


class Stretch(NamedTuple):
    """Successive whole lines, `block[begin:end]`: steps of one shape as columns; without columns, to take singly."""

    begin: int
    end: int
    names: tuple[str, ...] = ()
    columns: Columns | None = None


def stretches(block: bytes) -> Iterator[Stretch]:
    """Cut a block of whole lines, in order, into stretches of steps of one shape and what stands between them."""
    first = shape_of(block[: block.index(b"\n") + 1])
    if first is not None and (columns := first.decode(block)) is not None:
        yield Stretch(0, len(block), first.names, columns)
        return
    content = np.frombuffer(block, dtype=np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(content == _NEWLINE) + 1])
    middle = len(starts) // 2 - 1
    for index in (middle, 0, len(starts) - 2):
        example = block[starts[index] : starts[index + 1]]
        if (shape := shape_of(example)) is not None and (head := _HEAD.match(example)) is not None:
            begins = starts[:-1, None] + np.arange(head.end())
            alike = (content.take(begins, mode="clip") == np.frombuffer(head[0], dtype=np.uint8)).all(axis=1)
            bounds = np.flatnonzero(np.diff(alike)) + 1
            for begin, end in zip([0, *bounds], [*bounds, len(alike)], strict=True):
                yield from _cut(block, starts[begin : end + 1], shape if alike[begin] else None)
            return
    yield Stretch(0, len(block))


def _cut(block: bytes, starts: NDArray[np.int64], shape: StepShape | None) -> Iterator[Stretch]:
    """Lines that begin alike, as one stretch where they are of the shape; else in halves, while there are enough."""
    begin, end = int(starts[0]), int(starts[-1])
    if shape is None or len(starts) <= _LEAST_LINES:
        yield Stretch(begin, end)
    elif (columns := shape.decode(block[begin:end])) is not None:
        yield Stretch(begin, end, shape.names, columns)
    else:
        half = len(starts) // 2
        yield from _cut(block, starts[: half + 1], shape)
        yield from _cut(block, starts[half:], shape)


def _one_a_line(objects: int, lines: bytes) -> bool:
    """So many objects stand in so many whole lines, one in each; a decoder of lines minds neither two nor a half."""
    content = np.frombuffer(lines, dtype=np.uint8)
    newline = content == _NEWLINE
    begins = np.count_nonzero(newline[:-1] & (content[1:] == _BRACE)) + (lines[:1] == b"{")
    return bool(begins == objects == np.count_nonzero(newline))


def _is_plain_step(fields: dict[str, Any]) -> bool:
    if fields.get("kind") != "step" or fields.get("phase", "train") != "train" or "type" in fields:
        return False
    names = tuple(name for name in fields if name not in _ENVELOPE)
    if any(_UNFIT.search(name) for name in names):
        return False
    numeric = all(type(fields[name]) in (int, float) for name in (*names, "t", "step") if name in fields)
    if not names or not numeric or not {"t", "step"} <= fields.keys():
        return False
    # some field may have a meaning of its own
    return tuple(name for name, _ in rows(Event("step", 0.0, 0, fields))) == names
