"""One chart: its lines, the labels of its axes, and the box around it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from linnet.board.curve import Curve, smooth
from linnet.board.plot import Plot, Range, range_of, y_labels
from linnet.board.terminal.spans import Line, cells, cut, fit
from linnet.board.terminal.state import Board
from linnet.board.watched_run import WatchedRun
from linnet.board.words import duration, number

_CROWDED = 4  # rows in a column of dots from which on it shows their mean, and faintly how far they go
_DENSE = 32  # rows in a column of dots from which on their exponential mean and their mean look the same
LETTERS = "ABCDEFGH"
RunCurve = tuple[int, Curve]  # which run of the board, and one of its metrics


@dataclass
class Drawing:
    """What was drawn: the `plot`, its lines with y labels, and how many values a log scale could not show."""

    plot: Plot
    lines: list[Line]
    margin: int
    left_out: int


def style_of(index: int) -> str:
    """The colour of the n-th run."""
    return f"run{index % 8}"


def curves_of(board: Board, name: str, close: bool = False) -> list[RunCurve]:
    """One metric of every run that has it, on the board's axis; by step, where a run does not tell that.

    `close`: with every row of the stretch that is zoomed to, where there are not too many.
    """
    found: list[RunCurve] = []
    for index, watched in enumerate(board.watched_runs):
        curve = watched.history.curve(name)
        if curve is None or not len(curve):
            continue
        placed = on_axis(board, watched, curve)
        curve = curve if placed is None else placed
        if close and not curve.exact and (window := board.zoom.shown()) is not None:
            rows = rows_between(board, watched, curve, *window)
            curve = curve if rows is None else rows
        found.append((index, curve))
    return found


def on_axis(board: Board, watched: WatchedRun, curve: Curve) -> Curve | None:
    """A curve on the board's axis; None where the run does not tell it."""
    tokens = watched.history.curve("tokens") if board.axis == "tokens" else None
    return curve.on_axis(board.axis, watched.summary.manifest.created_at, tokens)


def rows_between(board: Board, watched: WatchedRun, curve: Curve, low: float, high: float) -> Curve | None:
    """Every row of a folded curve between two places of the x axis; None while, or where, they are not to be had."""
    first = max(0, int(np.searchsorted(curve.x, low)) - 2)
    last = min(len(curve) - 1, int(np.searchsorted(curve.x, high, "right")) + 1)
    rows = watched.rows(curve, curve.step[first], curve.step[last])
    placed = None if rows is None else on_axis(board, watched, rows)
    return rows if placed is None else placed


def draw(
    found: Sequence[RunCurve],
    width: int,
    height: int,
    *,
    window: Range | None = None,
    log_scale: bool = False,
    clip: bool = False,
    alpha: float = 1.0,
    labels: int = 0,
    letters: bool = False,
    best: bool = False,
) -> Drawing | None:
    """Curves in `height` rows of `width` characters, y labels included; None when there is nothing to draw.

    - `labels`: how many labels at the y axis; 0 for two or three, at the ends and in the middle.
    - `letters`: each line ends in its run's letter.
    - `best`: the best point of each curve is marked.
    """
    left_out = 0
    if log_scale:
        left_out = sum(int(np.count_nonzero(curve.low <= 0)) for _, curve in found)
    shown = [(index, _logarithms(curve) if log_scale else curve) for index, curve in found]
    ranges = range_of([curve for _, curve in shown], window, clip)
    if ranges is None or width < 8 or height < 1:
        return None
    across, up = ranges
    texts = y_labels(up, height, log_scale, labels)
    margin = max((cells(text) for text in texts.values()), default=0)
    plot = Plot(max(2, width - margin - 1), height, across, up)
    _draw_curves(plot, shown, alpha, letters)
    for index, curve in found if best else ():
        if (point := curve.best()) is not None and not (log_scale and point[1] <= 0):
            plot.mark(point[0], math.log10(point[1]) if log_scale else point[1], style_of(index))
    lines: list[Line] = [[(f"{texts.get(row, ''):>{margin}} ", "axis"), *line] for row, line in enumerate(plot.lines())]
    return Drawing(plot, lines, margin + 1, left_out)


def _draw_curves(plot: Plot, shown: list[RunCurve], alpha: float, letters: bool) -> None:
    """The rows of all, faint where a smoothed line stands for them, and then those lines; the first run is on top."""
    smoothed = []
    for index, curve in reversed(shown):
        style, letter = style_of(index), LETTERS[index % len(LETTERS)] if letters else ""
        if alpha < 1.0 or _rows_inside(curve, plot.x_range) > _CROWDED * plot.width * 2:
            plot.draw(curve, f"{style}.raw")
            smoothed.append((_smoothed(curve, alpha, plot), style, letter))
        else:
            plot.draw(curve, style, letter=letter)
    for curve, style, letter in smoothed:
        plot.draw(curve, style, over=True, letter=letter)


