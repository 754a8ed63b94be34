"""One chart: its lines, the labels of its axes, and the box around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from linnet.board.curve import Curve, logarithms
from linnet.board.figure.scales import x_text as x_text
from linnet.board.overlay import draw_curves
from linnet.board.plot import Plot, Range, range_of, rows_inside, y_labels
from linnet.board.terminal.spans import Line, cells, cut, fill, fit, length
from linnet.board.terminal.state import Board
from linnet.board.watched_run import WatchedRun

LETTERS = "ABCDEFGH"
PIN = "▴"
HELD_OUT = "○"  # a point of the same metric on held-out data
HELD_OUT_STYLE = "run1"  # of its line, where one run is shown
_POINT_ROOM = 3  # columns from one such point to the next
BASELINE_STYLE, BASELINE_LETTER = "baseline", "b"  # of the faint line of the run that another is compared with
RunCurve = tuple[int, Curve]  # which run of the board, and one of its metrics


@dataclass(frozen=True)
class Beside:
    """What is drawn beside the curves of a metric.

    - `held_out`: the same on held-out data, as points; of a single run with a line through them.
    - `inherited`: what forks have from their parents, and `baselines`: the lines of runs that these are compared with,
      both faint.
    """

    held_out: Sequence[RunCurve] = ()
    inherited: Sequence[RunCurve] = ()
    baselines: Sequence[Curve] = ()


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
    curves: list[RunCurve] = []
    for index, watched in enumerate(board.watched_runs):
        curve = watched.history.curve(name)
        if curve is None or not len(curve):
            continue
        placed = on_axis(board, watched, curve)
        curve = curve if placed is None else placed
        if close and not curve.exact and (window := board.zoom.shown()) is not None:
            rows = rows_between(board, watched, curve, *window)
            curve = curve if rows is None else rows
        curves.append((index, curve))
    return curves


def held_out_curves(board: Board, name: str) -> list[RunCurve]:
    """The same metric on held-out data, of every run that has it: it is drawn on the chart of the training's."""
    held_out = board.held_out(name)
    return [] if held_out is None else curves_of(board, held_out)


def inherited_of(board: Board, name: str) -> list[RunCurve]:
    """One metric of the runs that forks came from, up to where they began; only by step do their lines join."""
    if not board.family or board.axis != "step":
        return []
    runs = enumerate(board.watched_runs)
    return [(index, watched.inherited[name]) for index, watched in runs if name in watched.inherited]


def baselines_of(board: Board, curves: Sequence[RunCurve]) -> list[Curve]:
    """The same metric of the runs that these are compared with, where those have no line of their own."""
    shown = {watched.run.path.resolve() for watched in board.watched_runs}
    lines: dict[Path, Curve] = {}
    for index, curve in curves:
        baseline = board.watched_runs[index].baseline
        if baseline is None or board.axis == "wall time" or (path := baseline.run.path.resolve()) in shown:
            continue
        if (line := baseline.beside(curve, board.axis)) is not None:
            lines[path] = max(line, lines.get(path, line), key=len)  # of several runs up to where the longest ends
    return list(lines.values())


def beside_of(board: Board, name: str, curves: Sequence[RunCurve]) -> Beside:
    """What is drawn beside the curves of a metric."""
    return Beside(held_out_curves(board, name), inherited_of(board, name), baselines_of(board, curves))


def on_axis(board: Board, watched: WatchedRun, curve: Curve) -> Curve | None:
    """A curve on the board's axis; None where the run does not tell it."""
    tokens = watched.history.curve("tokens") if board.axis == "tokens" else None
    epochs = watched.main() if board.axis == "epoch" else None
    return curve.on_axis(board.axis, watched.summary.manifest.created_at, tokens, epochs)


def rows_between(board: Board, watched: WatchedRun, curve: Curve, low: float, high: float) -> Curve | None:
    """Every row of a downsampled curve between two x; None while, or where, they are not to be had."""
    first = max(0, int(np.searchsorted(curve.x, low)) - 2)
    last = min(len(curve) - 1, int(np.searchsorted(curve.x, high, "right")) + 1)
    rows = watched.rows(curve, curve.step[first], curve.step[last])
    placed = None if rows is None else on_axis(board, watched, rows)
    return rows if placed is None else placed


