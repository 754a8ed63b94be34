"""A series of any length on a grid of so many columns: the minimum, the maximum and the mean of each, of all rows.

So a spike of a single step in a million is there at every width. Empty columns are NaN.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Floats
from linnet.board.web.row_blocks import RowBlocks
from linnet.board.web.smoothing import SmoothedLine

Floats32 = NDArray[np.float32]


@dataclass(frozen=True)
class Grid:
    """`points` columns of equal width from `begin` to `end`; column i is [begin + i·dx, begin + (i + 1)·dx).

    What lies at `end` belongs to the last one.
    """

    begin: float
    end: float
    points: int

    def edges(self) -> Floats:
        """Where columns begin, and the end of the last."""
        return np.linspace(self.begin, self.end, self.points + 1)


class Buckets(NamedTuple):
    """A value a column of the grid; `smooth` where a smoothed line was given."""

    low: Floats32
    high: Floats32
    mean: Floats32
    smooth: Floats32 | None

    def columns(self) -> list[tuple[str, Floats32]]:
        """Those there are, by name."""
        return [(name, column) for name, column in self._asdict().items() if column is not None]


class Placed:
    """Rows in the order of their place on an axis. `order`: their numbers in the series; None where that is the same.

    Rows that have no place (NaN) are left out.
    """

    def __init__(self, x: Floats) -> None:
        self.order: NDArray[np.int64] | None = None
        with np.errstate(invalid="ignore"):
            in_order = bool(np.all(x[1:] >= x[:-1])) and (not len(x) or bool(np.isfinite(x[0]) and np.isfinite(x[-1])))
        if not in_order:
            known = np.flatnonzero(np.isfinite(x))
            self.order = known[np.argsort(x[known], kind="stable")]
            x = x[self.order]
        self.x = x

    def part(self, after: float, until: float) -> Placed:
        """The rows that lie above one place and up to another, with the numbers that they have in the whole series."""
        begin, end = (int(row) for row in np.searchsorted(self.x, (after, until), "right"))
        part = copy(self)
        part.x = self.x[begin:end]
        if self.order is not None:
            part.order = self.order[begin:end]
        elif begin:
            part.order = np.arange(begin, end)
        return part

    def pick(self, column: NDArray[np.float64], begin: int, end: int) -> Floats:
        """Some rows of a column of the series, in the order of the axis."""
        return column[begin:end] if self.order is None else column[self.order[begin:end]]

    def range(self, begin: float, end: float) -> tuple[int, int]:
        """The rows that lie between two places, both included."""
        return int(np.searchsorted(self.x, begin, "left")), int(np.searchsorted(self.x, end, "right"))


def reduced(
    placed: Placed, value: Floats, grid: Grid, smooth: SmoothedLine | None = None, blocks: RowBlocks | None = None
) -> Buckets:
    """The rows of a series within a grid, by column. `value`, `smooth`, `blocks` go by the rows of the series."""
    bounds = np.searchsorted(placed.x, grid.edges(), "left")
    bounds[-1] = np.searchsorted(placed.x, grid.end, "right")
    begin, end = int(bounds[0]), int(bounds[-1])
    used = np.flatnonzero(bounds[1:] > bounds[:-1])
    starts = bounds[used] - begin
    stretches = np.append(bounds[used], end)
    of_blocks = blocks.reduce(stretches) if blocks is not None and placed.order is None else None
    if of_blocks is not None:
        parts = of_blocks.low, of_blocks.high, of_blocks.sum / np.diff(stretches)
    else:
        parts = _extremes(placed.pick(value, begin, end), starts)
    low, high, mean = (_spread(part, used, grid.points) for part in parts)
    if smooth is None:
        return Buckets(low, high, mean, None)
    sums = None if of_blocks is None else of_blocks.sum
    smoothed = smooth.means(stretches, sums) if placed.order is None and len(used) else None
    if smoothed is None:
        line = smooth.rows(begin, end) if placed.order is None else placed.pick(smooth.whole(), begin, end)
        smoothed = _means(line, starts)
    return Buckets(low, high, mean, _spread(smoothed, used, grid.points))


def _extremes(value: Floats, starts: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    if not len(starts):
        return np.empty(0), np.empty(0), np.empty(0)
    if np.isfinite(value).all():
        low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
        return low, high, _means(value, starts)
    shown = np.where(np.isfinite(value), value, np.nan)
    return np.fmin.reduceat(shown, starts), np.fmax.reduceat(shown, starts), _means(value, starts)


def _means(value: Floats, starts: NDArray[np.int64]) -> Floats:
    """The mean of the finite rows of each column."""
    if not len(starts):
        return np.empty(0)
    finite = np.isfinite(value)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if finite.all():
            counts = np.diff(np.append(starts, len(value)))
            return np.asarray(np.add.reduceat(value, starts) / counts)
        counts = np.add.reduceat(finite.astype(np.int64), starts)
        return np.asarray(np.add.reduceat(np.where(finite, value, 0.0), starts) / counts)


def _spread(part: Floats, used: NDArray[np.int64], points: int) -> Floats32:
    """The values of columns that have rows, among those that have none."""
    column = np.full(points, np.nan, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        column[used] = part
    return column
