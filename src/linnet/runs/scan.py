"""Events of a few kinds out of a long stream: lines of nothing but numbers are passed over without being decoded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from linnet.files import open_regular
from linnet.runs.events import Event, decode
from linnet.runs.lines import BOM, LONGEST_LINE

_BLOCK = 4 << 20
_FOREIGN = {  # what munin calls them
    "artifact": ("media", "artifact_output", "artifact_input"),
    "note": ("notes",),
    "resume": ("resumed",),
}
_HEAD = 12  # bytes by which the lines that make up most of a stream are known: steps, scalars, the machine's figures
_NUMBERS = [
    f'{{"{key}":{space}"{word}'.encode()[:_HEAD]
    for space in ("", " ")
    for key, words in (("kind", ("step", "scalars", "system", "heartbeat")), ("type", ("scalar", "metric")))
    for word in words
]


def events_of_kinds(path: Path, kinds: tuple[str, ...], origin: float = 0.0) -> Iterator[Event]:
    """The events of these kinds in a stream as it is now, in order; damaged lines are passed over."""
    words = [f'"{word}"'.encode() for kind in kinds for word in (kind, *_FOREIGN.get(kind, ()))]
    for block in _blocks(path):
        for line in _other_lines(block):
            if any(word in line for word in words):
                event = decode(line, origin)
                if event is not None and event.kind in kinds:
                    yield event


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time; lines that are too long for a reader are left out."""
    try:
        file = os.fdopen(open_regular(path), "rb", buffering=0)
    except OSError:
        return
    with file:
        rest, too_long = b"", False
        while piece := file.read(_BLOCK):
            whole, newline, piece = piece.rpartition(b"\n")
            if newline:
                yield (whole.partition(b"\n")[2] if too_long else rest + whole) + b"\n"
                rest, too_long = b"", False
            rest += piece
            if len(rest) > LONGEST_LINE:
                rest, too_long = b"", True


def _other_lines(block: bytes) -> Iterator[bytes]:
    """The lines of a block that do not begin as lines of numbers do."""
    data = np.frombuffer(block.removeprefix(BOM), np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    begins = np.append(0, ends[:-1] + 1)
    padded = np.append(data, np.zeros(_HEAD, np.uint8))
    heads = padded[begins[:, None] + np.arange(_HEAD)].view(f"S{_HEAD}").ravel()
    others = np.arange(len(heads))
    for head in _NUMBERS:
        others = others[heads[others] != head]
    for at in others.tolist():
        yield data[begins[at] : ends[at]].tobytes()
