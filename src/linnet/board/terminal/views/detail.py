"""One metric on the whole screen."""

from __future__ import annotations

import math

from linnet.board.terminal.curve import SMOOTHING, Curve, smooth
from linnet.board.terminal.raster import Trace, nearest, range_of
from linnet.board.terminal.spans import Line, cells, cut, ends, fit, foreign, length, put
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart
from linnet.board.words import duration, number

Found = list[tuple[int, Curve, Trace]]


def draw(board: Board, width: int, height: int) -> list[Line]:
    """The body of the detail."""
    name = board.detail or ""
    found = chart.traces_of(board, name)
    whole = range_of([trace for _, _, trace in found])
    board.zoom.whole = whole[0] if whole else None
    traces = [trace for _, _, trace in chart.traces_of(board, name, close=board.needs_close_up())]
    below = [*_cursor(board, found, width), *_numbers(board, found, width), _modes(board, width)]
    rows = max(1, height - 3 - len(below))
    drawing = chart.draw(
        traces,
        width - 2,
        rows,
        window=board.zoom.shown(),
        log_scale=board.log_scale,
        clip=board.clip,
        alpha=board.alpha,
        labels=max(2, rows // 4),
    )
    lines = [_title(board, name, found, drawing, width)]
    if drawing is None:
        text = _why_empty(board, found)
        lines += [fit([], width) for _ in range(rows + 1)]
        lines[rows // 2 + 1] = fit([(text.center(width), "dim")], width)
    else:
        board.zoom.columns = (drawing.margin + 1, drawing.plot.width)
        board.zoom.traces = traces
        if board.zoom.cursor is not None:
            drawing.plot.rule(drawing.plot.column(board.zoom.cursor), "│", "cursor.line")
            for row, line in enumerate(drawing.plot.lines()):
                drawing.lines[row] = [drawing.lines[row][0], *line]
        lines += [fit([(" ", ""), *line], width) for line in drawing.lines]
        lines.append(_x_axis(board, drawing, width))
    lines.append(fit([], width))
    lines += below
    return lines[:height] + [fit([], width) for _ in range(height - len(lines))]


def _title(board: Board, name: str, found: Found, drawing: chart.Drawing | None, width: int) -> Line:
    left: Line = [(" ", ""), (foreign(name, max(10, width - 30)), "title")]
    if len(found) == 1:
        left += [("  ", ""), (number(found[0][1].last_value), found[0][2].style)]
    if board.smoothing:
        left += [(" (EMA)", "dim")]
    right: Line = []
    if drawing is not None and drawing.left_out:
        right = [(f"{drawing.left_out:,} values ≤ 0 are not on a log scale ", "warning")]
    elif found and any(chart.x_of(board, board.watches[index], curve) is None for index, curve, _ in found):
        right = [(f"no {board.axis} logged: by step ", "warning")]
    elif found and not all(curve.exact for _, curve, _ in found):
        right = [("least to greatest of each stretch ", "dim")]
    return ends(left, right, width)


def _why_empty(board: Board, found: Found) -> str:
    if not found:
        return "no values"
    if board.zoom.window is not None:
        return "no values in this stretch"
    finite = any(curve.stats.low is not None for _, curve, _ in found)
    return "no value above 0 for a log scale" if finite and board.log_scale else "all values are NaN or infinite"


def _x_axis(board: Board, drawing: chart.Drawing, width: int) -> Line:
    """Labels at round places of the x axis."""
    plot, margin = drawing.plot, drawing.margin
    low, high = plot.x_range
    count = max(2, min(8, plot.width // 16))
    if board.axis in ("wall time", "relative time"):
        places = [low + (high - low) * i / count for i in range(count + 1)]
    else:
        places = chart.ticks(low, high, count)
    text = [" "] * width
    for place in places:
        label = chart.x_text(place, board.axis, high - low)
        at = margin + 1 + plot.column(place) - len(label) // 2
        at = min(max(at, margin), width - len(label) - 1)
        if at >= 0 and all(c == " " for c in text[max(0, at - 2) : at + len(label) + 2]):
            text[at : at + len(label)] = label
    line = "".join(text).rstrip()
    name = f" {board.axis}"
    if len(line) + len(name) + 1 < width and board.axis not in ("wall time", "relative time"):
        return fit([(line, "axis"), (put(name, width - len(line) - 1, right=True), "dim")], width)
    return fit([(line, "axis")], width)


def _cursor(board: Board, found: Found, width: int) -> list[Line]:
    """What stands under the cursor, with all digits."""
    at = board.zoom.cursor
    if at is None:
        return []
    line: Line = [(" │ ", "cursor.line")]
    for index, folded, trace in found:
        curve = folded
        if not folded.exact:
            closer = chart.rows_between(board, board.watches[index], folded, at, at)
            curve = folded if closer is None else closer
        x = chart.x_of(board, board.watches[index], curve)
        row = nearest(curve.step if x is None else x, curve.mean, at)
        if row is None:
            continue
        if index == found[0][0]:
            line += [("step ", "dim"), (number(int(curve.step[row])), ""), ("  at ", "dim")]
            line += [(duration(float(curve.t[row])), ""), ("  ", "")]
        line += [(f"{chart.MARKS[index]} " if len(found) > 1 else "", trace.style), _exact(curve, row, trace.style)]
        if board.smoothing and curve.exact:
            value = smooth(curve.mean, board.alpha)[row]
            line += [(f" (EMA {number(float(value))})", "dim")]
        line += [("  ", "")]
    return [fit(line, width)]


def _exact(curve: Curve, row: int, style: str) -> tuple[str, str]:
    low, high = float(curve.low[row]), float(curve.high[row])
    if low == high:
        return repr(low), style
    return f"{number(low, 6)} … {number(high, 6)}", style


def _numbers(board: Board, found: Found, width: int) -> list[Line]:
    """Last, best, least, greatest and mean of each run, over all its rows."""
    lines: list[Line] = []
    rows = [_facts(curve) for _, curve, _ in found]
    widths = {key: max(cells(row.get(key, "")) for row in rows) for row in rows for key in row}
    for (index, _, trace), facts in zip(found, rows, strict=True):
        line: Line = [(" ", "")]
        if len(found) > 1:
            watch = board.watches[index]
            name = cut(foreign(watch.glance.manifest.name or watch.id), 24)
            line += [(f"{chart.MARKS[index]} ", trace.style), (put(name, min(24, width // 4)), ""), (" ", "")]
        for key in widths:
            part: Line = [(f"{key} ", "dim"), (put(facts.get(key, "–"), widths[key]), ""), ("  ", "")]
            if length(line) + length(part) <= width:
                line += part
        lines.append(fit(line, width))
    return lines


def _facts(curve: Curve) -> dict[str, str]:
    stats = curve.stats

    def point(found: tuple[int, float] | None) -> str:
        return "–" if found is None else f"{number(found[1], 6)} @ {number(found[0])}"

    facts = {"last": point(stats.last)}
    if stats.best is not None:
        facts["best"] = point(stats.best)
    facts |= {"min": point(stats.low), "max": point(stats.high), "mean": number(stats.mean, 6)}
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
    return fit(line, width)
