"""The points of every metric of a run that has ended, kept under it, so that a first question decodes no stream.

The file (`.cache/points`) is derived and disposable, and used only while the stream is provably the one it was made
from: untouched since (size, times, inode), or grown behind bytes whose checksum still agrees, as by a late evaluation
or a note; of those only what is new is decoded. The header and every column have a checksum of their own.
"""

from __future__ import annotations

import os
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from linnet.files import change_stamp, open_regular, read_at, write_file
from linnet.runs.figure_decoder import OWN_ROWS, figure_decoder
from linnet.runs.figures import FigureRequest, MetricFigures, Point
from linnet.runs.folder import CACHE, EVENTS
from linnet.runs.line_struct import Int64
from linnet.runs.lines import UnfitLinesError, checksum
from linnet.runs.point_decoder import MetricPoints

_NAME = "points"
_MAGIC = b"linnet-points-1\n"
_LONGEST_TAIL = 8 << 20  # bytes behind those that were kept
_FIRST_READ = 8 << 10  # bytes in which most headers end
_CELL = 8  # bytes of a step and of a value, little-endian
_FRAME = len(_MAGIC) + 8  # before the header: what the file is, length and checksum

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Column(msgspec.Struct, array_like=True, frozen=True):
    """Numbers of eight bytes in the file: where they begin, behind the header, and their checksum."""

    offset: _Count
    crc: _Count


class _Steps(msgspec.Struct, array_like=True, frozen=True):
    """Ascending steps: a column, or, without one, so many beginning with `first`, `rise` between two."""

    count: _Count
    first: Int64
    rise: Int64
    column: _Column | None = None


class _Metric(msgspec.Struct, array_like=True, frozen=True):
    """A metric in the file. `steps`: which of the header's; `values`: in the order of the steps."""

    count: _Count
    first: Point
    last: Point
    low: Point | None
    high: Point | None
    steps: _Count
    values: _Column


class _Header(msgspec.Struct, array_like=True, frozen=True):
    """What the file says of itself.

    - `position`, `crc`: how much of the stream it was made of, and the checksum of that; `stamp`: the stream's then.
    - `metrics`: each encoded by itself, so that no more than those asked for are decoded.
    """

    position: _Count
    crc: _Count
    stamp: list[int]
    steps: list[_Steps]
    metrics: dict[str, msgspec.Raw]


_header_decoder = msgspec.msgpack.Decoder(_Header)
_metric_decoder = msgspec.msgpack.Decoder(_Metric)


# -- writing -------------------------------------------------------------------------------------------------------


def save_points(
    events: Path, position: int, crc: int, status: os.stat_result, metrics: Mapping[str, MetricPoints]
) -> None:
    """Write the points of a stream's first `position` bytes beside it; OSError where that cannot be.

    `crc`: the checksum of those bytes; `status`: of the stream before they were read to the end.
    """
    writer = _Writer()
    stored = {name: writer.put(points) for name, points in metrics.items() if len(points.values)}
    target = events.parent / CACHE / _NAME
    target.parent.mkdir(exist_ok=True)
    write_file(target, writer.file(_Header(position, crc, change_stamp(status), writer.steps, stored)), sync=False)


class _Writer:
    """Puts columns one behind another, those of equal steps once."""

    def __init__(self) -> None:
        self.steps: list[_Steps] = []
        self._known: dict[bytes, tuple[int, list[int] | None]] = {}
        self._columns: list[bytes] = []
        self._offset = 0

    def put(self, points: MetricPoints) -> msgspec.Raw:
        """The columns of a metric, and what the header says of it."""
        figures, values = MetricFigures(), points.values
        figures.add(points.steps, values.tolist())
        assert figures.first is not None and figures.last is not None
        index, order = self._put_steps(points.steps)
        column = self._put_column(values if order is None else array("d", [values[at] for at in order]))
        metric = _Metric(figures.count, figures.first, figures.last, figures.low, figures.high, index, column)
        return msgspec.Raw(msgspec.msgpack.encode(metric))

    def _put_steps(self, column: array[int]) -> tuple[int, list[int] | None]:
        """Which steps of the header these are, ascending, and the order that makes them so; None: they are in it."""
        content = column.tobytes()
        if content not in self._known:
            steps, order = column.tolist(), None
            ascending = sorted(steps)
            if steps != ascending:  # of equal steps the one logged last stays the last
                order = sorted(range(len(steps)), key=steps.__getitem__)
            first, rise = ascending[0], ascending[1] - ascending[0] if len(steps) > 1 else 0
            is_ramp = ascending == list(_ramp(first, rise, len(steps)))
            stored = None if is_ramp else self._put_column(array("q", ascending))
            self._known[content] = len(self.steps), order
            self.steps.append(_Steps(len(steps), first, rise, stored))
        return self._known[content]

    def _put_column(self, column: array[Any]) -> _Column:
        content, offset = _little_endian(column).tobytes(), self._offset
        self._columns.append(content)
        self._offset += len(content)
        return _Column(offset, zlib.crc32(content))

    def file(self, header: _Header) -> bytes:
        """The whole file."""
        written = msgspec.msgpack.encode(header)
        frame = len(written).to_bytes(4, "little") + zlib.crc32(written).to_bytes(4, "little")
        return b"".join((_MAGIC, frame, written, *self._columns))


