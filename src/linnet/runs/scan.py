"""Events that are more than numbers, out of a long stream: plain steps are passed over without being decoded.

What was found is kept beside the stream (`.cache/events`), so that looking again takes what was written since. The file
is derived and disposable: it is used only while the stream is untouched, or goes on behind the bytes it was made of.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from linnet.files import open_regular, read_at, write_file
from linnet.runs.cache import stamp
from linnet.runs.events import Event, decode
from linnet.runs.folder import CACHE
from linnet.runs.inspection_lines import SHORT_HEADS
from linnet.runs.lines import BOM, LONGEST_LINE

KINDS = ("artifact", "checkpoint", "compare", "note", "resume", "sample")

_WORDS = [f'"{word}"'.encode() for word in (*KINDS, "media", "artifact_output", "artifact_input", "notes", "resumed")]
_BLOCK = 1 << 20
_HEAD = 12  # bytes by which the lines that make up most of a stream are known: steps, scalars, the machine's figures
_NUMBERS = [
    f'{{"{key}":{space}"{word}'.encode()[:_HEAD]
    for space in ("", " ")
    for key, words in (("kind", ("step", "scalars", "system", "heartbeat")), ("type", ("scalar", "metric")))
    for word in words
] + list(SHORT_HEADS)
_NAME = "events"
_MAGIC = b"linnet-events-1\n"
_KEPT_FROM = 1 << 20  # bytes of a stream that are worth keeping what was found in them
_MOST_KEPT = 16 << 20  # bytes of lines
_GUARD = 256  # bytes at the beginning and before the position that must still be the same


class _Header(msgspec.Struct):
    position: int
    stamp: list[int]
    guard: int
    crc: int


def events_of_kinds(path: Path, kinds: tuple[str, ...], origin: float = 0.0) -> Iterator[Event]:
    """The events of some of `KINDS` in a stream as it is now, in order; damaged lines are passed over."""
    for line in _lines(path):
        event = decode(line, origin)
        if event is not None and event.kind in kinds:
            yield event


def _lines(path: Path) -> list[bytes]:
    """Every line that may be of these kinds."""
    try:
        file = os.fdopen(open_regular(path), "rb", buffering=0)
    except OSError:
        return []
    with file:
        before = stamp(path)
        position, lines = _kept(path, file, before)
        begin, kept_bytes = position, sum(map(len, lines))
        for block, position in _blocks(file, begin):  # noqa: B007 (the last position is used below)
            matching = [line for line in _other_lines(block) if any(word in line for word in _WORDS)]
            kept_bytes += sum(map(len, matching))
            lines += matching
        if position - begin >= _KEPT_FROM and kept_bytes <= _MOST_KEPT:
            body = b"".join(line + b"\n" for line in lines)
            header = _Header(position, before, _guard(file, position), zlib.crc32(body))
            with suppress(OSError):  # a folder that cannot be written has no cache
                target = path.parent / CACHE / _NAME
                target.parent.mkdir(exist_ok=True)
                write_file(target, b"".join((_MAGIC, msgspec.json.encode(header), b"\n", body)), sync=False)
        return lines


def _kept(path: Path, file: BinaryIO, before: list[int]) -> tuple[int, list[bytes]]:
    """What was found before: up to which position, and the lines. Nothing where the stream may be another."""
    try:
        with os.fdopen(open_regular(path.parent / CACHE / _NAME), "rb") as kept:
            content = kept.read(_MOST_KEPT + (1 << 16))
        magic, head, body = content.split(b"\n", 2)
        header = msgspec.json.decode(head, type=_Header)
    except (OSError, ValueError):  # msgspec's errors too
        return 0, []
    if magic + b"\n" != _MAGIC or zlib.crc32(body) != header.crc or header.position < 0 or not before:
        return 0, []
    same = header.stamp == before or (before[0] >= header.position and _guard(file, header.position) == header.guard)
    return (header.position, body.split(b"\n")[:-1]) if same else (0, [])


def _guard(file: BinaryIO, position: int) -> int:
    begin = max(0, position - _GUARD)
    first = read_at(file.fileno(), min(_GUARD, position), 0)
    return zlib.crc32(first + read_at(file.fileno(), position - begin, begin))


def _blocks(file: BinaryIO, begin: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines, a megabyte at a time, and where each block ends; lines too long for a reader are left out."""
    position, carried, too_long = begin, b"", False
    while piece := read_at(file.fileno(), _BLOCK, position + len(carried)):
        whole, newline, end = piece.rpartition(b"\n")
        if newline:
            block = carried + whole + b"\n"
            position += len(block)
            yield (block.partition(b"\n")[2] if too_long else block), position
            carried, too_long = b"", False
        carried += end if newline else piece
        if len(carried) > LONGEST_LINE:
            too_long = True
            position, carried = position + len(carried), b""


def _other_lines(block: bytes) -> Iterator[bytes]:
    """The lines of a block that do not begin as lines of numbers do."""
    data = np.frombuffer(block.removeprefix(BOM), np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if not len(ends):
        return
    begins = np.append(0, ends[:-1] + 1)
    padded = np.append(data, np.zeros(_HEAD, np.uint8))
    heads = padded[begins[:, None] + np.arange(_HEAD)].view(f"S{_HEAD}").ravel()
    others = np.arange(len(heads))
    for head in _NUMBERS:
        others = others[heads[others] != head]
    for at in others.tolist():
        yield data[begins[at] : ends[at]].tobytes()
