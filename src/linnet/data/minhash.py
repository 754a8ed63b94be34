"""MinHash sketches of documents, and the pairs of them that are nearly equal.

A document's shingles are its runs of five words. Each has a hash, and the document keeps the least one in each of 128
bins (one-permutation hashing); a bin without any takes the value of another (densification). The share of bins in which
two documents agree estimates their Jaccard similarity, to ± 0.04. Pairs worth comparing are those that agree in one of
16 bands of 8 bins (locality-sensitive hashing): of pairs of similarity 0.8 these are 95 %, of 0.9 all.

Words are what stands between blanks and punctuation, without upper case; a character of three or four bytes in UTF-8
(Chinese, Japanese, Korean, Thai, …) is a word of its own. All of it is integer arithmetic modulo 2^64: the same on
every machine.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Numbers = NDArray[np.int64]

EMPTY = np.uint64(2**64 - 1)  # the band keys of a document without words
_WORDS = 5
_BINS, _BANDS = 128, 16
_ROWS = _BINS // _BANDS
_VALUE_BITS = 41  # of a hash in its bin: 64, less 16 for the passage and 7 for the bin
_BATCH, _MOST_PASSAGES = 1 << 18, (1 << 16) - 1  # bytes and passages that are sketched at a time
_ATTEMPTS = 8  # of an empty bin to find one that is not, before it takes its neighbour's
_ROUNDS = 4  # leaders that the members of a band are held against
_BLANK = 32
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse
_WORD_BYTES = bytes(b + 32 if 65 <= b <= 90 else b if b >= 128 or chr(b).isalnum() else _BLANK for b in range(256))


class Sketches:
    """The sketches of documents, passage by passage: `add`, then `finished`."""

    def __init__(self) -> None:
        self._contents: list[bytes] = []
        self._documents: list[int] = []
        self._size = 0
        self._open: Hashes | None = None  # of the document that the last batch ended in
        self._open_document = -1
        self._keys: list[Hashes] = []
        self._signatures: list[NDArray[np.uint8]] = []

    def add(self, content: bytes, document: int) -> None:
        """A passage in UTF-8; documents are numbered from 0, in order."""
        self._contents.append(content)
        self._documents.append(document)
        self._size += len(content)
        if self._size >= _BATCH or len(self._contents) == _MOST_PASSAGES:
            self._sketch()

    def finished(self) -> tuple[Hashes, NDArray[np.uint8]]:
        """The keys of each document's bands, and a byte of each bin, which two documents are compared by."""
        self._sketch()
        if self._open is not None:
            self._close(self._open[None])
            self._open = None
        if not self._keys:
            return np.zeros((0, _BANDS), np.uint64), np.zeros((0, _BINS), np.uint8)
        return np.concatenate(self._keys), np.concatenate(self._signatures)

    def _sketch(self) -> None:
        """What was added since the last time; the last document may go on."""
        if not self._contents:
            return
        bins = _least_hashes(self._contents)
        documents = np.asarray(self._documents)
        starts = np.flatnonzero(np.r_[True, documents[1:] != documents[:-1]])
        if len(starts) < len(bins):
            bins = np.minimum.reduceat(bins, starts, axis=0)
        if self._open is not None:
            if documents[0] == self._open_document:
                bins[0] = np.minimum(bins[0], self._open)
            else:
                self._close(self._open[None])
        self._close(bins[:-1])
        self._open, self._open_document = bins[-1].copy(), int(documents[-1])
        self._contents, self._documents, self._size = [], [], 0

    def _close(self, bins: Hashes) -> None:
        if not len(bins):
            return
        is_empty = bins == EMPTY
        is_void = is_empty.all(axis=1)
        _densify(bins, is_empty & ~is_void[:, None])
        weights = _random(2, _ROWS)
        keys = _mixed((bins.reshape(-1, _ROWS, _BANDS) * weights[:, None]).sum(axis=1, dtype=np.uint64))
        keys[keys == EMPTY] = 0
        keys[is_void] = EMPTY
        self._keys.append(keys)
        self._signatures.append(bins.astype(np.uint8))