def _ramp(first: int, rise: int, count: int) -> Sequence[int]:
    return range(first, first + rise * count, rise) if rise else [first] * count


def _little_endian(column: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column


# -- reading -------------------------------------------------------------------------------------------------------


def kept_figures(folder: str, request: FigureRequest) -> dict[str, MetricFigures] | None:
    """The wanted figures of a run, those that it has; None where the points were not kept, or are not its stream's."""
    try:
        points = open_regular(f"{folder}/{CACHE}/{_NAME}")
    except OSError:
        return None
    try:
        reader = _Reader(points)
        tail = _tail(f"{folder}/{EVENTS}", reader.header)
        if tail is None or (tail and any(name.startswith(OWN_ROWS) for name in request)):
            return None
        figures = {name: reader.figures(name, steps) for name, steps in request.items()}
        if tail:
            figure_decoder(tuple(request)).take(tail, figures)
        return {name: figure for name, figure in figures.items() if figure.count}
    except (OSError, ValueError, RecursionError, UnfitLinesError):  # damaged, or with more news than can be told here
        return None
    finally:
        os.close(points)


class _Reader:
    """An open file of points; ValueError where it is not whole."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        content = read_at(fd, _FIRST_READ, 0)
        length, crc = (int.from_bytes(content[at : at + 4], "little") for at in (_FRAME - 8, _FRAME - 4))
        self._columns = _FRAME + length
        if len(content) < self._columns:
            content += read_at(fd, self._columns - len(content), len(content))
        written = content[_FRAME : self._columns]
        if not content.startswith(_MAGIC) or zlib.crc32(written) != crc:
            raise ValueError("no file of points, or a damaged one")
        self.header = _header_decoder.decode(written)

    def figures(self, name: str, wanted_steps: frozenset[int]) -> MetricFigures:
        """The figures of a metric; without any where the run does not have it."""
        if name not in self.header.metrics:
            return MetricFigures(at=dict.fromkeys(wanted_steps))
        metric = _metric_decoder.decode(self.header.metrics[name])
        figures = MetricFigures(metric.count, metric.first, metric.last, metric.low, metric.high)
        if wanted_steps:
            steps, values = self._steps(metric.steps), self._column(metric.values, metric.count, "d")
            if len(steps) != len(values):
                raise ValueError("more steps than values")
            for wanted in wanted_steps:
                at = bisect_right(steps, wanted) - 1
                figures.at[wanted] = (steps[at], values[at]) if at >= 0 else None
        return figures

    def _steps(self, index: int) -> Sequence[Any]:
        if index >= len(self.header.steps):
            raise ValueError("steps that are not there")
        steps = self.header.steps[index]
        if steps.column is not None:
            return self._column(steps.column, steps.count, "q")
        return _ramp(steps.first, steps.rise, min(steps.count, self.header.position))

    def _column(self, column: _Column, count: int, typecode: str) -> array[Any]:
        if count > self.header.position:  # a point takes more than a byte of the stream
            raise ValueError("more points than the stream has")
        content = read_at(self._fd, count * _CELL, self._columns + column.offset)
        if len(content) != count * _CELL or zlib.crc32(content) != column.crc:
            raise ValueError("a damaged column")
        return _little_endian(array(typecode, content))


def _tail(events: str, header: _Header) -> bytes | None:
    """Whole lines behind those that a header tells of; None when the stream may be another."""
    status = os.stat(events)  # noqa: PTH116 - one for each of thousands of runs
    if change_stamp(status) == header.stamp:
        return b""
    stream = open_regular(events)
    try:
        length = os.fstat(stream).st_size - header.position
        if not header.position or not 0 <= length <= _LONGEST_TAIL or checksum(stream, header.position) != header.crc:
            return None
        tail = read_at(stream, length, header.position)
        return tail[: tail.rfind(b"\n") + 1]
    finally:
        os.close(stream)
