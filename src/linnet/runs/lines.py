"""Whole lines of a growing file, from its beginning or its end: the part of reading that knows files and no events."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from linnet.files import open_regular, read_at

LONGEST_LINE = 16 << 20  # bytes
BOM = b"\xef\xbb\xbf"  # some editors put it before the first line
FARTHEST = 16 << 20  # bytes that are read backwards at most
_BLOCK = 1 << 20
_FIRST_BLOCK, _LARGEST_BLOCK = 8 << 10, 2 << 20  # backwards
_GUARD = 64  # bytes before the position that must still be the same when the file has grown


class LineReader:
    """Reads a file that grows, and notices when it was replaced, cut or written anew.

    - `position`: bytes taken so far; `crc`: their checksum.
    - `generation` goes up when those bytes no longer stand in the file; reading then begins anew. A file that was
      replaced by a longer copy of itself (as `rsync` does) is simply read on.
    - `oversized`: lines longer than `longest_line`, passed over and never held whole.
    - `trouble`: why the file could not be read at the last look; empty when it could, or was never there.
    - `fd`: its descriptor while it is open, else -1; `in_long_line`: the position is inside a line that is passed over.
    """

    block_bytes = _BLOCK  # read at once
    longest_line = LONGEST_LINE

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self.position = 0
        self.crc = 0
        self.oversized = 0
        self.trouble = ""
        self.fd = -1
        self._identity: tuple[int, int] | None = None
        self._guard = b""
        self._pending = bytearray()  # the unfinished last line: read, not taken
        self.in_long_line = False

    @property
    def unfinished(self) -> int:
        """Bytes of the last line, which has no end yet."""
        return len(self._pending)

    def unread(self) -> int:
        """About how many bytes stand behind those taken; 0 where the file cannot be looked at."""
        try:
            return max(0, self.path.stat().st_size - self.position)
        except OSError:
            return 0

    def read_block(self) -> bytes:
        """The next whole lines, up to about a megabyte; empty when there is nothing new. Never raises."""
        try:
            self._look()
            block = self._next_block()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError) and not self.position
            self.trouble = "" if missing else error.strerror or str(error)
            self.close()
            return b""
        self.trouble = ""
        return block

    def skip_to(self, position: int, crc: int, oversized: int = 0) -> None:
        """Begin behind bytes that the caller has read before and checked; `oversized`: lines passed over in them."""
        self.position, self.crc, self.oversized = position, crc, oversized

    def close(self) -> None:
        """Let go of the file; reading may go on later."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()

    def _next_block(self) -> bytes:
        while chunk := read_at(self.fd, self.block_bytes, self.position + len(self._pending)):
            cut = chunk.rfind(b"\n") + 1
            if self.in_long_line:
                length = chunk.find(b"\n") + 1 or len(chunk)
                self.in_long_line = chunk[length - 1] != 0x0A
                self._take(chunk[:length])
            elif cut:
                block = bytes(self._pending) + chunk[:cut] if self._pending else chunk[:cut]
                at_start = self.position == 0
                self._take(block)
                if len(chunk) < self.block_bytes:  # else it is read again, with what follows: cheaper than joining them
                    self._pending[:] = chunk[cut:]
                return block.removeprefix(BOM) if at_start else block
            else:
                self._pending += chunk
                if len(self._pending) > self.longest_line:
                    self.in_long_line = True
                    self.oversized += 1
                    self._take(bytes(self._pending))
        return b""

    def _take(self, taken: bytes) -> None:
        self._pending.clear()
        self.position += len(taken)
        self.crc = zlib.crc32(taken, self.crc)
        self._guard = (self._guard + taken[-_GUARD:])[-_GUARD:]

    def _look(self) -> None:
        """Open the file where that is needed, and begin anew when what was read of it no longer stands."""
        status = self.path.stat()
        identity = (status.st_dev, status.st_ino)
        read_to = self.position + len(self._pending)
        same = self.fd >= 0 and identity == self._identity
        if same and (status.st_size == read_to or (status.st_size > read_to and self._guard_stands())):
            return
        self.close()
        self.fd = open_regular(self.path)
        first_time = self._identity is None
        self._identity = identity
        self._pending.clear()
        if not first_time and checksum(self.fd, self.position) != self.crc:
            self.generation += 1
            self.position = self.crc = self.oversized = 0
            self._guard = b""
            self.in_long_line = False

    def _guard_stands(self) -> bool:
        return read_at(self.fd, len(self._guard), self.position - len(self._guard)) == self._guard


