"""Packs: token ids without their text, as Toy writes them. A pack needs no tokenizer, and brings none.

Three kinds: little-endian i32 without a header (`.i32`, `.bin`); the same behind a header of 16 bytes (`TOYC`, version,
vocabulary, reserved); text of ids separated by blanks, one sequence a line.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.errors import DataError, reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from linnet.data.corpus import Corpus
    from linnet.data.corpus_file import CorpusFile

PACK, IDS = "pack", "ids"
PACK_SUFFIXES = {PACK: (".i32", ".bin", ".toyc"), IDS: (".ids",)}
TOYC = b"TOYC"
_HEADER = struct.Struct("<4sIII")
_BLOCK = 1 << 20  # tokens, or bytes of a text of ids, that are read at a time
_PASSAGE = 1 << 14
_LONGEST_ID = 20  # digits


def pack_vocab(corpus: Corpus) -> int:
    """The vocabulary a pack was made for: as its header says, else one more than its largest id."""
    return max(_stated_vocab(file) or 1 + _largest_id(file) for file in corpus.files)


def id_passages(
    corpus: Corpus, vocab: int, end: int | None, size: int | None = None, *, block: int = _BLOCK
) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """The ids of a pack in passages, and whether each opens a document; every id is checked against `vocab`.

    A document is a line of a text, or what stands between ids `end`; where that id is not known, a file. A long one
    comes in passages of `size`. Files are read in blocks of `block`.
    """
    size = size or _PASSAGE
    for file in corpus.files:
        position, opens = 0, True
        for ids, closes in _blocks(file, block):
            wrong = np.flatnonzero((ids < 0) | (ids >= vocab))
            if wrong.size:
                raise DataError(
                    f"corpus {file.path}: token {int(ids[wrong[0]])} at place {position + int(wrong[0])} is outside the"
                    f" vocabulary of {vocab}; give the vocabulary it was made with: `vocab` or `tokenizer`"
                )
            position += len(ids)
            ends = np.flatnonzero(ids == end) if end is not None else np.empty(0, np.int64)
            for first, last in zip([0, *(ends + 1).tolist()], [*ends.tolist(), len(ids)], strict=True):
                for start in range(first, last, size):
                    yield ids[start : min(start + size, last)], opens
                    opens = False
                opens = opens or last < len(ids)
            opens = opens or closes


def _stated_vocab(file: CorpusFile) -> int | None:
    """The vocabulary in a TOYC header; None where there is no header."""
    if file.kind == IDS:
        return None
    try:
        with file.path.open("rb") as opened:
            header = opened.read(_HEADER.size)
    except OSError as error:
        raise DataError(f"corpus {file.path}: the pack cannot be read: {reason(error)}") from None
    if header[:4] != TOYC:
        return None
    if len(header) < _HEADER.size:
        raise DataError(f"corpus {file.path}: the pack's header is cut short: 16 bytes expected, found {len(header)}")
    _, version, vocab, _ = _HEADER.unpack(header)
    if version != 1:
        raise DataError(f"corpus {file.path}: TOYC pack version {version} is not known; expected version 1")
    return int(vocab)


def _largest_id(file: CorpusFile) -> int:
    return max((int(ids.max()) for ids, _ in _blocks(file, _BLOCK) if ids.size), default=0)


def _blocks(file: CorpusFile, block: int) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """The ids of a file, a block at a time, and whether a document ends with them, as a text's line does."""
    try:
        if file.kind == IDS:
            yield from _text_blocks(file.path, block)
            return
        start = 0 if _stated_vocab(file) is None else _HEADER.size
        size = file.path.stat().st_size - start
        if size % 4:
            raise DataError(f"corpus {file.path}: a pack holds ids of 4 bytes, but {size} bytes are no multiple of 4")
        if not size:
            raise DataError(f"corpus {file.path}: the pack holds no tokens")
        # Read, not mapped: a file that is cut short while it is mapped ends the process with a bus error.
        with file.path.open("rb") as opened:
            opened.seek(start)
            for first in range(0, size, 4 * block):
                wanted = min(4 * block, size - first)
                content = opened.read(wanted)
                if len(content) != wanted:
                    raise DataError(f"corpus {file.path}: the pack was cut short while it was read; start again")
                yield np.frombuffer(content, "<i4").astype(np.int64), False
    except OSError as error:
        raise DataError(f"corpus {file.path}: the pack cannot be read: {reason(error)}") from None


def _text_blocks(path: Path, block: int) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """A line's ids; a long one comes in blocks, cut at a blank, so that memory stays bounded."""

    def parsed(text: bytes) -> NDArray[np.int64]:
        try:
            return np.array([int(word) for word in text.split()], np.int64)
        except (ValueError, OverflowError):
            raise DataError(f"corpus {path}: line {number} is not a list of token ids") from None

    number, digits = 1, b""  # `digits`: the beginning of an id that may go on in the next block
    with path.open("rb") as file:
        while line := file.readline(block):
            is_whole = line.endswith(b"\n")
            text = digits + line
            end = len(text.rstrip(b"0123456789")) if len(line) == block else len(text)
            text, digits = text[:end], text[end:]
            if len(digits) > _LONGEST_ID:
                raise DataError(f"corpus {path}: line {number} is not a list of token ids")
            yield parsed(text), is_whole
            number += is_whole
        if digits:
            yield parsed(digits), True
