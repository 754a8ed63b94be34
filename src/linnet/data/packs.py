"""Toy's packs: token ids without their text. A pack needs no tokenizer, and brings none.

Three kinds: little-endian i32 without a header (`.i32`, `.bin`); the same behind a header of 16 bytes (`TOYC`, version,
vocabulary, reserved); text of ids separated by blanks, one sequence a line.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.corpus import IDS, Corpus, Source
from linnet.data.errors import DataError, reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TOYC = struct.Struct("<4sIII")
_PART = 1 << 20  # tokens handled at a time
_PASSAGE = 1 << 14
_BLOCK = 1 << 20  # bytes of a text of ids handled at a time
_LONGEST_ID = 20  # digits


def pack_vocab(corpus: Corpus) -> int:
    """The vocabulary a pack was made for: as its header says, else one more than its largest id."""
    return max(_stated(source) or 1 + _largest(source) for source in corpus.sources)


def sequences(
    corpus: Corpus, vocab: int, end: int | None, passage: int | None = None
) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """The ids of a pack in pieces, and whether each opens a document; every id is checked against `vocab`.

    A document is a line of a text, or what stands between ids `end`; where that id is not known, a file. A long one
    comes in passages.
    """
    size = passage or _PASSAGE
    for source in corpus.sources:
        place, opens = 0, True
        for ids, closes in _parts(source):
            wrong = np.flatnonzero((ids < 0) | (ids >= vocab))
            if wrong.size:
                raise DataError(
                    f"corpus {source.path}: token {int(ids[wrong[0]])} at place {place + int(wrong[0])} is outside the"
                    f" vocabulary of {vocab}; give the vocabulary it was made with: --vocab or --tokenizer"
                )
            place += len(ids)
            ends = np.flatnonzero(ids == end) if end is not None else np.empty(0, np.int64)
            for first, last in zip([0, *(ends + 1).tolist()], [*ends.tolist(), len(ids)], strict=True):
                for start in range(first, last, size):
                    yield ids[start : min(start + size, last)], opens
                    opens = False
                opens = opens or last < len(ids)
            opens = opens or closes


def _stated(source: Source) -> int | None:
    """The vocabulary in a TOYC header; None where there is no header."""
    if source.kind == IDS:
        return None
    try:
        with source.path.open("rb") as file:
            head = file.read(_TOYC.size)
    except OSError as error:
        raise DataError(f"corpus {source.path}: the pack cannot be read: {reason(error)}") from None
    if head[:4] != b"TOYC":
        return None
    if len(head) < _TOYC.size:
        raise DataError(f"corpus {source.path}: the pack's header is cut short: 16 bytes expected, found {len(head)}")
    _, version, vocab, _ = _TOYC.unpack(head)
    if version != 1:
        raise DataError(f"corpus {source.path}: TOYC pack version {version} is not known; expected version 1")
    return int(vocab)


def _largest(source: Source) -> int:
    return max((int(ids.max()) for ids, _ in _parts(source) if ids.size), default=0)


def _parts(source: Source) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """The ids of a file, a stretch at a time, and whether a document ends with them, as a text's line does."""
    try:
        if source.kind == IDS:
            yield from _lines(source)
            return
        start = 0 if _stated(source) is None else _TOYC.size
        size = source.path.stat().st_size - start
        if size % 4:
            raise DataError(f"corpus {source.path}: a pack holds ids of 4 bytes, but {size} bytes are no multiple of 4")
        if not size:
            raise DataError(f"corpus {source.path}: the pack holds no tokens")
        # Read, not mapped: a file that is cut short while it is mapped ends the process with a bus error.
        with source.path.open("rb") as file:
            file.seek(start)
            for first in range(0, size, 4 * _PART):
                wanted = min(4 * _PART, size - first)
                block = file.read(wanted)
                if len(block) != wanted:
                    raise DataError(f"corpus {source.path}: the pack was cut short while it was read; start again")
                yield np.frombuffer(block, "<i4").astype(np.int64), False
    except OSError as error:
        raise DataError(f"corpus {source.path}: the pack cannot be read: {reason(error)}") from None


def _lines(source: Source) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """A line's ids; a long one comes in stretches, cut at a blank, so that memory stays bounded."""
    number, held = 1, b""  # `held`: digits that may go on in the next block
    with source.path.open("rb") as file:
        while block := file.readline(_BLOCK):
            whole = block.endswith(b"\n")
            text = held + block
            end = len(text.rstrip(b"0123456789")) if len(block) == _BLOCK else len(text)
            text, held = text[:end], text[end:]
            if len(held) > _LONGEST_ID:
                raise DataError(f"corpus {source.path}: line {number} is not a list of token ids")
            yield _numbers(source, number, text), whole
            number += whole
        if held:
            yield _numbers(source, number, held), True


def _numbers(source: Source, number: int, text: bytes) -> NDArray[np.int64]:
    try:
        return np.array([int(word) for word in text.split()], np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"corpus {source.path}: line {number} is not a list of token ids") from None