class UnfitLinesError(Exception):
    """Lines that are not to be read the short way."""


def split_lines(block: bytes) -> list[bytes]:
    """The lines of a block, without their ends and those that are empty."""
    return [line for line in block.split(b"\n") if line and not line.isspace()]


def is_one_a_line(objects: int, block: bytes) -> bool:
    """Is there one object in each line? A decoder takes two in a line, or one in two, just as well."""
    return block.count(b"\n") == objects == block.count(b"\n{") + block.startswith(b"{")


def checksum(fd: int, length: int) -> int | None:
    """The checksum of a file's first `length` bytes; None when it has fewer."""
    crc = offset = 0
    while offset < length:
        chunk = read_at(fd, min(_BLOCK, length - offset), offset)
        if not chunk:
            return None
        crc = zlib.crc32(chunk, crc)
        offset += len(chunk)
    return crc


def ends_inside_a_line(fd: int) -> bool:
    """The file's last line has no end: its writer was killed inside it."""
    size = os.fstat(fd).st_size
    return size > 0 and read_at(fd, 1, size - 1) != b"\n"


# -- the two ends: what is asked most often of a run is how it stands now --------------------------------------------


_LONGEST_FIRST = 1 << 20  # bytes


def first_line(path: Path) -> bytes:
    """The first whole line; empty when there is none yet."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            line = file.readline(_LONGEST_FIRST)
    except OSError:
        return b""
    return line.removeprefix(BOM) if line.endswith(b"\n") else b""


def end_of_lines(path: Path) -> int:
    """Where the last whole line ends now; 0 when there is none."""
    with suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
        position, block = os.fstat(file.fileno()).st_size, _FIRST_BLOCK
        while position > 0:
            start = max(0, position - block)
            if cut := read_at(file.fileno(), position - start, start).rfind(b"\n") + 1:
                return start + cut
            position, block = start, _LARGEST_BLOCK
    return 0


def lines_backwards(
    path: str | Path, farthest: int = FARTHEST, end: int | None = None, longest_line: int = LONGEST_LINE
) -> Iterator[bytes]:
    """Whole lines, last first, without their line ends, until `farthest` bytes before the end.

    `end`: where to begin, instead of at the end of the last whole line. A line that reaches farther back than allowed
    is left out, and so is one that is too long to be held.
    """
    try:
        fd = open_regular(path)
    except OSError:
        return
    try:
        position = begin = os.fstat(fd).st_size if end is None else end
        block, held, too_long, at_line_end = _FIRST_BLOCK, b"", False, end is not None
        while position > 0 and begin - position < farthest:
            start = max(0, position - block)
            chunk = read_at(fd, position - start, start)
            if len(chunk) < position - start:
                return  # the file was cut meanwhile
            position, block = start, min(_LARGEST_BLOCK, block * 4)
            if not at_line_end:  # a line that has no end yet is none
                chunk = chunk[: chunk.rfind(b"\n") + 1]
                begin, at_line_end = position + len(chunk), bool(chunk)
                if not at_line_end:
                    continue
            held = chunk + held
            head, _, rest = held.partition(b"\n") if position > 0 else (b"", b"", held.removeprefix(BOM))
            lines = rest.split(b"\n")  # `rest` ends with a line end or is empty
            if too_long and len(lines) > 1:
                lines, too_long = lines[:-2], False
            for line in reversed(lines):
                if line and not line.isspace():
                    yield line.removesuffix(b"\r")
            if len(head) > longest_line:
                head, too_long = b"", True
            held = head + b"\n"
    except OSError:
        return
    finally:
        os.close(fd)
