"""Token arrays of several files, read as one array; and telling the system which of their pages come next."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

_ADVICE = getattr(mmap, "MADV_WILLNEED", None)  # Linux and macOS; elsewhere a page is fetched when it is read
_PAGE = mmap.PAGESIZE


class Segment(NamedTuple):
    """Tokens of one file, memory-mapped; they begin at byte `start` of the map."""

    tokens: NDArray[Any]
    mapped: mmap.mmap
    start: int

    def fetch(self, first: int, count: int) -> None:
        """Let the system read some tokens from the disk, without waiting for them."""
        if _ADVICE is None or count <= 0:
            return
        width = self.tokens.itemsize
        begin = (self.start + first * width) // _PAGE * _PAGE
        end = min(self.start + (first + count) * width, len(self.mapped))
        with suppress(OSError, ValueError):  # advice that is not taken costs time alone
            self.mapped.madvise(_ADVICE, begin, end - begin)


class SegmentedTokens:
    """One array over the tokens of several files: `tokens[5]`, `tokens[2:9]`, `tokens[positions]`, `len(tokens)`."""

    def __init__(self, segments: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> None:
        # Plain arrays: a slice of a memmap object costs twenty times that of an array.
        self._segments = [np.asarray(segment) for segment in segments]
        self._ends = np.cumsum([len(segment) for segment in segments], dtype=np.int64)
        self._starts = self._ends - [len(segment) for segment in segments]
        self.dtype = dtype

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def shape(self) -> tuple[int]:
        """As of an array of one dimension."""
        return (len(self),)

    def __getitem__(self, index: int | slice | NDArray[Any]) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self.rows(np.array([start], np.int64), max(0, stop - start))[0]
            return self[np.arange(start, stop, step)]
        positions = np.asarray(index)
        if positions.dtype == np.bool_:
            positions = np.flatnonzero(positions)
        positions = np.where(positions < 0, positions + len(self), positions)
        if positions.size and not (positions.min() >= 0 and positions.max() < len(self)):
            raise IndexError(f"a position is outside the {len(self)} tokens")
        numbers = np.searchsorted(self._ends, positions, side="right")
        values = np.empty(positions.shape, self.dtype)
        for number in np.unique(numbers).tolist():
            inside = numbers == number
            values[inside] = self._segments[number][positions[inside] - self._starts[number]]
        return values[()]

    def rows(self, first_N: NDArray[np.int64], length: int) -> NDArray[Any]:
        """`length` tokens from each of some positions on [N, length]; all of them must be inside."""
        rows_NS = np.empty((len(first_N), length), self.dtype)
        numbers = np.searchsorted(self._ends, first_N, side="right")
        for row, position, number in zip(rows_NS, first_N.tolist(), numbers.tolist(), strict=True):
            done = 0
            while done < length:  # most rows lie in one segment
                inside = position + done - int(self._starts[number])
                piece = self._segments[number][inside : inside + length - done]
                row[done : done + len(piece)] = piece
                done, number = done + len(piece), number + 1
        return rows_NS

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """All tokens in memory, as another type."""
        return np.concatenate([segment.astype(dtype) for segment in self._segments] or [np.empty(0, dtype)])

    def tolist(self) -> list[int]:
        """All tokens as numbers of Python's."""
        return [token for segment in self._segments for token in segment.tolist()]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.astype(self.dtype if dtype is None else dtype)

    def __eq__(self, other: ArrayLike | object) -> Any:
        return np.asarray(self) == np.asarray(other)

    __hash__ = None  # type: ignore[assignment]
