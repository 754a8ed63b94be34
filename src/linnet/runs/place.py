"""Reading at a place of an open file, on every system."""

from __future__ import annotations

import os

BINARY = getattr(os, "O_BINARY", 0)  # Windows would otherwise translate line ends

if hasattr(os, "pread"):
    read_at = os.pread
else:  # Windows: the descriptors here are private to their reader, so moving their position harms nobody

    def read_at(fd: int, length: int, offset: int, /) -> bytes:
        """`length` bytes from `offset`; fewer at the end of the file."""
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)


def ends_inside_a_line(fd: int) -> bool:
    """The file's last line has no end: its writer was killed inside it."""
    size = os.fstat(fd).st_size
    return size > 0 and read_at(fd, 1, size - 1) != b"\n"
