"""Reading a stream from its end: what is asked most often of a run is how it stands now."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from linnet.runs.place import BINARY, read_at

_FIRST_BLOCK = 8 << 10
_FARTHEST = 16 << 20


def lines_backwards(path: Path, farthest: int = _FARTHEST) -> Iterator[bytes]:
    """Whole lines, last first, without their line ends, until `farthest` bytes before the end.

    An unfinished last line is left out; so is a line that reaches farther back than allowed.
    """
    try:
        fd = os.open(path, os.O_RDONLY | BINARY)
    except OSError:
        return
    try:
        end = position = os.fstat(fd).st_size
        block, held, unfinished = _FIRST_BLOCK, b"", True
        while position > 0 and end - position < farthest:
            start = max(0, position - block)
            held = read_at(fd, position - start, start) + held
            position, block = start, block * 4
            if unfinished:
                cut = held.rfind(b"\n") + 1
                if not cut:
                    continue
                held, unfinished = held[:cut], False  # what follows the last line end is still being written
            head, _, rest = held.partition(b"\n") if position > 0 else (b"", b"", held)
            for line in reversed(rest.split(b"\n")):
                if line and not line.isspace():
                    yield line.removesuffix(b"\r")
            held = head + b"\n" if position > 0 else b""
    except OSError:
        return
    finally:
        os.close(fd)


def first_line(path: Path, longest: int = 1 << 20) -> bytes:
    """The first whole line; empty when there is none yet."""
    try:
        with path.open("rb") as file:
            line = file.readline(longest)
    except OSError:
        return b""
    return line if line.endswith(b"\n") else b""
