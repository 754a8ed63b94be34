"""Events of a few kinds out of a long stream: lines that cannot be of these kinds are never decoded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from linnet.runs.events import Event, decode
from linnet.runs.lines import LineReader

_FOREIGN = {  # what munin calls them
    "artifact": ("media", "artifact_output", "artifact_input"),
    "note": ("notes",),
    "resume": ("resumed",),
}


def events_of_kinds(path: Path, kinds: tuple[str, ...], origin: float = 0.0) -> Iterator[Event]:
    """The events of these kinds in a stream as it is now, in order; damaged lines are passed over."""
    words = [f'"{word}"'.encode() for kind in kinds for word in (kind, *_FOREIGN.get(kind, ()))]
    reader = LineReader(path)
    try:
        generation = reader.generation
        while (block := reader.read_block()) and reader.generation == generation:
            for line in lines_with(block, words):
                event = decode(line, origin)
                if event is not None and event.kind in kinds:
                    yield event
    finally:
        reader.close()


def lines_with(block: bytes, words: list[bytes]) -> Iterator[bytes]:
    """The lines of a block that hold one of these words, in order."""
    begins: set[int] = set()
    for word in words:
        at = block.find(word)
        while at >= 0:
            begins.add(block.rfind(b"\n", 0, at) + 1)
            end = block.find(b"\n", at)
            at = block.find(word, end) if end >= 0 else -1
    for begin in sorted(begins):
        end = block.find(b"\n", begin)
        yield block[begin : end if end >= 0 else len(block)]
