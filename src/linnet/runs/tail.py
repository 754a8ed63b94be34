"""Reading a stream from its end: what is asked most often of a run is how it stands now."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from linnet.files import open_regular, read_at
from linnet.runs.lines import BOM, LONGEST_LINE

_FIRST_BLOCK = 8 << 10
_LARGEST_BLOCK = 2 << 20
FARTHEST = 16 << 20  # bytes that are read backwards at most


def end_of_lines(path: Path) -> int:
    """Where the last whole line ends now; 0 when there is none."""
    try:
        fd = open_regular(path)
    except OSError:
        return 0
    try:
        return _last_end(fd)
    except OSError:
        return 0
    finally:
        os.close(fd)


def lines_backwards(path: str | Path, farthest: int = FARTHEST, end: int | None = None) -> Iterator[bytes]:
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
            if len(head) > LONGEST_LINE:
                head, too_long = b"", True
            held = head + b"\n"
    except OSError:
        return
    finally:
        os.close(fd)


def first_line(path: Path, longest: int = 1 << 20) -> bytes:
    """The first whole line; empty when there is none yet."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            line = file.readline(longest)
    except OSError:
        return b""
    return line.removeprefix(BOM) if line.endswith(b"\n") else b""


def _last_end(fd: int) -> int:
    position, block = os.fstat(fd).st_size, _FIRST_BLOCK
    while position > 0:
        start = max(0, position - block)
        cut = read_at(fd, position - start, start).rfind(b"\n") + 1
        if cut:
            return start + cut
        position, block = start, _LARGEST_BLOCK
    return 0