def draw(
    board: Board,
    curves: Sequence[RunCurve],
    width: int,
    height: int,
    *,
    window: Range | None = None,
    labels: int = 0,
    best: bool = False,
    beside: Beside = Beside(),  # noqa: B008 (it is frozen)
) -> Drawing | None:
    """Curves in `height` rows of `width` characters, y labels included; None when there is nothing to draw.

    - `labels`: how many labels at the y axis; 0 for two or three, at the ends and in the middle.
    - `best`: the best point of each curve is marked.
    """
    log_scale = board.log_scale
    left_out = sum(int(np.count_nonzero(curve.low <= 0)) for _, curve in curves) if log_scale else 0
    shown = [(index, logarithms(curve) if log_scale else curve) for index, curve in curves]
    evaluated = [(index, logarithms(curve) if log_scale else curve) for index, curve in beside.held_out]
    faint = [(index, logarithms(curve) if log_scale else curve) for index, curve in beside.inherited]
    baselines = [logarithms(curve) if log_scale else curve for curve in beside.baselines]
    ranges = range_of([*(curve for _, curve in (*shown, *evaluated, *faint)), *baselines], window, board.clip)
    if ranges is None or width < 8 or height < 1:
        return None
    texts = y_labels(ranges[1], height, log_scale, labels)
    margin = max((cells(text) for text in texts.values()), default=0)
    plot = Plot(max(2, width - margin - 1), height, *ranges)
    draw_curves(plot, [(curve, BASELINE_STYLE, BASELINE_LETTER) for curve in baselines], board.alpha)
    for index, curve in faint:
        plot.draw(curve, f"{style_of(index)}.raw")
    letters = LETTERS if len(board.watched_runs) > 1 else [""] * len(LETTERS)
    draw_curves(plot, [(curve, style_of(i), letters[i % len(letters)]) for i, curve in shown], board.alpha)
    for index, curve in reversed(evaluated):
        _draw_held_out(plot, curve, style_of(index), window, joined=len(board.watched_runs) == 1)
    for index, curve in curves if best else ():
        if (point := curve.best()) is not None and not (log_scale and point[1] <= 0):
            plot.mark(point[0], math.log10(point[1]) if log_scale else point[1], style_of(index))
    lines: list[Line] = [[(f"{texts.get(row, ''):>{margin}} ", "axis"), *line] for row, line in enumerate(plot.lines())]
    return Drawing(plot, lines, margin + 1, left_out)


def _draw_held_out(plot: Plot, curve: Curve, style: str, window: Range | None, joined: bool) -> None:
    """Points, as many as have room beside each other, the last of them always.

    `joined`: by a line in a colour of its own, which one run alone has free.
    """
    if joined:
        style = HELD_OUT_STYLE
        plot.draw(curve, style, over=True)
    free = plot.width + _POINT_ROOM
    for row in reversed(np.flatnonzero(rows_inside(curve, window)).tolist()):
        column = plot.column(float(curve.x[row]))
        if column <= free - _POINT_ROOM and plot.y_range[0] <= curve.mean[row] <= plot.y_range[1]:
            plot.write(plot.row(float(curve.mean[row])), column, HELD_OUT, style)
            free = column


def box(
    inner: list[Line], top: tuple[Line, Line], bottom: tuple[str, str], width: int, height: int, selected: bool
) -> list[Line]:
    """A frame of `width` by `height`, with titles in its upper edge and the ends of the x axis in its lower one."""
    style = "focus" if selected else "border"
    corner, flat, upright = ("┏┓┗┛", "━", "┃") if selected else ("╭╮╰╯", "─", "│")
    left, right = top
    right = right if length(right) + 6 < width - 4 else []
    used = length(right) + 2 if right else 0
    left = _shortened(left, max(4, width - 4 - used))
    upper: Line = [(corner[0], style), (" ", style), *left, (" ", style)]
    upper += [(flat * max(0, width - 4 - length(left) - used), style)]
    upper += [(" ", style), *right, (" ", style)] if right else []
    first, last = (f" {cut(text, (width - 6) // 2)} " if text else "" for text in bottom)
    lower: Line = [(corner[2], style), (first, "axis")] if first else [(corner[2], style)]
    lower += [(flat * max(0, width - 2 - cells(first) - cells(last)), style)]
    lower += [(last, "axis")] if last else []
    return [
        fit([*upper, (corner[1], style)], width),
        *([(upright, style), *line, (upright, style)] for line in fill(inner, width - 2, height - 2)),
        fit([*lower, (corner[3], style)], width),
    ]


def _shortened(line: Line, width: int) -> Line:
    """A line cut to at most so many columns, not filled up."""
    shortened: Line = []
    for text, style in line:
        text = cut(text, width)
        if text:
            shortened.append((text, style))
        width -= cells(text)
    return shortened
