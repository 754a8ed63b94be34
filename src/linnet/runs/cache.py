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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.files import StagedFile, open_regular, read_at
from linnet.runs.folder import CACHE
from linnet.runs.lines import checksum
from linnet.runs.metric_parser import ParserState
from linnet.runs.series import Extremes, Rows, StoredRows, StoredRowsError, Table, column_type

SMALLEST = 1 << 20  # streams below this are read faster than they are worth keeping
_MAGIC = b"linnet-metrics-6\n"
_NAME = "metrics"
_ALIGN = 64
_TRAILER = 12 + len(_MAGIC)  # length and checksum of the header, which stands at the end
_CELL = 8  # bytes
_LARGE = 4 << 20


_Count = Annotated[int, msgspec.Meta(ge=0)]


_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Ramp(msgspec.Struct):
    """A column that need not be written: its first number, and how much each one is above the one before."""

    first: _Int64 | float
    rise: _Int64

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

    def rows(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """The numbers at some places."""
        if isinstance(self.first, float):
            return np.full(len(places), self.first)
        return places * self.rise + self.first


class Piece(msgspec.Struct):
    """Successive rows of a table: where in the file their columns stand, one behind another.

    Of each column a checksum, or the ramp that it is: then it does not stand in the file.
    """

    offset: _Count
    rows: _Count
    columns: list[int | Ramp]

    def offset_of(self, place: int) -> int:
        """Where in the file a column stands."""
        before = sum(not isinstance(column, Ramp) for column in self.columns[:place])
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


class Kept(msgspec.Struct):
    """A cache that was found good: its tables, other state, and where in the stream it ends."""

    tables: list[Any]
    state: ParserState
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


def save(events: Path, header: Header, tables: list[Table], spill: Spill | None = None) -> list[Table] | None:
    """Keep what was read; the same tables, on disk. None: a folder that cannot be written just has no cache.

    `spill`: the file that holds some of the rows already.
    """
    try:
        spill = spill or Spill(events)
        header.tables = [spill.finish(table.now()) for table in tables]
        return _tables(spill.keep(header), header)
    except (OSError, ValueError, StoredRowsError):
        return None


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
        tables = _tables(content, header)
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
    return [Table(tuple(table.names), _MappedRows(content, table)) for table in header.tables]


class _MappedRows:
    """The rows of one table in a cache. A column's checksum is taken when the column is first asked for."""

    def __init__(self, content: mmap.mmap, table: StoredTable) -> None:
        self.rows = sum(piece.rows for piece in table.pieces)
        self.extremes = dict(zip(table.names, table.extremes, strict=True))
        self._content = content
        self._pieces = table.pieces
        self._places = {key: place for place, key in enumerate(Rows.keys(table.names))}
        self._sound: set[tuple[int, int]] = set()

    def column(self, key: str) -> NDArray[Any]:
        """One column: mapped from the file, or, where it is in pieces, put together in memory."""
        if len(self._pieces) == 1:
            (column,) = self.arrays(key)
            return column
        column, at = np.empty(self.rows, dtype=column_type(key)), 0
        for piece, part in zip(self._pieces, self.arrays(key), strict=True):
            column[at : at + piece.rows] = part
            at += piece.rows
        return column

    def arrays(self, key: str) -> Iterator[NDArray[Any]]:
        """The same, piece by piece as they lie in the file; a ramp is computed."""
        for piece in self._pieces:
            ramp = piece.columns[self._places[key]]
            yield ramp.rows(np.arange(piece.rows)) if isinstance(ramp, Ramp) else self._sound_part(key, piece)
            self._let_go(key, piece)

    def pick(self, key: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows of a column; those of a ramp are computed, and the others are not touched."""
        place, begin = self._places[key], 0
        picked = np.empty(len(rows), dtype=column_type(key))
        for piece in self._pieces:
            here = (rows >= begin) & (rows < begin + piece.rows)
            if here.any():
                ramp, places = piece.columns[place], rows[here] - begin
                part = ramp.rows(places) if isinstance(ramp, Ramp) else self._sound_part(key, piece)[places]
                picked[here] = part
            begin += piece.rows
        return picked

    def _sound_part(self, key: str, piece: Piece) -> NDArray[Any]:
        """A column of a piece, as it lies in the file, once its checksum was found right."""
        place = self._places[key]
        part = np.frombuffer(self._content, column_type(key), piece.rows, piece.offset_of(place))
        if (place, piece.offset) not in self._sound:
            if _sum(part) != piece.columns[place]:
                raise StoredRowsError(f"column {key} of the cache is damaged")
            self._sound.add((place, piece.offset))
        return part

    def _let_go(self, key: str, piece: Piece) -> None:
        """Have the pages of a large column leave memory; they come back when they are looked at."""
        size = 0 if isinstance(piece.columns[self._places[key]], Ramp) else piece.rows * _CELL
        if size > _LARGE and hasattr(mmap, "MADV_DONTNEED"):
            offset = piece.offset_of(self._places[key])
            page = offset // mmap.PAGESIZE * mmap.PAGESIZE
            self._content.madvise(mmap.MADV_DONTNEED, page, offset + size - page)


def _stands(events: Path, header: Header) -> bool:
    with os.fdopen(open_regular(events), "rb") as stream:
        there = os.fstat(stream.fileno())
        if header.stamp == _stamp(there) and there.st_size >= header.position:
            return True
        return there.st_size >= header.position and checksum(stream.fileno(), header.position) == header.crc


# -- a cache that is being written ---------------------------------------------------------------------------------


class Spill:
    """A file that becomes the cache: rows can be put there before all are read. OSError when there can be none."""

    def __init__(self, events: Path) -> None:
        folder = events.parent / CACHE
        folder.mkdir(exist_ok=True)
        self._staged = StagedFile(folder / _NAME, mode=0o600, sync=False)
        # A descriptor of its own: rows that were put there can be read for as long as somebody holds them.
        self._file = os.fdopen(os.dup(self._staged.fileno()), "w+b")
        self._remove = weakref.finalize(self, self._staged.discard)
        self._file.write(_MAGIC)

    def put(self, before: StoredRows | None, rows: Rows) -> StoredRows:
        """Write rows behind those that are on disk already."""
        piece = self._write(rows.recent(key) for key in rows.column_names())
        self._file.flush()
        return _SpilledRows(self._file, before, rows, piece)

    def finish(self, rows: Rows) -> StoredTable:
        """Write what of a table is not in the file yet."""
        keys, stored = rows.column_names(), rows.stored
        pieces = []
        if isinstance(stored, _SpilledRows):
            if (before := stored.before) is not None:
                pieces.append(self._write(before.column(key) for key in keys))
            pieces += [*stored.pieces, self._write(rows.recent(key) for key in keys)]
        else:
            pieces.append(self._write(rows.column(key) for key in keys))
        return StoredTable(list(rows.names), pieces, [rows.extremes(name) for name in rows.names])

    def keep(self, header: Header) -> mmap.mmap:
        """Write the header and put the file in its place; its content."""
        written = msgspec.msgpack.encode(header)
        self._file.write(written)
        self._file.write(len(written).to_bytes(8, "little") + zlib.crc32(written).to_bytes(4, "little") + _MAGIC)
        self._file.flush()
        content = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._staged.publish()
        self._remove.detach()
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


class _SpilledRows:
    """Rows of a table whose cache is still being written. `before`: those that an older cache holds."""

    def __init__(self, file: IO[bytes], before: StoredRows | None, rows: Rows, piece: Piece) -> None:
        self.before: StoredRows | None = before
        self.pieces: list[Piece] = [piece]
        if isinstance(before, _SpilledRows):
            self.before, self.pieces = before.before, [*before.pieces, piece]
        self.rows = rows.rows + (before.rows if before is not None else 0)
        fresh = {name: rows.extremes(name) for name in rows.names}
        self.extremes = fresh if before is None else {name: before.extremes[name].join(fresh[name]) for name in fresh}
        self._file = file
        self._places = {key: place for place, key in enumerate(rows.column_names())}

    def column(self, key: str) -> NDArray[Any]:
        """One column, put together in memory."""
        return np.concatenate(list(self.arrays(key)))

    def arrays(self, key: str) -> Iterator[NDArray[Any]]:
        """The same, piece by piece."""
        if self.before is not None:
            yield from self.before.arrays(key)
        yield from (self._read(key, piece) for piece in self.pieces)

    def pick(self, key: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows of a column."""
        return self.column(key)[rows]

    def _read(self, key: str, piece: Piece) -> NDArray[Any]:
        place = self._places[key]
        if isinstance(ramp := piece.columns[place], Ramp):
            return ramp.rows(np.arange(piece.rows))
        size = piece.rows * _CELL
        try:
            content = read_at(self._file.fileno(), size, piece.offset_of(place))
        except (OSError, ValueError) as error:
            raise StoredRowsError("rows that were put aside cannot be read") from error
        if len(content) < size:
            raise StoredRowsError("rows that were put aside are gone")
        return np.frombuffer(content, dtype=column_type(key))
