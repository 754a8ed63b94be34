"""Lines of `tap`, `grad`, `drift` and `region` events, known by how they begin.

A training that is inspected writes thousands of them, and nobody who reads metrics wants one: passed over undecoded,
they let such a run open as fast as any. Lines that another writer has spelled otherwise are decoded, to the same end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_KINDS = ("tap", "grad", "drift", "region_enter", "region_exit")
INSPECTION_HEADS = tuple(f'{{"kind":"{kind}",'.encode() for kind in _KINDS)  # as Linnet writes them
SHORT_HEADS = tuple(dict.fromkeys(head[:12] for head in INSPECTION_HEADS))  # by which an array of lines is sorted
_ENDS = (b"}", b"}\r")
_REGION = b'{"kind":"region_'
_NEWLINE = ord("\n")
_RUN = re.compile(rb'^(?:\{"kind":"(?:tap|grad|drift|region_enter|region_exit)",[^\n]*\}\r?\n)+', re.MULTILINE)
_ANY = re.compile(rb'\n\{"kind":"(?:tap|grad|drift|region_)')


def is_inspection(line: bytes) -> bool:
    """Is it a whole line of such an event?"""
    return line.startswith(INSPECTION_HEADS) and line.endswith(_ENDS)


def without_inspection(block: bytes) -> bytes:
    """Whole lines without those of such events."""
    if not block.startswith(INSPECTION_HEADS) and _ANY.search(block) is None:
        return block
    return b"\n".join([line for line in block.split(b"\n") if not is_inspection(line)])


def inspection_runs(block: bytes) -> Iterator[tuple[int, int]]:
    """Where lines of such events follow each other among whole lines: from the first to behind the last."""
    for run in _RUN.finditer(block):
        yield run.span()


def own_regions(block: bytes) -> Iterator[bytes]:
    """The lines among these that tell of regions of a program's own: they have no time of a device (`us`)."""
    begin = block.find(_REGION)
    while begin >= 0:
        end = block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        if (begin == 0 or block[begin - 1] == _NEWLINE) and block.find(b'"us":', begin, end) < 0:
            yield block[begin:end]
        begin = block.find(_REGION, end)
