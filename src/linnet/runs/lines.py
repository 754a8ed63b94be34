"""Whole lines of a growing file, a block at a time: the part of reading that knows files and nothing of events."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from linnet.files import open_regular, read_at

LONGEST_LINE = 16 << 20  # a longer line is passed over and counted; it is never held whole
BLOCK = 1 << 20
BOM = b"\xef\xbb\xbf"  # some editors put it before the first line
_GUARD = 64  # bytes before the position that must still be the same when the file has grown


class LineReader:
    """Reads a file that grows, and notices when it was replaced, cut or written anew.

    - `position`: bytes taken so far; `crc`: their checksum.
    - `generation` goes up when those bytes no longer stand in the file; reading then begins anew. A file that was
      replaced by a longer copy of itself (as `rsync` does) is simply read on.
    - `oversized`: lines longer than `LONGEST_LINE`, passed over.
    - `last_mtime`: the file's time of change when it was last looked at.
    - `trouble`: why the file could not be read at the last look; empty when it could, or was never there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self.position = 0
        self.crc = 0
        self.oversized = 0
        self.last_mtime = 0.0
        self.trouble = ""
        self._fd = -1
        self._identity: tuple[int, int] | None = None
        self._guard = b""
        self._pending = bytearray()  # the unfinished last line: read, not taken
        self._in_long_line = False

    @property
    def unfinished(self) -> int:
        """Bytes of the last line, which has no end yet."""
        return len(self._pending)

    @property
    def at_line_start(self) -> bool:
        """False only inside a line too long to be kept."""
        return not self._in_long_line

    @property
    def descriptor(self) -> int:
        """That of the file, while it is open."""
        return self._fd

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
        """Begin behind bytes that the caller knows already and has checked, with so many lines too long in them."""
        self.position, self.crc, self.oversized = position, crc, oversized

    def close(self) -> None:
        """Let go of the file; reading may go on later."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _next_block(self) -> bytes:
        while chunk := read_at(self._fd, BLOCK, self.position + len(self._pending)):
            cut = chunk.rfind(b"\n") + 1
            if self._in_long_line:
                taken = chunk.find(b"\n") + 1 or len(chunk)
                self._in_long_line = chunk[taken - 1] != 0x0A
                self._take(chunk[:taken])
            elif cut:
                block = bytes(self._pending) + chunk[:cut] if self._pending else chunk[:cut]
                at_start = self.position == 0
                self._take(block)
                if len(chunk) < BLOCK:  # else it is read again, with what follows: cheaper than putting it together
                    self._pending[:] = chunk[cut:]
                return block.removeprefix(BOM) if at_start else block
            else:
                self._pending += chunk
                if len(self._pending) > LONGEST_LINE:
                    self._in_long_line = True
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
        there = self.path.stat()
        self.last_mtime = there.st_mtime
        identity = (there.st_dev, there.st_ino)
        read_to = self.position + len(self._pending)
        same = self._fd >= 0 and identity == self._identity
        if same and (there.st_size == read_to or (there.st_size > read_to and self._guard_stands())):
            return
        self.close()
        self._fd = open_regular(self.path)
        first_time = self._identity is None
        self._identity = identity
        self._pending.clear()
        if not first_time and checksum(self._fd, self.position) != self.crc:
            self._begin_anew()

    def _guard_stands(self) -> bool:
        return read_at(self._fd, len(self._guard), self.position - len(self._guard)) == self._guard

    def _begin_anew(self) -> None:
        self.generation += 1
        self.position = self.crc = self.oversized = 0
        self._guard = b""
        self._in_long_line = False


def checksum(fd: int, length: int) -> int | None:
    """The checksum of a file's first `length` bytes; None when it has fewer."""
    crc = offset = 0
    while offset < length:
        chunk = read_at(fd, min(BLOCK, length - offset), offset)
        if not chunk:
            return None
        crc = zlib.crc32(chunk, crc)
        offset += len(chunk)
    return crc


def ends_inside_a_line(fd: int) -> bool:
    """The file's last line has no end: its writer was killed inside it."""
    size = os.fstat(fd).st_size
    return size > 0 and read_at(fd, 1, size - 1) != b"\n"