def _rows_inside(curve: Curve, window: Range) -> int:
    return int(np.count_nonzero(np.isfinite(curve.mean) & (curve.x >= window[0]) & (curve.x <= window[1])))


def _logarithms(curve: Curve) -> Curve:
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, mean = (np.log10(np.where(v > 0, v, np.nan)) for v in (curve.low, curve.high, curve.mean))
    return replace(curve, low=np.where(np.isnan(low), mean, low), high=high, mean=mean)


def _smoothed(curve: Curve, alpha: float, plot: Plot) -> Curve:
    """The exponential mean over all rows (they themselves, where alpha is 1), and its mean in each column of dots."""
    columns = plot.width * 2
    low, high = plot.x_range
    inside = np.isfinite(curve.mean) & (curve.x >= low) & (curve.x <= high)
    dense = np.count_nonzero(inside) > _DENSE * columns
    y = curve.mean if dense or alpha >= 1.0 or not curve.exact else smooth(curve.mean, alpha)
    x = curve.x[inside]
    y = y[inside]
    if len(x) > columns:
        share = (x / 2 - low / 2) / (high / 2 - low / 2)
        column = np.clip((share * (columns - 1)).round(), 0, columns - 1).astype(np.int64)
        counts = np.bincount(column, minlength=columns)
        used = counts > 0
        with np.errstate(over="ignore"):
            y = np.bincount(column, weights=y, minlength=columns)[used] / counts[used]
        x = (low + (high - low) * np.arange(columns) / (columns - 1))[used]
    return Curve.through(x, y, curve.name)


def x_text(value: float, axis: str, across: float) -> str:
    """A place on the x axis, as one says it."""
    if axis == "relative time":
        return duration(value)
    if axis == "wall time":
        try:
            return time.strftime("%m-%d %H:%M" if across > 86_400 else "%H:%M:%S", time.localtime(value))
        except (OverflowError, ValueError, OSError):
            return "–"
    if axis == "tokens":
        return compact(value)
    if axis == "epoch":
        return number(float(value), 3)
    return compact(value) if abs(value) >= 1e7 else number(round(value)) if math.isfinite(value) else "–"


def compact(value: float) -> str:
    """A large count in few characters: `1.25M`, `870k`."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * 10 or (abs(value) >= size and size > 1e3):
            return f"{number(value / size, 3)}{unit}"
    return number(round(value)) if math.isfinite(value) else "–"


def box(
    inner: list[Line], top: tuple[Line, Line], bottom: tuple[str, str], width: int, height: int, selected: bool
) -> list[Line]:
    """A frame of `width` by `height`, with titles in its upper edge and the ends of the x axis in its lower one."""
    look = "focus" if selected else "border"
    corner, flat, upright = ("┏┓┗┛", "━", "┃") if selected else ("╭╮╰╯", "─", "│")
    left, right = top
    room = width - 4
    right = right if sum(cells(t) for t, _ in right) + 6 < room else []
    taken = sum(cells(t) for t, _ in right)
    left = _shortened(left, max(4, room - taken - (2 if right else 0)))
    used = sum(cells(t) for t, _ in left)
    dashes = width - 2 - used - 2 - (taken + 2 if right else 0)
    upper: Line = [(corner[0], look), (" ", look), *left, (" ", look), (flat * max(0, dashes), look)]
    upper += [(" ", look), *right, (" ", look)] if right else []
    upper += [(corner[1], look)]
    first, last = (cut(text, (width - 6) // 2) for text in bottom)
    dashes = width - 2 - (cells(first) + 2 if first else 0) - (cells(last) + 2 if last else 0)
    lower: Line = [(corner[2], look)]
    lower += [(f" {first} ", "axis")] if first else []
    lower += [(flat * max(0, dashes), look)]
    lower += [(f" {last} ", "axis")] if last else []
    lower += [(corner[3], look)]
    body = [*inner[: height - 2], *([[]] * (height - 2 - len(inner)))]
    return [
        fit(upper, width),
        *([(upright, look), *fit(line, width - 2), (upright, look)] for line in body),
        fit(lower, width),
    ]


def _shortened(line: Line, width: int) -> Line:
    """A line cut to at most so many columns, not filled up."""
    out: Line = []
    for text, look in line:
        text = cut(text, width)
        if text:
            out.append((text, look))
        width -= cells(text)
    return out
