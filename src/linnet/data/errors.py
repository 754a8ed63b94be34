"""What can be wrong with data, said so that its owner can act."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from linnet.board import words
from linnet.errors import LinnetError

_NAMED = 5  # files that a sentence names; the rest is counted


class DataError(LinnetError):
    """Data that cannot be read, prepared or trained on as asked."""

    def __init__(self, problem: str) -> None:
        super().__init__(" ".join(problem.split()))


def reason(error: OSError) -> str:
    """What the system said, in its own words."""
    return error.strerror or str(error)


def printable(path: str | os.PathLike[str]) -> str:
    """A path as text that can be encoded: bytes that are no UTF-8 are shown as U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def left_out_sentence(files: Sequence[str]) -> str:
    """`2 files left out: a.gz: gzip …; b.txt: not UTF-8`; an empty string for none."""
    if not files:
        return ""
    rest = f"; and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    named = words.plain("; ".join(files[:_NAMED]))
    return f"{len(files)} file{'s' if len(files) > 1 else ''} left out: {named}{rest}"


def require_memory(path: Path, need: int, content: str, advice: str = "") -> None:
    """Refuse what would take more memory than is free, before it is unpacked; `content`: `60,000 images of 28 × 28`."""
    import psutil

    free = psutil.virtual_memory().available
    if need > free:
        raise DataError(
            f"{path}: {content} take {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free{advice and ': ' + advice}"
        )
