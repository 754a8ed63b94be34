"""`SmoothedLine`: the exponential moving average over every row of a series, worked out only where a chart shows it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Floats, smooth

_NOTHING = 1e-25  # a weight below which rows do not count: less than a float tells apart, times a good deal
_WORTH = 4  # times fewer rows than all of them


class SmoothedLine:
    """The average yᵢ = α xᵢ + (1 - α) yᵢ₋₁, without bias to the first row. It forgets: few rows before yᵢ make it up.

    - `value`: every row; `whole`: gives yᵢ of all of them, for where that is less work, or rows are NaN.
    """

    def __init__(self, value: Floats, alpha: float, whole: Callable[[], Floats]) -> None:
        self._value, self._alpha = value, alpha
        self._reach = max(1, math.ceil(math.log(_NOTHING) / math.log1p(-alpha)))
        self.whole = whole

    def rows(self, begin: int, end: int) -> Floats:
        """The average at some rows."""
        first = max(0, begin - self._reach)
        part = self._value[first:end]
        if len(part) * _WORTH > len(self._value) or not np.isfinite(part).all():
            return self.whole()[begin:end]
        return smooth(part, self._alpha)[begin - first :]

    def means(self, bounds: NDArray[np.int64], sums: Floats | None = None) -> Floats | None:
        """The mean of the average over the rows from each bound to the next; None where `whole` is needed.

        `sums`: of the rows themselves, where they are known; then all rows are finite.
        With the sums of both sides, Σy = Σx - (1 - α)/α · (the last y - the y before the first): only these are needed.
        """
        begin, end = int(bounds[0]), int(bounds[-1])
        if len(bounds) * self._reach * _WORTH > end - begin:
            return None
        if sums is None and not np.isfinite(self._value[max(0, begin - self._reach) : end]).all():
            return None
        means = np.empty(len(bounds) - 1)
        early = int(np.searchsorted(bounds[:-1], self._reach))  # stretches of which the first rows' weights sum to less
        if early:
            stop = int(bounds[early])
            line = smooth(self._value[:stop], self._alpha)[begin:]
            means[:early] = np.add.reduceat(line, bounds[:early] - begin) / np.diff(bounds[: early + 1])
        later = bounds[early:]
        if len(later) > 1:
            rows = np.add.reduceat(self._value[:end], later[:-1]) if sums is None else sums[early:]
            lost = (1.0 - self._alpha) / self._alpha * np.diff(self._at(later - 1))
            means[early:] = (rows - lost) / np.diff(later)
        return means if np.isfinite(means).all() else None

    def _at(self, rows: NDArray[np.int64]) -> Floats:
        """The average at rows that have at least `reach` before them, each from these alone."""
        lags = np.arange(self._reach)
        weights = self._alpha * np.exp(lags * math.log1p(-self._alpha))
        return np.asarray(self._value[np.maximum(rows[:, None] - lags, 0)] @ weights)
