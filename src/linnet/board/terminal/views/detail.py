"""One metric on the whole screen."""

from __future__ import annotations

import math

from linnet.board.curve import SMOOTHING, Curve, smooth
from linnet.board.plot import BEST_MARK, range_of, ticks
from linnet.board.terminal.spans import Line, cells, centered, fill, justify, length, pad, safe
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart
from linnet.board.words import duration, number, shorten_apart


def draw(board: Board, width: int, height: int) -> list[Line]:
    name = board.detail or ""
    curves = chart.curves_of(board, name)
    beside = chart.beside_of(board, name, curves)
    held_out = list(beside.held_out)
    whole = range_of([curve for _, curve in (*curves, *beside.inherited)])
    board.zoom.whole = whole[0] if whole else None
    shown = chart.curves_of(board, name, close=board.needs_every_row())
    below = [*_cursor(board, curves), *_numbers(board, curves, held_out, width), _modes(board, width)]
    rows = max(1, height - 3 - len(below))
    window, labels = board.zoom.shown(), max(2, rows // 4)
    drawing = chart.draw(board, shown, width - 2, rows, window=window, labels=labels, best=True, beside=beside)
    lines = [_title(board, name, curves, held_out, drawing, width, baselines=bool(beside.baselines))]
    if drawing is None:
        lines += [*centered(_why_empty(board, curves), width, rows), []]
    else:
        board.zoom.columns = (drawing.margin + 1, drawing.plot.width)
        board.zoom.curves = [curve for _, curve in shown]
        if board.zoom.cursor is not None:
            drawing.plot.rule(drawing.plot.column(board.zoom.cursor), "│", "cursor.line")
            drawing.lines = [[line[0], *ruled] for line, ruled in zip(drawing.lines, drawing.plot.lines(), strict=True)]
        lines += [[(" ", ""), *line] for line in drawing.lines]
        lines.append(_x_axis(board, drawing, width))
    return fill([*lines, [], *below], width, height)


def _title(
    board: Board,
    name: str,
    curves: list[chart.RunCurve],
    held_out: list[chart.RunCurve],
    drawing: chart.Drawing | None,
    width: int,
    *,
    baselines: bool,
) -> Line:
    left: Line = [(" ", ""), (safe(name, max(10, width - 30)), "title")]
    if len(curves) == 1:
        index, curve = curves[0]
        left += [("  ", ""), (number(curve.last_value), chart.style_of(index))]
    if board.smoothing:
        left += [(" (EMA)", "dim")]
    for _, curve in held_out[:1]:
        sign = (f"  {chart.HELD_OUT} ", "" if len(board.watched_runs) > 1 else chart.HELD_OUT_STYLE)
        left += [sign, (safe(curve.name, 40), "dim")]
        left += [] if len(held_out) > 1 else [(f" {number(curve.last_value)}", chart.HELD_OUT_STYLE)]
    named = {watched.baseline.run.id for watched in board.watched_runs if watched.baseline is not None}
    if baselines:
        left += [(f"  {chart.BASELINE_LETTER} ", chart.BASELINE_STYLE), (safe(", ".join(sorted(named)), 40), "dim")]
    right: Line = []
    if drawing is not None and drawing.left_out:
        right = [(f"{drawing.left_out:,} values ≤ 0 are not on a log scale ", "warning")]
    elif any(chart.on_axis(board, board.watched_runs[index], curve) is None for index, curve in curves):
        right = [(f"no {board.axis} logged: by step ", "warning")]
    elif not all(curve.exact for _, curve in curves):
        right = [("least to greatest of each stretch ", "dim")]
    return justify(left, right, width)


def _why_empty(board: Board, curves: list[chart.RunCurve]) -> str:
    if not curves:
        return "no values"
    if board.zoom.window is not None:
        return "no values in this stretch"
    finite = any(curve.stats.low is not None for _, curve in curves)
    return "no value above 0 for a log scale" if finite and board.log_scale else "all values are NaN or infinite"


def _x_axis(board: Board, drawing: chart.Drawing, width: int) -> Line:
    """Labels at round numbers of the x axis."""
    plot, margin = drawing.plot, drawing.margin
    low, high = plot.x_range
    count = max(2, min(8, plot.width // 16))
    by_time = board.axis in ("wall time", "relative time")
    labelled = [low + (high - low) * i / count for i in range(count + 1)] if by_time else ticks(low, high, count)
    text = [" "] * width
    for x in labelled:
        label = chart.x_text(x, board.axis, high - low)
        at = margin + 1 + plot.column(x) - len(label) // 2
        at = min(max(at, margin), width - len(label) - 1)
        if at >= 0 and all(c == " " for c in text[max(0, at - 2) : at + len(label) + 2]):
            text[at : at + len(label)] = label
    line = "".join(text).rstrip()
    name = f" {board.axis}"
    if len(line) + len(name) + 1 < width and not by_time:
        return [(line, "axis"), (pad(name, width - len(line) - 1, right=True), "dim")]
    return [(line, "axis")]


def _cursor(board: Board, curves: list[chart.RunCurve]) -> list[Line]:
    """What stands under the cursor, with all digits."""
    x = board.zoom.cursor
    if x is None:
        return []
    line: Line = [(" │ ", "cursor.line")]
    for index, shown in curves:
        curve, style = shown, chart.style_of(index)
        if not shown.exact:
            rows = chart.rows_between(board, board.watched_runs[index], shown, x, x)
            curve = shown if rows is None else rows
        row = curve.nearest(x)
        if row is None:
            continue
        if index == curves[0][0]:
            line += [("step ", "dim"), (number(int(curve.step[row])), ""), ("  at ", "dim")]
            line += [(duration(float(curve.t[row])), ""), ("  ", "")]
        low, high = float(curve.low[row]), float(curve.high[row])
        value = repr(low) if low == high else f"{number(low, 6)} … {number(high, 6)}"
        line += [(f"{chart.LETTERS[index]} " if len(curves) > 1 else "", style), (value, style)]
        if board.smoothing and curve.exact:
            line += [(f" (EMA {number(float(smooth(curve.mean, board.alpha)[row]))})", "dim")]
        line += [("  ", "")]
    return [line]


def _numbers(board: Board, curves: list[chart.RunCurve], held_out: list[chart.RunCurve], width: int) -> list[Line]:
    """Last, best, least, greatest and mean of each run, over all its rows; and the same on held-out data."""
    lines: list[Line] = []
    rows = [_facts(curve) for _, curve in (*curves, *held_out)]
    widths = {key: max(cells(row.get(key, "")) for row in rows) for row in rows for key in row}
    several = len(board.watched_runs) > 1
    room = min(24, width // 4)
    names = shorten_apart([safe(watched.title) for watched in board.watched_runs], room)
    for at, ((index, _), facts) in enumerate(zip((*curves, *held_out), rows, strict=True)):
        line: Line = [(" ", "")]
        sign, style = ("", "") if at < len(curves) else (chart.HELD_OUT, chart.style_of(index) if several else "run1")
        if several:
            name = pad(names[index], room)
            line += [(f"{chart.LETTERS[index]}{sign or ' '}", chart.style_of(index)), (name, ""), (" ", "")]
        elif held_out:
            line += [(f"{sign or ' '} ", style)]
        for key, wide in widths.items():
            part: Line = [(f"{key} ", "dim"), (pad(facts.get(key, "–"), wide), ""), ("  ", "")]
            if length(line) + length(part) <= width:
                line += part
        lines.append(line)
    return lines


def _facts(curve: Curve) -> dict[str, str]:
    stats = curve.stats

    def text(point: tuple[int, float] | None) -> str:
        return "–" if point is None else f"{number(point[1], 6)} @ {number(point[0])}"

    facts = {"last": text(stats.last)}
    if stats.best is not None:
        facts[f"{BEST_MARK} best"] = text(stats.best)
    facts |= {"min": text(stats.low), "max": text(stats.high), "mean": number(stats.mean, 6)}
    facts["points"] = number(stats.count)
    if stats.empty:
        facts["not finite"] = number(stats.empty)
    return facts


def _modes(board: Board, width: int) -> Line:
    name, alpha = SMOOTHING[board.smoothing]
    modes = [
        ("x", board.axis),
        ("S", f"smoothing {name}" + (f" {alpha}" if board.smoothing else "")),
        ("l", "log scale" if board.log_scale else "linear scale"),
        ("o", "outliers clipped" if board.clip else "all in range"),
    ]
    if board.zoom.window is not None and board.zoom.whole is not None:
        whole = board.zoom.whole[1] - board.zoom.whole[0]
        share = (board.zoom.window[1] - board.zoom.window[0]) / whole if whole else 1.0
        text = f"{100 * share:.3g} % of the run" + (", following" if board.zoom.at_end else "")
        modes.append(("0", text if math.isfinite(share) else ""))
    line: Line = [(" ", "")]
    for key, text in modes:
        part: Line = [(key, "key"), (f" {text}   ", "dim")]
        if length(line) + length(part) <= width:
            line += part
    return line
