"""The runs of the list as points: a metric against a setting."""

from __future__ import annotations

from linnet.board.figure.text_scatter import scatter_lines
from linnet.board.terminal.spans import Line, centered, fill, safe
from linnet.board.terminal.state import Board


def draw(board: Board, width: int, height: int) -> list[Line]:
    page = board.scatter
    if page.scatter is None or not page.scatter.series:
        return centered(safe(page.trouble or "reading …", width - 2), width, height)
    lines = in_colours(scatter_lines(page.scatter, width - 1, height - 1))
    return fill([*lines[: height - 1], _foot(board)], width, height)


def in_colours(lines: list[Line]) -> list[Line]:
    """With the colours that runs have on the board."""
    return [
        [(text, f"run{style[4:]}" if style.startswith("line") else style) for text, style in line] for line in lines
    ]


def _foot(board: Board) -> Line:
    page, scatter = board.scatter, board.scatter.scatter
    assert scatter is not None
    line: Line = []
    if page.unread:
        line += [(f" reading {page.unread} more runs …", "dim")]
    missing = sum(scatter.without.values())
    if missing and not page.unread:
        line += [(f" {missing} of the runs have not both", "dim")]
    if scatter.diverged:
        line += [(f" × {len(scatter.diverged)} not finite", "warning")]
    return line
