"""The metrics: a grid of charts, and beside it, where there is room, the machine."""

from __future__ import annotations

from linnet.board.terminal.layout import Cell, group_of
from linnet.board.terminal.spans import Line, cells, cut, ends, fit, foreign, length, put
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart
from linnet.board.terminal.views.header import status_span
from linnet.board.terminal.views.system import panel
from linnet.board.words import number


def draw(board: Board, width: int, height: int) -> list[Line]:
    """The body of the metrics tab."""
    side = board.side_width()
    across = width - side
    lines = [legend(board, width)] if len(board.watched_runs) > 1 else []
    charts = _charts(board, across, height - len(lines))
    if side:
        beside = panel(board, side - 2, height - len(lines))
        charts = [[*line, ("  ", ""), *more] for line, more in zip(charts, beside, strict=True)]
    return lines + charts


def legend(board: Board, width: int) -> Line:
    """Which colour and letter is which run."""
    parts: list[Line] = []
    room = max(8, width // len(board.watched_runs) - 6)
    for index, watched in enumerate(board.watched_runs):
        style = chart.style_of(index)
        name = cut(foreign(watched.summary.manifest.name or watched.id), room)
        name_span = (f" {name} ", style)
        parts.append([(f" {chart.LETTERS[index]} ", f"{style}.block"), name_span, status_span(watched.status, False)])
    return fit(_as_many_as_fit(parts, "  ", width), width)


def _charts(board: Board, width: int, height: int) -> list[Line]:
    layout = board.layout()
    if not layout.pages:
        return _waiting(board, width, height)
    chosen = board.selected if board.selected in board.names() else layout.pages[0].cells[0].name
    at = layout.page_number(chosen)
    page = layout.pages[at]
    rows: list[list[tuple[int, Line]]] = [[] for _ in range(height)]
    for heading in page.headings:
        if heading.y < height:
            text = cut(foreign(heading.text), width // 2)
            line: Line = [(f" {text} ", "group"), ("─" * max(0, width - 3 - cells(text)), "faint")]
            rows[heading.y].append((0, line))
    for cell in page.cells:
        for y, line in enumerate(tile(board, cell, cell.name == chosen)):
            if cell.y + y < height:
                rows[cell.y + y].append((cell.x, line))
    lines = [_row(parts, width) for parts in rows]
    if len(layout.pages) > 1:
        note: Line = [(f" page {at + 1}/{len(layout.pages)} ", "dim"), ("[ ]", "key"), (" turn ", "dim")]
        lines[-1] = ends(lines[-1], note, width)
    return lines


def tile(board: Board, cell: Cell, selected: bool) -> list[Line]:
    """One chart of the grid."""
    found = chart.curves_of(board, cell.name)
    title: Line = [(f"{cell.number} ", "key")] if cell.number <= 9 else []
    shown = cell.name[len(group_of(cell.name)) + 1 :] if group_of(cell.name) else cell.name
    title += [(foreign(shown or cell.name, 200), "title")]
    value = _value(found, cell.width - length(title) - 7)
    drawing = chart.draw(
        found,
        cell.width - 2,
        cell.height - 2,
        log_scale=board.log_scale,
        clip=board.clip,
        alpha=board.alpha,
        letters=len(board.watched_runs) > 1,
    )
    if drawing is None:
        text = "nothing to draw: all values are NaN or infinite" if found else "no values"
        if board.log_scale and any(curve.stats.low is not None for _, curve in found):
            text = "no value above 0 for a log scale"
        inner: list[Line] = [[] for _ in range((cell.height - 2) // 2)] + [[(put(f" {text}", cell.width - 2), "dim")]]
        return chart.box(inner, (title, value), ("", ""), cell.width, cell.height, selected)
    low, high = drawing.plot.x_range
    bottom = (chart.x_text(low, board.axis, high - low), chart.x_text(high, board.axis, high - low))
    if found and all(len(curve) == 1 for _, curve in found):
        bottom = ("", chart.x_text(float(found[0][1].x[0]), board.axis, 0.0))
    return chart.box(drawing.lines, (title, value), bottom, cell.width, cell.height, selected)


def _value(found: list[chart.RunCurve], room: int) -> Line:
    """The latest value and the best one; with several runs, the latest of each that there is room for."""
    if not found:
        return []
    if len(found) > 1:
        return _as_many_as_fit(
            [[(number(curve.last_value), chart.style_of(index))] for index, curve in found], " ", room
        )
    index, curve = found[0]
    line = [(number(curve.last_value), chart.style_of(index))]
    if curve.stats.best is not None:
        line += [(" best ", "dim"), (number(curve.stats.best[1]), "")]
    return line


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
        at = x + sum(cells(text) for text, _ in part)
    if at < width:
        line.append((" " * (width - at), ""))
    return line


def _waiting(board: Board, width: int, height: int) -> list[Line]:
    watched = board.watched
    if board.opening is not None or (watched is not None and not watched.history.caught_up):
        text = "reading …"
    elif watched is None:
        text = f"no runs in {foreign(board.store.root)} yet; the first one opens by itself"
        text = text if board.run_table.looked and not board.run_table.rows else "reading …"
    elif watched.history.trouble:
        text = f"events.jsonl cannot be read: {watched.history.trouble}"
    else:
        text = "no metrics yet; they appear here as soon as the run logs some"
    empty: list[Line] = [fit([], width) for _ in range(height)]
    if height:
        empty[height // 2] = fit([(text.center(width), "dim")], width)
    return empty
