"""From the rows of a curve to the line that a picture needs: every extreme kept, no more points than pixels can show.

Rows are brought into columns of a pixel. Of a column stay the first, the least, the greatest and the last value (M4
aggregation), which draws the same pixels as all rows would. What is not finite breaks the line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Curve, Floats, is_smoothed, smooth
from linnet.board.figure.scales import Scale
from linnet.board.figure.scene import Points

CROWDED = 4  # rows in a column from which on the line is their mean, and a faint area how far they go
_POINT_ROOM = 12  # pixels for each row from which on each is drawn as a point
_DENSE = 32  # rows in a column from which on their exponential mean and their mean look the same


@dataclass(frozen=True)
class Trace:
    """A curve as it is drawn, in shares of the axes: 0, 0 is where they begin.

    - `line`: the rows, their mean where they are crowded, or the smoothed ones.
    - `extent`: outlines from the least to the greatest of each column, below a mean.
    - `rows`: the rows themselves, below a smoothed line.
    - `points`: where single rows stand, if there are few enough to be seen.
    """

    line: list[Points]
    extent: list[Points]
    rows: list[Points]
    points: Points
    end: tuple[float, float] | None


def trace(curve: Curve, x_scale: Scale, y_scale: Scale, columns: int, alpha: float = 1.0) -> Trace | None:
    """Bring a curve onto its axes, in as many columns as there are pixels; None where nothing of it is in sight.

    `alpha`: how much a new value weighs in the smoothed line; 1 for none.
    """
    x, low, high, mean = _in_order(curve, x_scale, y_scale)
    alpha = alpha if is_smoothed(len(x), alpha) else 1.0
    smoothed = smooth(mean, alpha) if alpha < 1.0 and curve.exact else mean
    inside = np.isfinite(mean) & (x >= x_scale.low) & (x <= x_scale.high)
    if not inside.any():
        return None
    begin, end = int(np.argmax(inside)), len(x) - int(np.argmax(inside[::-1]))
    first = max(0, begin - 1)  # one more at each side, for the line to the edge
    stretch = slice(first, min(len(x), end + 1))
    x, low, high, mean = x[stretch], low[stretch], high[stretch], mean[stretch]
    x = x_scale.share(x)
    known = int(np.isfinite(mean).sum())
    crowded = known > CROWDED * columns or not curve.exact
    groups = _Groups(x, mean, columns)
    last = np.flatnonzero(np.isfinite(mean) & (x <= 1.0 + 1e-9))[-1]
    extent: list[Points] = []
    rows: list[Points] = []
    if crowded:
        extent = groups.outlines(y_scale.share(low), y_scale.share(high))
        line = groups.means(y_scale.share(mean))
    else:
        line = groups.extremes(y_scale.share(mean))
    if alpha < 1.0:
        rows = [] if crowded else line
        y = y_scale.share(mean if known > _DENSE * columns else smoothed[stretch])
        line = groups.means(y) if known > columns else groups.extremes(y)
        end_y = float(y[last])
    else:
        end_y = float(line[-1][-1, 1]) if crowded and line else float(y_scale.share(mean[last : last + 1])[0])
    single = np.isfinite(mean) & (x >= -1e-9) & (x <= 1 + 1e-9) & (known <= columns // _POINT_ROOM)
    points = np.column_stack([x[single], y_scale.share(mean[single])])
    return Trace(line, extent, rows, points, (float(min(x[last], 1.0)), end_y))


def _in_order(curve: Curve, x_scale: Scale, y_scale: Scale) -> tuple[Floats, Floats, Floats, Floats]:
    """The rows that have an x, in its order, as the scales count them."""
    x = x_scale.counted(curve.x)
    at = np.flatnonzero(np.isfinite(x))
    if np.any(np.diff(x[at]) < 0):
        at = at[np.argsort(x[at], kind="stable")]
    mean = y_scale.counted(curve.mean[at])
    low = mean if curve.exact else y_scale.counted(curve.low[at])
    high = mean if curve.exact else y_scale.counted(curve.high[at])
    return x[at], np.where(np.isnan(low), mean, low), high, mean


class _Groups:
    """The finite rows by column, and where the line between two columns is broken."""

    def __init__(self, x: Floats, y: Floats, columns: int) -> None:
        finite = np.isfinite(y)
        self._at = np.flatnonzero(finite)
        self._x = x[self._at]
        piece = np.cumsum(~finite)[self._at]  # rows between which there is no other that is not finite have the same
        column = np.floor(np.clip(self._x, -0.5, 1.5) * columns).astype(np.int64)
        if len(self._at) <= 2 * columns:  # so few that each row may stay
            column = np.arange(len(self._at))
        self._starts = np.concatenate([[0], np.flatnonzero(np.diff(column)) + 1])
        self._ends = np.append(self._starts[1:], len(column)) - 1
        self._breaks = np.flatnonzero(piece[self._starts[1:]] != piece[self._ends[:-1]]) + 1

    def extremes(self, y: Floats) -> list[Points]:
        """First, least, greatest and last row of each column, in the order in which they stand."""
        y = y[self._at]
        if len(self._starts) == len(y):
            rows = np.arange(len(y))
            return self._pieces(np.column_stack([self._x[rows], y[rows]]), self._breaks)
        sizes = self._ends - self._starts + 1
        group = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((y, group))  # rows of a group by value
        least, greatest = order[self._starts], order[self._ends]
        chosen = np.sort(np.stack([self._starts, least, greatest, self._ends]), axis=0).T  # a row a column
        keep = np.concatenate([np.ones((len(chosen), 1), bool), np.diff(chosen, axis=1) > 0], axis=1)
        begins = np.concatenate([[0], np.cumsum(keep.sum(axis=1))[:-1]])
        rows = chosen[keep]
        return self._pieces(np.column_stack([self._x[rows], y[rows]]), begins[self._breaks])

    def means(self, y: Floats) -> list[Points]:
        """The mean of each column."""
        return self._pieces(self._mean_points(y), self._breaks)

    def outlines(self, low: Floats, high: Floats) -> list[Points]:
        """Around the least and the greatest of each column."""
        x = self._mean_points(low)[:, 0]
        least = np.minimum.reduceat(low[self._at], self._starts)
        greatest = np.maximum.reduceat(high[self._at], self._starts)
        upper = self._pieces(np.column_stack([x, greatest]), self._breaks)
        lower = self._pieces(np.column_stack([x, least]), self._breaks)
        return [np.concatenate([above, below[::-1]]) for above, below in zip(upper, lower, strict=True)]

    def _mean_points(self, y: Floats) -> Points:
        sizes = self._ends - self._starts + 1
        with np.errstate(over="ignore"):
            means = np.add.reduceat(y[self._at] / 2, self._starts) / sizes * 2
        return np.column_stack([np.add.reduceat(self._x, self._starts) / sizes, means])

    @staticmethod
    def _pieces(points: Points, breaks: NDArray[np.int64]) -> list[Points]:
        return [piece for piece in np.split(points, breaks) if len(piece)]
