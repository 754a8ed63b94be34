"""Several curves in one plot of a terminal: rows, how far they go where many share a column, and smoothed lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet.board.curve import Curve, is_smoothed, smooth
from linnet.board.plot import Plot, Range, cell_of, rows_inside

Stroke = tuple[Curve, str, str]  # a curve, its style and the letter at its end
CROWDED = 4  # rows in a column of dots from which on it shows their mean, and faintly how far they go
_DENSE = 32  # rows in a column of dots from which on their exponential mean and their mean look the same


def draw_curves(plot: Plot, strokes: Sequence[Stroke], alpha: float) -> None:
    """The rows of all, faint where a smoothed line stands for them, and then those lines; the first is on top."""
    smoothed = []
    for curve, style, letter in reversed(strokes):
        own_alpha = alpha if is_smoothed(curve.stats.count, alpha) else 1.0
        if own_alpha < 1.0 or np.count_nonzero(rows_inside(curve, plot.x_range)) > CROWDED * plot.width * 2:
            plot.draw(curve, f"{style}.raw")
            smoothed.append((smoothed_curve(curve, own_alpha, plot.width * 2, plot.x_range), style, letter))
        else:
            plot.draw(curve, style, letter=letter)
    for curve, style, letter in smoothed:
        plot.draw(curve, style, over=True, letter=letter)


def smoothed_curve(curve: Curve, alpha: float, columns: int, x_range: Range) -> Curve:
    """The exponential moving average (the rows themselves, where alpha is 1), and its mean in each column."""
    low, high = x_range
    inside = rows_inside(curve, x_range)
    dense = np.count_nonzero(inside) > _DENSE * columns
    y = curve.mean if dense or alpha >= 1.0 or not curve.exact else smooth(curve.mean, alpha)
    x = curve.x[inside]
    y = y[inside]
    if len(x) > columns:
        column = cell_of(x, x_range, columns)
        counts = np.bincount(column, minlength=columns)
        used = counts > 0
        with np.errstate(over="ignore"):
            y = np.bincount(column, weights=y, minlength=columns)[used] / counts[used]
        x = (low + (high - low) * np.arange(columns) / (columns - 1))[used]
    return Curve.through(x, y, curve.name)
