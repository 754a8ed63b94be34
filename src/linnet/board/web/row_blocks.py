"""`RowBlocks`: least, greatest and sum of every 64 rows of a series; a stretch of many rows is reduced from these."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Floats

_BLOCK = 64  # rows
_WORTH = 4  # blocks in a stretch, on average, from which they are fewer than its rows by enough
LEAST_ROWS = 1 << 16  # of a series whose rows take longer than a chart should wait for

Integers = NDArray[np.int64]


class Stretches(NamedTuple):
    """Of stretches of rows, one after the other."""

    low: Floats
    high: Floats
    sum: Floats


class RowBlocks:
    """The blocks of one series, as of so many rows. `finite`: all of its rows are, and no sum of a block overflows."""

    def __init__(self, value: Floats) -> None:
        self._value = value
        self._whole = len(value) // _BLOCK * _BLOCK
        blocks = value[: self._whole].reshape(-1, _BLOCK)
        with np.errstate(over="ignore", invalid="ignore"):
            # One block more, for stretches that end where the last does.
            self._low = np.append(blocks.min(axis=1), np.inf)
            self._high = np.append(blocks.max(axis=1), -np.inf)
            self._sum = np.append(blocks.sum(axis=1), 0.0)
        self.finite = bool(np.isfinite(self._sum).all() and np.isfinite(value[self._whole :]).all())

    def reduce(self, bounds: Integers) -> Stretches | None:
        """The rows from each bound to the next; None where they are to be looked at one by one."""
        begin, end = bounds[:-1], bounds[1:]
        first, last = -(-begin // _BLOCK), end // _BLOCK
        if not self.finite or not len(begin) or int(end[-1] - begin[0]) < len(begin) * _BLOCK * _WORTH:
            return None
        if bool((first >= last).any()):
            return None
        inside = np.stack([first, last], axis=1).ravel()
        low = np.minimum.reduceat(self._low, inside)[::2]
        high = np.maximum.reduceat(self._high, inside)[::2]
        total = np.add.reduceat(self._sum, inside)[::2]
        for rows, stop in ((begin, first * _BLOCK), (last * _BLOCK, end)):  # before the first block and after the last
            row = rows[:, None] + np.arange(_BLOCK)
            is_in = row < stop[:, None]
            value = self._value[np.minimum(row, len(self._value) - 1)]
            low = np.minimum(low, np.where(is_in, value, np.inf).min(axis=1))
            high = np.maximum(high, np.where(is_in, value, -np.inf).max(axis=1))
            total = total + np.where(is_in, value, 0.0).sum(axis=1)
        return Stretches(low, high, total) if np.isfinite(total).all() else None

    def rows_of(self, value: float) -> Integers:
        """The rows that have this value, the least or greatest of all."""
        within = np.flatnonzero((self._low[:-1] == value) | (self._high[:-1] == value))
        rows = (within[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        rows = np.append(rows, np.arange(self._whole, len(self._value)))
        return np.asarray(rows[self._value[rows] == value])
