"""One metric on the whole screen."""

from __future__ import annotations

import math

from linnet.board.curve import SMOOTHING, Curve, smooth
from linnet.board.plot import BEST_MARK, range_of, ticks
from linnet.board.terminal.spans import Line, cells, cut, ends, fit, foreign, length, put
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart
from linnet.board.words import duration, number

Found = list[chart.RunCurve]


def draw(board: Board, width: int, height: int) -> list[Line]:
    """The body of the detail."""
    name = board.detail or ""
    found = chart.curves_of(board, name)
    whole = range_of([curve for _, curve in found])
    board.zoom.whole = whole[0] if whole else None
    shown = chart.curves_of(board, name, close=board.needs_every_row())
    below = [*_cursor(board, found, width), *_numbers(board, found, width), _modes(board, width)]
    rows = max(1, height - 3 - len(below))
    drawing = chart.draw(
        shown,
        width - 2,
        rows,
        window=board.zoom.shown(),
        log_scale=board.log_scale,
        clip=board.clip,
        alpha=board.alpha,
        labels=max(2, rows // 4),
        letters=len(board.watched_runs) > 1,
        best=True,
    )
    lines = [_title(board, name, found, drawing, width)]
    if drawing is None:
        text = _why_empty(board, found)
        lines += [fit([], width) for _ in range(rows + 1)]
        lines[rows // 2 + 1] = fit([(text.center(width), "dim")], width)
    else:
        board.zoom.columns = (drawing.margin + 1, drawing.plot.width)
        board.zoom.curves = [curve for _, curve in shown]
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
        index, curve = found[0]
        left += [("  ", ""), (number(curve.last_value), chart.style_of(index))]
    if board.smoothing:
        left += [(" (EMA)", "dim")]
    right: Line = []
    if drawing is not None and drawing.left_out:
        right = [(f"{drawing.left_out:,} values ≤ 0 are not on a log scale ", "warning")]
    elif found and any(chart.on_axis(board, board.watched_runs[index], curve) is None for index, curve in found):
        right = [(f"no {board.axis} logged: by step ", "warning")]
    elif found and not all(curve.exact for _, curve in found):
        right = [("least to greatest of each stretch ", "dim")]
    return ends(left, right, width)


def _why_empty(board: Board, found: Found) -> str:
    if not found:
        return "no values"
    if board.zoom.window is not None:
        return "no values in this stretch"
    finite = any(curve.stats.low is not None for _, curve in found)
    return "no value above 0 for a log scale" if finite and board.log_scale else "all values are NaN or infinite"


def _x_axis(board: Board, drawing: chart.Drawing, width: int) -> Line:
    """Labels at round places of the x axis."""
    plot, margin = drawing.plot, drawing.margin
    low, high = plot.x_range
    count = max(2, min(8, plot.width // 16))
    if board.axis in ("wall time", "relative time"):
        places = [low + (high - low) * i / count for i in range(count + 1)]
    else:
        places = ticks(low, high, count)
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
    for index, folded in found:
        curve, style = folded, chart.style_of(index)
        if not folded.exact:
            rows = chart.rows_between(board, board.watched_runs[index], folded, at, at)
            curve = folded if rows is None else rows
        row = curve.nearest(at)
        if row is None:
            continue
        if index == found[0][0]:
            line += [("step ", "dim"), (number(int(curve.step[row])), ""), ("  at ", "dim")]
            line += [(duration(float(curve.t[row])), ""), ("  ", "")]
        line += [(f"{chart.LETTERS[index]} " if len(found) > 1 else "", style), _exact(curve, row, style)]
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
    rows = [_facts(curve) for _, curve in found]
    widths = {key: max(cells(row.get(key, "")) for row in rows) for row in rows for key in row}
    for (index, _), facts in zip(found, rows, strict=True):
        line: Line = [(" ", "")]
        if len(found) > 1:
            watched = board.watched_runs[index]
            name = cut(foreign(watched.summary.manifest.name or watched.id), 24)
            line += [
                (f"{chart.LETTERS[index]} ", chart.style_of(index)),
                (put(name, min(24, width // 4)), ""),
                (" ", ""),
            ]
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
        facts[f"{BEST_MARK} best"] = point(stats.best)
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
