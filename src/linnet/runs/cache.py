"""What was read of a stream, kept under the run so that opening it again is instant.

The file is derived and disposable. It is used only while the stream is provably the one it was made from: untouched
since (size, times, inode), or grown behind bytes whose checksum still agrees. Anything else is read anew. So is what
turns out, when it is used, not to be what was put there: the header and every column have a checksum of their own.

While a long stream is read, rows that memory shall not hold are written already, piece by piece, into what becomes the
cache at the end.
"""

from __future__ import annotations

import mmap
import os
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.files import StagedFile, change_stamp, open_regular
from linnet.runs.folder import CACHE
from linnet.runs.line_struct import Int64
from linnet.runs.lines import checksum
from linnet.runs.metric_parser import ParserState
from linnet.runs.series import Extremes, Rows, StoredRowsError, Table, column_type

_MAGIC = b"linnet-metrics-6\n"
_NAME = "metrics"
_ALIGN = 64
_TRAILER = 12 + len(_MAGIC)  # length and checksum of the header, which stands at the end
_CELL = 8  # bytes
_LARGE = 4 << 20

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Ramp(msgspec.Struct):
    """A column in arithmetic progression, which need not be written: its first number, and the difference of two."""

    first: Int64 | float
    rise: Int64

    @staticmethod
    def of(column: NDArray[Any]) -> Ramp | None:
        """The ramp that a column is: steps and lines mostly are one, and what never changes; None for all others."""
        if len(column) < 2:
            return None
        bits = np.ascontiguousarray(column).view(np.int64)  # so that a NaN is itself
        rise = int(column[1]) - int(column[0]) if column.dtype == np.int64 else 0
        if int(bits[1]) - int(bits[0]) != rise or not np.all(bits[1:] - bits[:-1] == rise):
            return None
        return Ramp(column[0].item(), rise)

    def rows(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """The values of some rows."""
        if isinstance(self.first, float):
            return np.full(len(indices), self.first)
        return indices * self.rise + self.first


class Piece(msgspec.Struct):
    """Successive rows of a table: where in the file their columns stand, one behind another.

    Of each column a checksum, or the ramp that it is: then it does not stand in the file.
    """

    offset: _Count
    rows: _Count
    columns: list[int | Ramp]

    def offset_of(self, index: int) -> int:
        """Where in the file a column stands."""
        before = sum(not isinstance(column, Ramp) for column in self.columns[:index])
        return self.offset + before * self.rows * _CELL

    @property
    def end(self) -> int:
        """Where in the file the last column ends."""
        return self.offset_of(len(self.columns))


class StoredTable(msgspec.Struct):
    """A table in the file: its metrics, its rows, the extremes of each metric."""

    names: list[str]
    pieces: list[Piece]
    extremes: list[Extremes]


class Header(msgspec.Struct, kw_only=True):
    """What a cache says of itself.

    - `position`, `crc`: how much of the stream it holds, and its checksum; `oversized`: lines passed over in it.
    - `origin`: the Unix time from which it counts a foreign run's seconds.
    - `stamp`: that of the stream before it was read; `state`: the parser's.
    """

    position: _Count
    crc: _Count
    oversized: _Count
    origin: float
    stamp: list[int]
    state: ParserState
    tables: list[StoredTable] = []


class StoredRows:
    """Rows of a table on disk, which never change: pieces of memory-mapped files, in order. `extremes`: by metric.

    A column's checksum is taken when the column is first asked for.
    """

    def __init__(
        self, names: Sequence[str], parts: list[tuple[mmap.mmap, Piece]], extremes: Sequence[Extremes] = ()
    ) -> None:
        self.rows = sum(piece.rows for _, piece in parts)
        self.parts = parts
        self.extremes = dict(zip(names, extremes, strict=False))
        self._index = {key: index for index, key in enumerate(Rows.keys(names))}
        self._sound: set[tuple[int, str]] = set()

    def column(self, key: str) -> NDArray[Any]:
        """One column: mapped from the file, or, where it is in pieces, put together in memory."""
        if len(self.parts) == 1:
            (column,) = self.arrays(key)
            return column
        column, at = np.empty(self.rows, dtype=column_type(key)), 0
        for array in self.arrays(key):
            column[at : at + len(array)] = array
            at += len(array)
        return column

    def arrays(self, key: str) -> Iterator[NDArray[Any]]:
        """The same, piece by piece as they lie in the file; a ramp is computed."""
        for part, (content, piece) in enumerate(self.parts):
            yield self._array(key, part)
            self._let_go(key, content, piece)

    def pick(self, key: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows of a column; those of a ramp are computed, and the others are not touched."""
        picked, begin = np.empty(len(rows), dtype=column_type(key)), 0
        for part, (_, piece) in enumerate(self.parts):
            in_piece = (rows >= begin) & (rows < begin + piece.rows)
            if in_piece.any():
                ramp, indices = piece.columns[self._index[key]], rows[in_piece] - begin
                picked[in_piece] = ramp.rows(indices) if isinstance(ramp, Ramp) else self._array(key, part)[indices]
            begin += piece.rows
        return picked

    def _array(self, key: str, part: int) -> NDArray[Any]:
        """A column of a piece, as it lies in the file, once its checksum was found right."""
        content, piece = self.parts[part]
        written = piece.columns[self._index[key]]
        if isinstance(written, Ramp):
            return written.rows(np.arange(piece.rows))
        array = np.frombuffer(content, column_type(key), piece.rows, piece.offset_of(self._index[key]))
        if (part, key) not in self._sound:
            if _sum(array) != written:
                raise StoredRowsError(f"column {key} of the cache is damaged")
            self._sound.add((part, key))
        return array

    def _let_go(self, key: str, content: mmap.mmap, piece: Piece) -> None:
        """Drop the pages of a large column from memory; they are read again when they are touched."""
        index, size = self._index[key], piece.rows * _CELL
        if size > _LARGE and not isinstance(piece.columns[index], Ramp) and hasattr(mmap, "MADV_DONTNEED"):
            offset = piece.offset_of(index)
            page = offset // mmap.PAGESIZE * mmap.PAGESIZE
            content.madvise(mmap.MADV_DONTNEED, page, offset + size - page)


def _sum(column: NDArray[Any]) -> int:
    """A checksum as fast as memory: of the same bits as integers. It finds what disks and crashes do to a file."""
    return int(np.add.reduce(np.ascontiguousarray(column).view(np.uint64), dtype=np.uint64))


def load(events: Path, origin: float = 0.0) -> tuple[Header, list[Table]] | None:
    """The cache of a stream, if there is one and the stream still begins with what it was made from."""
    try:
        with os.fdopen(open_regular(events.parent / CACHE / _NAME), "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = _header(content)
        if header is None or header.origin != origin or not _stands(events, header):
            return None
        return header, _tables(content, header)
    except (OSError, ValueError, RecursionError):
        return None


def _header(content: mmap.mmap) -> Header | None:
    end = len(content) - _TRAILER
    if end < len(_MAGIC) or content[: len(_MAGIC)] != _MAGIC or content[-len(_MAGIC) :] != _MAGIC:
        return None
    length = int.from_bytes(content[end : end + 8], "little")
    crc = int.from_bytes(content[end + 8 : end + 12], "little")
    written = content[end - length : end] if length <= end else b""
    return msgspec.msgpack.decode(written, type=Header) if zlib.crc32(written) == crc else None


def _tables(content: mmap.mmap, header: Header) -> list[Table]:
    """Tables over the file; ValueError when it cannot hold what its header says."""
    for table in header.tables:
        if len(table.extremes) != len(table.names) or len(set(table.names)) != len(table.names):
            raise ValueError("a table that is not whole")
        if sum(piece.rows for piece in table.pieces) > header.position:  # a row takes more than a byte of the stream
            raise ValueError("more rows than the stream has")
        kinds = [column_type(key).kind for key in Rows.keys(table.names)]
        for piece in table.pieces:
            if len(piece.columns) != len(kinds) or piece.end > len(content):
                raise ValueError("a table that reaches beyond the file")
            for column, kind in zip(piece.columns, kinds, strict=True):
                if isinstance(column, Ramp) and isinstance(column.first, float) != (kind == "f"):
                    raise ValueError("a ramp of another kind")
    return [
        Table(tuple(table.names), StoredRows(table.names, [(content, piece) for piece in table.pieces], table.extremes))
        for table in header.tables
    ]


def _stands(events: Path, header: Header) -> bool:
    with os.fdopen(open_regular(events), "rb") as stream:
        status = os.fstat(stream.fileno())
        if status.st_size < header.position:
            return False
        return header.stamp == change_stamp(status) or checksum(stream.fileno(), header.position) == header.crc


def stamp(events: Path) -> list[int]:
    """What changes whenever a file does; taken before reading, it says whether what was read is still all there is."""
    try:
        return change_stamp(events.stat())
    except OSError:
        return []


# -- writing -------------------------------------------------------------------------------------------------------


def save(events: Path, header: Header, tables: list[Table], writer: CacheWriter | None = None) -> list[Table] | None:
    """Keep what was read; the same tables, on disk. None: a folder that cannot be written just has no cache.

    `writer`: of the file that holds some of the rows already.
    """
    try:
        writer = writer or CacheWriter(events)
        header.tables = [writer.finish(table.now()) for table in tables]
        return _tables(writer.publish(header), header)
    except (OSError, ValueError, StoredRowsError):
        return None


class CacheWriter:
    """Writes a file that becomes the cache; rows can be put there before all are read. OSError when there can be none.

    The file is mapped as it grows, so rows that were put there can be read for as long as somebody holds them.
    """

    def __init__(self, events: Path) -> None:
        folder = events.parent / CACHE
        folder.mkdir(exist_ok=True)
        self._staged = StagedFile(folder / _NAME, mode=0o600, sync=False)
        self._file = os.fdopen(os.dup(self._staged.fileno()), "w+b")
        self._discard = weakref.finalize(self, self._staged.discard)
        self._mapped: list[mmap.mmap] = []
        self._file.write(_MAGIC)

    def put(self, rows: Rows) -> StoredRows:
        """Write the rows that are in memory; with those that are on disk already, all of them."""
        piece = self._write(rows.recent(key) for key in rows.column_names())
        self._file.flush()
        content = mmap.mmap(self._file.fileno(), piece.end, access=mmap.ACCESS_READ)
        self._mapped.append(content)
        parts = [*(rows.stored.parts if rows.stored is not None else ()), (content, piece)]
        return StoredRows(rows.names, parts, [rows.extremes(name) for name in rows.names])

    def finish(self, rows: Rows) -> StoredTable:
        """Write what of a table is not in the file yet; what an older cache holds becomes one piece."""
        keys, parts = rows.column_names(), rows.stored.parts if rows.stored is not None else []
        pieces = [piece for content, piece in parts if content in self._mapped]
        if not pieces:
            pieces = [self._write(rows.column(key) for key in keys)]
        else:
            older = StoredRows(rows.names, parts[: -len(pieces)])
            if older.rows:
                pieces.insert(0, self._write(older.column(key) for key in keys))
            pieces.append(self._write(rows.recent(key) for key in keys))
        return StoredTable(list(rows.names), pieces, [rows.extremes(name) for name in rows.names])

    def publish(self, header: Header) -> mmap.mmap:
        """Write the header and put the file in its place; its content."""
        written = msgspec.msgpack.encode(header)
        self._file.write(written)
        self._file.write(len(written).to_bytes(8, "little") + zlib.crc32(written).to_bytes(4, "little") + _MAGIC)
        self._file.flush()
        content = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._staged.publish()
        self._discard.detach()
        self._file.close()
        return content

    def _write(self, columns: Iterable[NDArray[Any]]) -> Piece:
        offset = self._file.seek(0, os.SEEK_END)
        offset += self._file.write(b"\0" * (-offset % _ALIGN))
        rows, written = 0, []
        for column in columns:
            rows = len(column)
            ramp = Ramp.of(column)
            if ramp is None:
                self._file.write(np.ascontiguousarray(column).data)
            written.append(_sum(column) if ramp is None else ramp)
        return Piece(offset, rows, written)
