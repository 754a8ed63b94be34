"""Opening a file that is one, and reading at a place of it, on every system."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

BINARY = getattr(os, "O_BINARY", 0)  # Windows would otherwise translate line ends
BOM = b"\xef\xbb\xbf"  # some editors put it before the first line
_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # a pipe would otherwise hold its reader until somebody writes

if hasattr(os, "pread"):
    read_at = os.pread
else:  # Windows: the descriptors here are private to their reader, so moving their position harms nobody

    def read_at(fd: int, length: int, offset: int, /) -> bytes:
        """`length` bytes from `offset`; fewer at the end of the file."""
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; an OSError for pipes, devices, sockets and folders, and never a wait."""
    fd = os.open(path, flags | BINARY | _NO_WAITING, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd


def is_file(path: str | Path) -> bool:
    """Is there a regular file? No, too, where it may not be asked (`Path.is_file` raises there)."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | Path) -> bool:
    """Is there a folder? No, too, where it may not be asked."""
    return os.path.isdir(path)  # noqa: PTH112


def ends_inside_a_line(fd: int) -> bool:
    """The file's last line has no end: its writer was killed inside it."""
    size = os.fstat(fd).st_size
    return size > 0 and read_at(fd, 1, size - 1) != b"\n"
