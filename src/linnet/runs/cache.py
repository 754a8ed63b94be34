"""What was read of a stream, kept under the run so that opening it again is instant.

The file is derived and disposable. It is used only while the stream is provably the one it was made from: untouched
since (size, times, inode), or grown behind bytes whose checksum still agrees. Anything else is read anew.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from linnet.runs.folder import CACHE
from linnet.runs.intake import State
from linnet.runs.lines import checksum
from linnet.runs.place import open_regular
from linnet.runs.series import Table

SMALLEST = 1 << 20  # streams below this are read faster than they are worth keeping
_MAGIC = b"linnet-metrics-5\n"
_NAME = "metrics"
_ALIGN = 64


_Count = Annotated[int, msgspec.Meta(ge=0)]


class Header(msgspec.Struct, kw_only=True):
    """What a cache says of itself.

    - `position`, `crc`: how much of the stream it holds, and its checksum; `oversized`: lines passed over in it.
    - `origin`: the Unix time from which it counts a foreign run's seconds.
    - `stamp`: that of the stream before it was read; `state`: the intake's.
    """

    position: _Count
    crc: _Count
    oversized: _Count
    origin: float
    stamp: list[int]
    state: State
    tables: list[tuple[list[str], _Count]] = []


class Kept(msgspec.Struct):
    """A cache that was found good: its tables, other state, and where in the stream it ends."""

    tables: list[Any]
    state: State
    position: int
    crc: int
    oversized: int


def stamp(events: Path) -> list[int]:
    """What changes whenever a file does; taken before reading, it says whether what was read is still all there is."""
    try:
        return _stamp(events.stat())
    except OSError:
        return []


def _stamp(there: os.stat_result) -> list[int]:
    return [there.st_size, there.st_mtime_ns, there.st_ctime_ns, there.st_ino, there.st_dev]


def save(events: Path, header: Header, tables: list[Table]) -> None:
    """Keep what was read. A folder that cannot be written just has no cache."""
    temporary = ""
    try:
        header.tables = [(list(t.names), t.rows) for t in tables]
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


def load(events: Path, origin: float = 0.0) -> Kept | None:
    """The cache of a stream, if there is one and the stream still begins with what it was made from."""
    try:
        with os.fdopen(open_regular(events.parent / CACHE / _NAME), "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _read(content, events, origin)
    except (OSError, ValueError, IndexError, RecursionError):
        return None


def _read(content: mmap.mmap, events: Path, origin: float) -> Kept | None:
    start = len(_MAGIC) + 8
    length = int.from_bytes(content[len(_MAGIC) : start], "little")
    if content[: len(_MAGIC)] != _MAGIC or length > len(content) - start:
        return None
    header = msgspec.json.decode(content[start : start + length], type=Header)
    if header.origin != origin or not _stands(events, header):
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
    return Kept(tables, header.state, header.position, header.crc, header.oversized)


def _stands(events: Path, header: Header) -> bool:
    with os.fdopen(open_regular(events), "rb") as stream:
        there = os.fstat(stream.fileno())
        if header.stamp == _stamp(there) and there.st_size >= header.position:
            return True
        return there.st_size >= header.position and checksum(stream.fileno(), header.position) == header.crc
