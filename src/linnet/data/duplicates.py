"""Documents that are there twice: equal ones by a hash, nearly equal ones by MinHash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from linnet.data.documents import Passage
from linnet.data.errors import DataError
from linnet.data.minhash import EMPTY, Sketches, similar_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

THRESHOLD = 0.8  # of the Jaccard similarity from which on two documents are nearly equal
_NAMED = 1000  # duplicates that are told by name


class DocumentName(msgspec.Struct, array_like=True, frozen=True):
    """A document of a corpus: the number of its file, and which document of that file it is, from 1."""

    file: int
    number: int


class Duplicate(msgspec.Struct, array_like=True, frozen=True):
    """A document that is like an earlier one."""

    document: DocumentName
    earlier: DocumentName
    is_equal: bool


class Duplicates(msgspec.Struct):
    """How many documents are like an earlier one, how many bytes of text they have, and the first thousand by name."""

    equal: int = 0
    near: int = 0
    bytes: int = 0
    named: list[Duplicate] = []

    @property
    def count(self) -> int:
        """All of them."""
        return self.equal + self.near


def check_threshold(threshold: float) -> None:
    """Refuse a similarity that means nothing."""
    if not 0.5 <= threshold <= 1:
        raise DataError(
            f"`dedup_threshold={threshold:g}`: expected 0.5 to 1, the share of five-word runs that two documents have"
            " in common; 1 drops equal documents only"
        )


def without(passages: Iterable[Passage], dropped: NDArray[np.bool_]) -> Iterator[Passage]:
    """The passages of documents that are not dropped."""
    document = -1
    for passage in passages:
        document += passage.opens
        if not dropped[document]:
            yield passage


class DuplicateFinder:
    """Takes a corpus passage by passage, then says which documents are like an earlier one.

    It holds some 300 bytes a document. `threshold` 1: equal documents only.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        check_threshold(threshold)
        self._threshold = threshold
        self._sketches = Sketches() if threshold < 1 else None
        self._digests: list[bytes] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self._sizes: list[int] = []
        self._files: list[int] = []

    @property
    def count(self) -> int:
        """Documents that were taken."""
        return len(self._sizes)

    def add(self, passage: Passage, file: int) -> None:
        """The next passage, of the file of this number."""
        content = passage.text.encode("utf-8")
        if passage.opens:
            self._end_document()
            self._sizes.append(0)
            self._files.append(file)
        self._digest.update(content)
        self._sizes[-1] += len(content)
        if self._sketches is not None:
            self._sketches.add(content, len(self._sizes) - 1)

    def found(self) -> tuple[NDArray[np.bool_], Duplicates]:
        """Which documents are to be dropped, by their number, and what is told of them. Of each group the first stays.

        Nearly equal documents form a group where they hang together: a is like b and b like c.
        """
        self._end_document()
        count = len(self._sizes)
        numbers = np.arange(count)
        if not count:
            return np.zeros(0, np.bool_), Duplicates()
        equal_to = _first_of_equals(np.frombuffer(b"".join(self._digests), np.uint64).reshape(count, 2))
        is_equal = equal_to != numbers
        first = equal_to
        if self._sketches is not None:
            keys, signatures = self._sketches.finished()
            first = numbers.copy()
            for band in range(keys.shape[1]):
                candidates = np.flatnonzero(~is_equal & (first == numbers) & (keys[:, 0] != EMPTY))
                for earlier, later in similar_pairs(keys, signatures, candidates, band, self._threshold):
                    _join(first, earlier, later)
            first = _roots(first)[equal_to]
        dropped = first != numbers
        sizes = np.asarray(self._sizes, np.int64)
        names = self._names()
        named = [
            Duplicate(names(number), names(int(first[number])), bool(is_equal[number]))
            for number in np.flatnonzero(dropped)[:_NAMED].tolist()
        ]
        near = dropped & ~is_equal
        return dropped, Duplicates(int(is_equal.sum()), int(near.sum()), int(sizes[dropped].sum()), named)

    def _end_document(self) -> None:
        if len(self._digests) < len(self._sizes):
            self._digests.append(self._digest.digest())
            self._digest = hashlib.blake2b(digest_size=16)

    def _names(self) -> Callable[[int], DocumentName]:
        files = np.asarray(self._files)
        starts = np.flatnonzero(np.r_[True, files[1:] != files[:-1]])

        def name(number: int) -> DocumentName:
            start = starts[np.searchsorted(starts, number, "right") - 1]
            return DocumentName(self._files[number], number - int(start) + 1)

        return name


def _first_of_equals(digests: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each digest the number of the first that is equal to it."""
    order = np.lexsort((np.arange(len(digests)), digests[:, 1], digests[:, 0]))
    is_first = np.r_[True, (digests[order[1:]] != digests[order[:-1]]).any(axis=1)]
    firsts = order[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
    equal_to = np.empty(len(digests), np.int64)
    equal_to[order] = firsts
    return equal_to


def _join(first: NDArray[np.int64], left: int, right: int) -> None:
    """Make one group of two: the earliest of both leads it."""
    while first[left] != left:
        left = int(first[left])
    while first[right] != right:
        right = int(first[right])
    first[max(left, right)] = min(left, right)


def _roots(first: NDArray[np.int64]) -> NDArray[np.int64]:
    while not np.array_equal(first, roots := first[first]):
        first = roots
    return first
