"""What was read of a stream, kept under the run so that opening it again is instant.

The file is derived and disposable. It is used only while the stream is provably the one it was made from: untouched
since (size, times, inode), or grown behind bytes whose checksum still agrees. Anything else is read anew.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from linnet.runs.folder import CACHE
from linnet.runs.lines import checksum
from linnet.runs.series import Table

SMALLEST = 1 << 20  # streams below this are read faster than they are worth keeping
_MAGIC = b"linnet-metrics-3\n"
_NAME = "metrics"
_ALIGN = 64


class Kept(msgspec.Struct):
    """A cache that was found good: its tables, other state, and where in the stream it ends."""

    tables: list[Any]
    state: dict[str, Any]
    position: int
    crc: int


class _Header(msgspec.Struct):
    position: int
    crc: int
    stamp: list[int]
    state: dict[str, Any]
    tables: list[tuple[list[str], int]]


def stamp(events: Path) -> list[int]:
    """What changes whenever a file does; taken before reading, it says whether what was read is still all there is."""
    try:
        return _stamp(events.stat())
    except OSError:
        return []


def _stamp(there: os.stat_result) -> list[int]:
    return [there.st_size, there.st_mtime_ns, there.st_ctime_ns, there.st_ino, there.st_dev]


def save(events: Path, before: list[int], position: int, crc: int, tables: list[Table], state: dict[str, Any]) -> None:
    """Keep what was read up to `position`; `before` is the stamp taken before reading.

    A folder that cannot be written just has no cache.
    """
    temporary = ""
    try:
        header = _Header(position, crc, before, state, [(list(t.names), t.rows) for t in tables])
        folder = events.parent / CACHE
        folder.mkdir(exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(fd, "wb") as file:
            written = msgspec.json.encode(header)
            file.write(_MAGIC + len(written).to_bytes(8, "little") + written)
            for table in tables:
                for key in table.column_names():
                    file.write(b"\0" * (-file.tell() % _ALIGN))
                    file.write(np.ascontiguousarray(table.column(key)).data)
        Path(temporary).replace(folder / _NAME)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def load(events: Path) -> Kept | None:
    """The cache of a stream, if there is one and the stream still begins with what it was made from."""
    try:
        with (events.parent / CACHE / _NAME).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _read(content, events)
    except (OSError, ValueError, IndexError):
        return None


def _read(content: mmap.mmap, events: Path) -> Kept | None:
    start = len(_MAGIC) + 8
    length = int.from_bytes(content[len(_MAGIC) : start], "little")
    if content[: len(_MAGIC)] != _MAGIC or length > len(content) - start:
        return None
    header = msgspec.json.decode(content[start : start + length], type=_Header)
    if not _stands(events, header):
        return None
    tables, offset = [], start + length
    for names, rows in header.tables:
        table = Table(tuple(names))
        columns: dict[str, Any] = {}
        for key in table.column_names():
            offset += -offset % _ALIGN
            kind = table.column(key).dtype
            columns[key] = np.frombuffer(content, dtype=kind, count=rows, offset=offset)
            offset += rows * kind.itemsize
        tables.append(Table(table.names, columns))
    return Kept(tables, header.state, header.position, header.crc)


def _stands(events: Path, header: _Header) -> bool:
    with events.open("rb") as stream:
        there = os.fstat(stream.fileno())
        if header.stamp == _stamp(there) and there.st_size >= header.position:
            return True
        return there.st_size >= header.position and checksum(stream.fileno(), header.position) == header.crc