def _least_hashes(contents: list[bytes]) -> Hashes:
    """The least hash of each passage in each bin; EMPTY where there is none."""
    joined = b" ".join(contents).translate(_WORD_BYTES)
    letters = np.frombuffer(joined, np.uint8)
    if not joined.isascii():
        letters = _lowered(letters)
    lengths = np.fromiter(map(len, contents), np.int64, len(contents)) + 1  # with the blank between
    ends = np.cumsum(lengths)
    is_letter = letters != _BLANK
    is_start = is_letter.copy()
    is_start[1:] &= ~is_letter[:-1] | (letters[1:] >= 0xE0)
    starts = np.flatnonzero(is_start)
    bins = np.full((len(contents), _BINS), EMPTY, np.uint64)
    if not starts.size:
        return bins
    passage = np.searchsorted(ends, starts, "right")
    hashes, owners = _shingles(_word_hashes(letters, starts), passage)
    keys = (owners.astype(np.uint64) << np.uint64(48)) | (hashes >> np.uint64(16))
    keys.sort()
    cells = keys >> np.uint64(_VALUE_BITS)
    least = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]])
    bins.reshape(-1)[cells[least].astype(np.int64)] = keys[least] & np.uint64((1 << _VALUE_BITS) - 1)
    return bins


def _lowered(letters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """UTF-8 with its characters of two bytes (Latin, Greek, Cyrillic, …) in lower case."""
    leads = np.flatnonzero((letters >= 0xC2) & (letters <= 0xDF))
    leads = leads[leads < len(letters) - 1]
    pairs = (letters[leads].astype(np.int64) << 8) | letters[leads + 1]
    lowered, letters = np.take(_lower_pairs(), pairs), letters.copy()
    letters[leads], letters[leads + 1] = lowered >> 8, lowered & 255
    return letters


@cache
def _lower_pairs() -> NDArray[np.uint16]:
    """Of every two bytes those of the lower case, where they are a character."""
    table = np.arange(1 << 16, dtype=np.uint16)
    for code in range(0x80, 0x800):
        low = chr(code).lower().encode()
        if len(low) == 2:
            table[int.from_bytes(chr(code).encode())] = int.from_bytes(low)
    return table


def _word_hashes(letters: NDArray[np.uint8], starts: Numbers) -> Hashes:
    """A polynomial in the letters of each word; a blank counts nothing, so a word may be taken with those behind it."""
    powers, inverses = _powers(len(letters))
    return np.add.reduceat(np.take(_letter_values(), letters) * powers, starts) * inverses[starts]


def _shingles(words: Hashes, passage: Numbers) -> tuple[Hashes, Numbers]:
    """The hash of each run of five words within a passage, and that passage; one of fewer words is one shingle."""
    weights, count = _random(1, _WORDS), len(words)
    starts = np.zeros(0, np.int64)
    hashes = np.zeros(0, np.uint64)
    if count >= _WORDS:
        starts = np.flatnonzero(passage[: count - _WORDS + 1] == passage[_WORDS - 1 :])
        mixed = words[: count - _WORDS + 1] * weights[0]
        for k in range(1, _WORDS):
            mixed += words[k : count - _WORDS + 1 + k] * weights[k]
        hashes = mixed[starts]
    first = np.flatnonzero(np.r_[True, passage[1:] != passage[:-1]])
    sizes = np.diff(np.r_[first, count])
    short = first[sizes < _WORDS]
    lengths = sizes[sizes < _WORDS]
    joined = np.zeros(len(short), np.uint64)
    for k in range(_WORDS - 1):
        has = lengths > k
        joined[has] += words[short[has] + k] * weights[k]
    return _mixed(np.r_[hashes, joined]), np.r_[passage[starts], passage[short]]


def _densify(bins: Hashes, is_missing: NDArray[np.bool_]) -> None:
    """Give bins without a value that of another bin, chosen by the bin alone, so that equal sketches stay equal."""
    own = bins.copy().reshape(-1)
    missing = np.flatnonzero(is_missing)
    filled = bins.reshape(-1)
    for attempt in range(_ATTEMPTS):
        if not missing.size:
            return
        column = missing & (_BINS - 1)
        values = np.take(own, missing - column + np.take(_donors(attempt), column))
        has_value = values != EMPTY
        filled[missing[has_value]] = values[has_value]
        missing = missing[~has_value]
    if missing.size:  # few words: the next bin that has a value, round the end
        rows = np.unique(missing // _BINS)
        twice = np.tile(own.reshape(-1, _BINS)[rows], 2)
        places = np.where(twice != EMPTY, np.arange(2 * _BINS), 4 * _BINS)
        following = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]
        at = following[np.searchsorted(rows, missing // _BINS), missing % _BINS] % _BINS
        filled[missing] = own[missing // _BINS * _BINS + at]


def similar_pairs(
    keys: Hashes, signatures: NDArray[np.uint8], documents: Numbers, band: int, threshold: float
) -> list[tuple[int, int]]:
    """Pairs of `documents` that agree in a band and are nearly equal: the earlier one first.

    Within a band all are held against the first, and those that are unlike it against the first of them, a few times:
    never all against all.
    """
    pairs: list[tuple[int, int]] = []
    for _ in range(_ROUNDS):
        if len(documents) < 2:
            break
        order = documents[np.argsort(keys[documents, band], kind="stable")]
        sorted_keys = keys[order, band]
        is_first = np.r_[True, sorted_keys[1:] != sorted_keys[:-1]]
        leaders = order[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
        members = ~is_first
        order, leaders = order[members], leaders[members]
        alike = _agreement(signatures, order, leaders) >= threshold
        pairs += zip(leaders[alike].tolist(), order[alike].tolist(), strict=True)
        documents = np.sort(order[~alike])
    return pairs


def _agreement(signatures: NDArray[np.uint8], left: Numbers, right: Numbers) -> NDArray[np.float64]:
    """The share of bins in which documents agree."""
    shares = np.empty(len(left))
    for start in range(0, len(left), 1 << 14):
        part = slice(start, start + (1 << 14))
        shares[part] = (signatures[left[part]] == signatures[right[part]]).mean(axis=1)
    return shares


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of a value moves every bit of its hash."""
    values = values.copy()
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


@cache
def _random(stream: int, count: int) -> Hashes:
    """Odd numbers that are the same everywhere."""
    counted = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 32)
    return _mixed(counted * np.uint64(_BASE)) | np.uint64(1)


@cache
def _letter_values() -> Hashes:
    values = _random(0, 256).copy()
    values[_BLANK] = 0
    return values


@cache
def _donors(attempt: int) -> Numbers:
    """The bin that each bin takes its value from."""
    return (_random(3 + attempt, _BINS) >> np.uint64(57)).astype(np.int64)


_POWERS: list[tuple[Hashes, Hashes]] = []


def _powers(count: int) -> tuple[Hashes, Hashes]:
    """The powers of the base and of its inverse modulo 2^64, at least so many; kept, since every batch wants them."""
    if not _POWERS or len(_POWERS[0][0]) < count:
        size = max(2 * _BATCH, 1 << (count - 1).bit_length())
        tables = []
        for base in (_BASE, pow(_BASE, -1, 1 << 64)):
            powers = np.full(size, base, np.uint64)
            powers[0] = 1
            tables.append(np.multiply.accumulate(powers))
        _POWERS[:] = [(tables[0], tables[1])]
    powers, inverses = _POWERS[0]
    return powers[:count], inverses
