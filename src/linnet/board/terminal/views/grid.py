"""The metrics: a grid of charts, and beside it, where there is room, the machine."""

from __future__ import annotations

from linnet.board.terminal.layout import Cell
from linnet.board.terminal.spans import Line, cells, centered, cut, fit, justify, length, pad, safe, status_span
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart
from linnet.board.terminal.views.system import panel
from linnet.board.words import number, shorten_apart


def draw(board: Board, width: int, height: int) -> list[Line]:
    side = board.side_width()
    lines = [_legend(board, width)] if len(board.watched_runs) > 1 else []
    charts = _charts(board, width - side, height - len(lines))
    if side:
        beside = panel(board, side - 2, height - len(lines))
        charts = [[*left, ("  ", ""), *right] for left, right in zip(charts, beside, strict=True)]
    return lines + charts


def _legend(board: Board, width: int) -> Line:
    """Which colour and letter is which run."""
    parts: list[Line] = []
    room = max(8, width // len(board.watched_runs) - 6)
    names = shorten_apart([safe(watched.title) for watched in board.watched_runs], room)
    for index, (watched, name) in enumerate(zip(board.watched_runs, names, strict=True)):
        style = chart.style_of(index)
        letter = (f" {chart.LETTERS[index]} ", f"{style}.block")
        parts.append([letter, (f" {name} ", style), status_span(watched.status, False)])
    return fit(_as_many_as_fit(parts, "  ", width), width)


def _charts(board: Board, width: int, height: int) -> list[Line]:
    layout, chosen = board.layout(), board.chosen()
    if not layout.pages:
        return centered(_why_empty(board), width, height)
    at = layout.page_number(chosen)
    page = layout.pages[at]
    rows: list[list[tuple[int, Line]]] = [[] for _ in range(height)]
    for heading in page.headings:
        if heading.y < height:
            text = cut(safe(heading.text), width // 2)
            line: Line = [(f" {text} ", "group"), ("─" * max(0, width - 3 - cells(text)), "faint")]
            rows[heading.y].append((0, line))
    for cell in page.cells:
        for y, line in enumerate(_tile(board, cell, cell.name == chosen)[: max(0, height - cell.y)], cell.y):
            rows[y].append((cell.x, line))
    lines = [_row(parts, width) for parts in rows]
    turn: Line = []
    if len(layout.pages) > 1:
        turn = [(f" page {at + 1}/{len(layout.pages)} ", "dim"), ("[ ]", "key"), (" turn ", "dim")]
    if turn or board.has_foot():
        lines[-1] = justify(_foot(board, width - length(turn)) or lines[-1], turn, width)
    return lines


def _foot(board: Board, room: int) -> Line:
    """What has no chart: constants, with their values, and what was hidden or filtered out."""
    charts, metrics = board.charts, board.metrics()
    line: Line = []
    if charts.filter:
        line += [(" filter ", "dim"), (safe(charts.filter, 30), "key"), (" Esc clears it ", "dim")]
    if charts.show_hidden:
        line += [(" all metrics ", "dim"), ("H", "key"), (" hides again ", "dim")]
    elif hidden := charts.hidden(metrics):
        line += [(f" {len(hidden)} hidden ", "dim"), ("H", "key"), (" shows ", "dim")]
    constants: list[Line] = [[(safe(name, 40), "dim"), (f" {value}", "")] for name, value in board.folded().items()]
    if constants:
        shown = _as_many_as_fit(constants, ", ", max(0, room - length(line) - 13))
        line += [(" constant: ", "dim"), *shown, (" ", "")]
    return line


def _tile(board: Board, cell: Cell, selected: bool) -> list[Line]:
    curves = chart.curves_of(board, cell.name)
    title: Line = [(f"{cell.number} ", "key")] if cell.number <= 9 else []
    shown = cell.name[len(cell.group) + 1 :] if cell.group else cell.name
    title += [(chart.PIN, "mark")] if cell.name in board.charts.preferences.pinned else []
    title += [(safe(shown or cell.name, 200), "title")]
    beside = chart.beside_of(board, cell.name, curves)
    value = _value(curves, list(beside.held_out), cell.width - length(title) - 7)
    drawing = chart.draw(board, curves, cell.width - 2, cell.height - 2, beside=beside)
    if drawing is None:
        text = "nothing to draw: all values are NaN or infinite" if curves else "no values"
        if board.log_scale and any(curve.stats.low is not None for _, curve in curves):
            text = "no value above 0 for a log scale"
        inner: list[Line] = [[] for _ in range((cell.height - 2) // 2)] + [[(pad(f" {text}", cell.width - 2), "dim")]]
        return chart.box(inner, (title, value), ("", ""), cell.width, cell.height, selected)
    low, high = drawing.plot.x_range
    bottom = (chart.x_text(low, board.axis, high - low), chart.x_text(high, board.axis, high - low))
    if curves and all(len(curve) == 1 for _, curve in curves):
        bottom = ("", chart.x_text(float(curves[0][1].x[0]), board.axis, 0.0))
    return chart.box(drawing.lines, (title, value), bottom, cell.width, cell.height, selected)


def _value(curves: list[chart.RunCurve], held_out: list[chart.RunCurve], room: int) -> Line:
    """The latest value and the best one; with several runs, the latest of each that there is room for.

    Of held-out data the latest too, behind the sign that it has in the chart.
    """
    latest: list[Line] = [[(number(curve.last_value), chart.style_of(index))] for index, curve in curves]
    if len(latest) != 1:
        return _as_many_as_fit(latest, " ", room)
    line, best = latest[0], curves[0][1].stats.best
    for _, curve in held_out[:1]:
        line = [*line, (f" {chart.HELD_OUT}{number(curve.last_value)}", chart.HELD_OUT_STYLE)]
    with_best = line if best is None else [*line, (" best ", "dim"), (number(best[1]), "")]
    return with_best if length(with_best) <= room else line


def _as_many_as_fit(parts: list[Line], between: str, room: int) -> Line:
    """Parts side by side; where there is no room for all of them, the first ones and how many there are more."""
    for count in range(len(parts), -1, -1):
        left_out: Line = [(f"+{len(parts) - count}", "dim")] if count < len(parts) else []
        shown = [*parts[:count], *([left_out] if left_out else [])]
        line = [span for part in shown for span in (*part, (between, ""))][:-1]
        if length(line) <= room or not count:
            return line
    return []


def _row(parts: list[tuple[int, Line]], width: int) -> Line:
    line: Line = []
    at = 0
    for x, part in parts:
        if x > at:
            line.append((" " * (x - at), ""))
        line += part
        at = x + length(part)
    return line if at >= width else [*line, (" " * (width - at), "")]


def _why_empty(board: Board) -> str:
    watched, table = board.watched, board.run_table
    if board.opening is not None or (watched is not None and not watched.history.caught_up):
        return "reading …"
    if watched is None:
        none = table.scanned and not table.rows
        return f"no runs in {safe(board.store.root)} yet; the first one opens by itself" if none else "reading …"
    if board.metrics():
        return "no metric fits the filter; Esc clears it" if board.charts.filter else "all are hidden; H shows them"
    if watched.history.trouble:
        return f"events.jsonl cannot be read: {watched.history.trouble}"
    return "no metrics yet; they appear here as soon as the run logs some"
