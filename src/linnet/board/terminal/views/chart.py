"""One chart: its lines, the labels of its axes, and the box around it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from linnet.board.terminal.curve import Curve, Floats, smooth
from linnet.board.terminal.raster import Plot, Range, Trace, range_of
from linnet.board.terminal.spans import Line, cells, cut, fit
from linnet.board.terminal.state import Board
from linnet.board.terminal.watch import Watch
from linnet.board.words import duration, number

_CROWDED = 4  # rows in a column of dots from which on it shows their mean, and faintly how far they go
_DENSE = 32  # rows in a column of dots from which on their exponential mean and their mean look the same
MARKS = "ABCDEFGH"


@dataclass
class Drawing:
    """What was drawn: the `plot`, its lines with y labels, and how many values a log scale could not show."""

    plot: Plot
    lines: list[Line]
    margin: int
    traces: list[Trace]
    left_out: int


def style_of(index: int) -> str:
    """The colour of the n-th run."""
    return f"run{index % 8}"


def traces_of(board: Board, name: str, close: bool = False) -> list[tuple[int, Curve, Trace]]:
    """The lines of one metric, one a run, with which run and what of it.

    `close`: with every row of the stretch that is zoomed to, where there are not too many.
    """
    found = []
    for index, watch in enumerate(board.watches):
        curve = watch.history.curve(name)
        if curve is None or not len(curve):
            continue
        x = x_of(board, watch, curve)
        if close and not curve.exact and (window := board.zoom.shown()) is not None:
            closer = rows_between(board, watch, curve, *window)
            curve, x = (closer, x_of(board, watch, closer)) if closer is not None else (curve, x)
        x = curve.step if x is None else x
        mark = MARKS[index % len(MARKS)] if len(board.watches) > 1 else ""
        look = style_of(index)
        trace = Trace(x, curve.low, curve.high, curve.mean, look, mark=mark, exact=curve.exact)
        found.append((index, curve, trace))
    return found


def rows_between(board: Board, watch: Watch, curve: Curve, low: float, high: float) -> Curve | None:
    """Every row of a folded curve between two places of the x axis; None while, or where, they are not to be had."""
    x = x_of(board, watch, curve)
    x = curve.step if x is None else x
    first = max(0, int(np.searchsorted(x, low)) - 2)
    last = min(len(curve) - 1, int(np.searchsorted(x, high, "right")) + 1)
    return watch.rows(curve, curve.step[first], curve.step[last])


def x_of(board: Board, watch: Watch, curve: Curve) -> Floats | None:
    """Where a curve's rows stand on the board's axis."""
    tokens = watch.history.curve("tokens") if board.axis == "tokens" else None
    return curve.x(board.axis, watch.glance.manifest.created_at, tokens)


def draw(
    traces: list[Trace],
    width: int,
    height: int,
    *,
    window: Range | None = None,
    log_scale: bool = False,
    clip: bool = False,
    alpha: float = 1.0,
    labels: int = 0,
) -> Drawing | None:
    """Lines in `height` rows of `width` characters, y labels included; None when there is nothing to draw.

    `labels`: how many labels at the y axis; 0 for two or three, at the ends and in the middle.
    """
    left_out = 0
    if log_scale:
        left_out = sum(int(np.count_nonzero(trace.low <= 0)) for trace in traces)
        traces = [_logarithms(trace) for trace in traces]
    ranges = range_of(traces, window, clip)
    if ranges is None or width < 8 or height < 1:
        return None
    across, up = ranges
    marks = y_labels(up, height, log_scale, labels)
    margin = max((cells(text) for text in marks.values()), default=0)
    plot = Plot(max(2, width - margin - 1), height, across, up)
    faint = [alpha < 1.0 or _rows_inside(trace, across) > _CROWDED * plot.width * 2 for trace in traces]
    for trace, behind in reversed(list(zip(traces, faint, strict=True))):
        plot.draw(replace(trace, style=f"{trace.style}.raw", mark="") if behind else trace)
    for trace, behind in reversed(list(zip(traces, faint, strict=True))):
        if behind:
            plot.draw(_smoothed(trace, alpha, plot))
    lines: list[Line] = [[(f"{marks.get(row, ''):>{margin}} ", "axis"), *line] for row, line in enumerate(plot.lines())]
    return Drawing(plot, lines, margin + 1, traces, left_out)


def _rows_inside(trace: Trace, window: Range) -> int:
    return int(np.count_nonzero(np.isfinite(trace.mean) & (trace.x >= window[0]) & (trace.x <= window[1])))


def _logarithms(trace: Trace) -> Trace:
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, mean = (np.log10(np.where(v > 0, v, np.nan)) for v in (trace.low, trace.high, trace.mean))
    return replace(trace, low=np.where(np.isnan(low), mean, low), high=high, mean=mean)


def _smoothed(trace: Trace, alpha: float, plot: Plot) -> Trace:
    """The exponential mean over all rows (they themselves, where alpha is 1), and its mean in each column of dots."""
    columns = plot.width * 2
    low, high = plot.x_range
    inside = np.isfinite(trace.mean) & (trace.x >= low) & (trace.x <= high)
    dense = np.count_nonzero(inside) > _DENSE * columns
    y = trace.mean if dense or alpha >= 1.0 or not trace.exact else smooth(trace.mean, alpha)
    x = trace.x[inside]
    y = y[inside]
    if len(x) > columns:
        share = (x / 2 - low / 2) / (high / 2 - low / 2)
        column = np.clip((share * (columns - 1)).round(), 0, columns - 1).astype(np.int64)
        counts = np.bincount(column, minlength=columns)
        used = counts > 0
        with np.errstate(over="ignore"):
            y = np.bincount(column, weights=y, minlength=columns)[used] / counts[used]
        x = (low + (high - low) * np.arange(columns) / (columns - 1))[used]
    return replace(trace, x=x, low=y, high=y, mean=y, over=True)


def y_labels(up: Range, rows: int, log_scale: bool, count: int) -> dict[int, str]:
    """Labels by row, top row first."""
    low, high = up
    if rows == 1:
        return {0: _y_text(high, log_scale)}
    if count:
        labels: dict[int, str] = {}
        for value in ticks(low, high, count):
            row = rows - 1 - round((value - low) / (high - low) * (rows - 1))
            labels.setdefault(row, _y_text(value, log_scale))
        if len(labels) >= 2:
            return labels
    places = sorted({0, rows - 1} | ({rows // 2} if rows >= 9 else set()))
    share = {place: 1 - place / (rows - 1) for place in places}
    return {place: _y_text(low * (1 - share[place]) + high * share[place], log_scale) for place in places}


def _y_text(value: float, log_scale: bool) -> str:
    if log_scale:
        value = 10.0**value if abs(value) < 308 else math.copysign(math.inf, value)
    return number(float(value))


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers between two, about `count` of them."""
    rough = (high / count) - (low / count)
    if not (0 < rough < math.inf) or not math.isfinite(low):
        return []
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else rough
    step = power * next((m for m in (1, 2, 5, 10) if m * power >= rough * 0.999), 10)
    first = math.ceil(low / step - 1e-9)
    if not math.isfinite(low / step) or abs(first) > 1e15:
        return []
    return [at * step for at in range(first, first + count + 2) if at * step <= high + step * 1e-9]


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
