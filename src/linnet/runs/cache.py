"""What was read of a stream, kept under the run so that opening it again is instant.

The file is derived and disposable. It is used only while the stream is provably the one it was made from: untouched
since (size, times, inode), or grown behind bytes whose checksum still agrees. Anything else is read anew. So is what
turns out, when it is used, not to be what was put there: the header and every column have a checksum of their own.

While a long stream is read, rows that no longer fit into memory wait in a nameless file beside the cache.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.runs.folder import CACHE
from linnet.runs.intake import State
from linnet.runs.lines import checksum
from linnet.runs.place import open_regular, read_at
from linnet.runs.series import Extremes, Rows, StoredRows, StoredRowsError, Table, column_type

SMALLEST = 1 << 20  # streams below this are read faster than they are worth keeping
_MAGIC = b"linnet-metrics-5\n"
_NAME = "metrics"
_ALIGN = 64
_TRAILER = 12 + len(_MAGIC)  # length and checksum of the header, which stands at the end
_CELL = 8  # bytes
_PIECE = 16 << 20


_Count = Annotated[int, msgspec.Meta(ge=0)]


class StoredTable(msgspec.Struct):
    """A table in the file: its metrics, how many rows, a checksum for each column, the extremes of each metric."""

    names: list[str]
    rows: _Count
    sums: list[int]
    extremes: list[Extremes]


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
    tables: list[StoredTable] = []


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


def save(events: Path, header: Header, tables: list[Table]) -> list[Table] | None:
    """Keep what was read; the same tables, on disk. None: a folder that cannot be written just has no cache."""
    temporary = ""
    try:
        folder = events.parent / CACHE
        folder.mkdir(exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(fd, "w+b") as file:
            file.write(_MAGIC)
            header.tables = [_write_rows(file, table.now()) for table in tables]
            written = msgspec.msgpack.encode(header)
            file.write(written)
            file.write(len(written).to_bytes(8, "little") + zlib.crc32(written).to_bytes(4, "little") + _MAGIC)
            file.flush()
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        Path(temporary).replace(folder / _NAME)
        return _tables(content, header.tables)
    except (OSError, ValueError, StoredRowsError):
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        return None


def _write_rows(file: IO[bytes], rows: Rows) -> StoredTable:
    sums = []
    for key in rows.column_names():
        file.write(b"\0" * (-file.tell() % _ALIGN))
        total = 0
        for part in _parts(rows, key):
            file.write(np.ascontiguousarray(part).data)
            total += _sum(part)
        sums.append(total % 2**64)
    return StoredTable(list(rows.names), rows.rows, sums, [rows.extremes(name) for name in rows.names])


def _parts(rows: Rows, key: str) -> Iterator[NDArray[Any]]:
    """A column, from wherever its rows are, without putting it together."""
    if isinstance(rows.stored, _SpilledRows):
        yield from rows.stored.parts(key)
    elif rows.stored is not None:
        yield rows.stored.column(key)
    yield rows.recent(key)


def _sum(column: NDArray[Any]) -> int:
    """A checksum as fast as memory: of the same bits as integers. It finds what disks and crashes do to a file."""
    return int(np.add.reduce(np.ascontiguousarray(column).view(np.uint64), dtype=np.uint64))


def load(events: Path, origin: float = 0.0) -> Kept | None:
    """The cache of a stream, if there is one and the stream still begins with what it was made from."""
    try:
        with os.fdopen(open_regular(events.parent / CACHE / _NAME), "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = _header(content)
        if header is None or header.origin != origin or not _stands(events, header):
            return None
        tables = _tables(content, header.tables)
    except (OSError, ValueError, RecursionError):
        return None
    return Kept(tables, header.state, header.position, header.crc, header.oversized)


def _header(content: mmap.mmap) -> Header | None:
    end = len(content) - _TRAILER
    if end < len(_MAGIC) or content[: len(_MAGIC)] != _MAGIC or content[-len(_MAGIC) :] != _MAGIC:
        return None
    length = int.from_bytes(content[end : end + 8], "little")
    crc = int.from_bytes(content[end + 8 : end + 12], "little")
    written = content[end - length : end] if length <= end else b""
    return msgspec.msgpack.decode(written, type=Header) if zlib.crc32(written) == crc else None


def _tables(content: mmap.mmap, stored: list[StoredTable]) -> list[Table]:
    """Tables over the file; ValueError when it cannot hold what its header says."""
    tables, offset = [], len(_MAGIC)
    for table in stored:
        names = tuple(table.names)
        keys = Rows.keys(names)
        if len(table.sums) != len(keys) or len(table.extremes) != len(names) or len(set(names)) != len(names):
            raise ValueError("a table that is not whole")
        offsets = {}
        for key in keys:
            offset += -offset % _ALIGN
            offsets[key] = offset
            offset += table.rows * _CELL
        if offset > len(content):
            raise ValueError("a table that reaches beyond the file")
        tables.append(Table(names, _MappedRows(content, table, offsets)))
    return tables


class _MappedRows:
    """The rows of one table in a cache. A column's checksum is taken when the column is first asked for."""

    def __init__(self, content: mmap.mmap, table: StoredTable, offsets: dict[str, int]) -> None:
        self.rows = table.rows
        self.extremes = dict(zip(table.names, table.extremes, strict=True))
        self._content = content
        self._offsets = offsets
        self._sums = dict(zip(offsets, table.sums, strict=True))
        self._sound: set[str] = set()

    def column(self, key: str) -> NDArray[Any]:
        """One column, mapped from the file."""
        offset = self._offsets[key]
        if key not in self._sound:
            if self._sum(offset) != self._sums[key]:
                raise StoredRowsError(f"column {key} of the cache is damaged")
            self._sound.add(key)
        return np.frombuffer(self._content, dtype=column_type(key), count=self.rows, offset=offset)

    def _sum(self, offset: int) -> int:
        """The checksum of a column. Where it is large its pages are let go at once: maybe few rows of it are needed."""
        total, end = 0, offset + self.rows * _CELL
        for begin in range(offset, end, _PIECE):
            count = min(_PIECE, end - begin)
            total += _sum(np.frombuffer(self._content, dtype=np.uint64, count=count // _CELL, offset=begin))
            if self.rows * _CELL > _PIECE and hasattr(mmap, "MADV_DONTNEED"):
                page = begin // mmap.PAGESIZE * mmap.PAGESIZE
                self._content.madvise(mmap.MADV_DONTNEED, page, begin + count - page)
        return total % 2**64


def _stands(events: Path, header: Header) -> bool:
    with os.fdopen(open_regular(events), "rb") as stream:
        there = os.fstat(stream.fileno())
        if header.stamp == _stamp(there) and there.st_size >= header.position:
            return True
        return there.st_size >= header.position and checksum(stream.fileno(), header.position) == header.crc


# -- rows that wait to be kept -------------------------------------------------------------------------------------


class Spill:
    """A nameless file for rows that memory shall not hold. OSError when there can be none."""

    def __init__(self, events: Path) -> None:
        folder = events.parent / CACHE
        folder.mkdir(exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it lives as long as rows lie in it

    def put(self, before: StoredRows | None, rows: Rows) -> StoredRows:
        """Write rows behind those that are on disk already."""
        offset = self._file.seek(0, os.SEEK_END)
        for key in rows.column_names():
            self._file.write(np.ascontiguousarray(rows.recent(key)).data)
        self._file.flush()
        return _SpilledRows(self._file, before, rows, offset)


class _SpilledRows:
    """Rows of a table in pieces: those that were on disk before, and each piece with its columns one after another."""

    def __init__(self, file: IO[bytes], before: StoredRows | None, rows: Rows, offset: int) -> None:
        self._file = file
        self._before: StoredRows | None = before
        self._pieces: list[tuple[int, int]] = []  # offset, rows
        if isinstance(before, _SpilledRows):
            self._before, self._pieces = before._before, before._pieces
        self._pieces = [*self._pieces, (offset, rows.rows)]
        self._places = {key: place for place, key in enumerate(rows.column_names())}
        self.rows = rows.rows + (before.rows if before is not None else 0)
        fresh = {name: rows.extremes(name) for name in rows.names}
        self.extremes = fresh if before is None else {name: before.extremes[name].join(fresh[name]) for name in fresh}

    def column(self, key: str) -> NDArray[Any]:
        return np.concatenate(list(self.parts(key)))

    def parts(self, key: str) -> Iterator[NDArray[Any]]:
        """A column piece by piece."""
        if self._before is not None:
            yield self._before.column(key)
        for offset, rows in self._pieces:
            size = rows * _CELL
            try:
                content = read_at(self._file.fileno(), size, offset + self._places[key] * size)
            except OSError as error:
                raise StoredRowsError("rows that were put aside cannot be read") from error
            if len(content) < size:
                raise StoredRowsError("rows that were put aside are gone")
            yield np.frombuffer(content, dtype=column_type(key))
