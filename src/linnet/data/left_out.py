"""Files of a data set that were left out, in one sentence."""

from __future__ import annotations

import os
from collections.abc import Sequence

from linnet.board import words

_NAMED = 5


def left_out_sentence(files: Sequence[str]) -> str:
    """`2 files left out: a.gz: gzip …; b.txt: not UTF-8`; an empty string for none."""
    if not files:
        return ""
    rest = f"; and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    named = words.plain("; ".join(files[:_NAMED]))
    return f"{len(files)} file{'s' if len(files) > 1 else ''} left out: {named}{rest}"


def printable(path: str | os.PathLike[str]) -> str:
    """A path as text that can be encoded: bytes that are no UTF-8 are shown as U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")
