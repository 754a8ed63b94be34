"""Lines of `tap`, `grad`, `drift` and `region` events, known by how they begin.

A training that is inspected writes thousands of them, and nobody who reads metrics wants one: passed over undecoded,
they let such a run open as fast as any. Lines that another writer has spelled otherwise are decoded, to the same end.
"""

from __future__ import annotations

import re

_KINDS = ("tap", "grad", "drift", "region_enter", "region_exit")
LOOK_HEADS = tuple(f'{{"kind":"{kind}",'.encode() for kind in _KINDS)  # as Linnet writes them
SHORT_HEADS = tuple(dict.fromkeys(head[:12] for head in LOOK_HEADS))  # by which an array of lines is sorted
_ENDS = (b"}", b"}\r")
_REGION = b'{"kind":"region_'
_ANY = re.compile(rb'\n\{"kind":"(?:tap|grad|drift|region_)')


def is_look(line: bytes) -> bool:
    """Is it a whole line of such an event?"""
    return line.startswith(LOOK_HEADS) and line.endswith(_ENDS)


def without_looks(block: bytes) -> bytes:
    """Whole lines without those of such events."""
    if not block.startswith(LOOK_HEADS) and _ANY.search(block) is None:
        return block
    return b"\n".join([line for line in block.split(b"\n") if not is_look(line)])


def own_regions(block: bytes) -> list[bytes]:
    """The lines among these that tell of regions of a program's own: they have no time of a device (`us`)."""
    if b'"region_' not in block:
        return []
    return [line for line in block.split(b"\n") if line.startswith(_REGION) and b'"us":' not in line]
