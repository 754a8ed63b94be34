"""What the mouse does to the board."""

from __future__ import annotations

from linnet.board.run_order import SORTS
from linnet.board.terminal.actions import act
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import runs


def point(board: Board, what: str, x: int, y: int, moved: int, width: int, height: int) -> None:
    """Something at a place of the body. `what`: click, double, up, down (the wheel), drag (by `moved` columns)."""
    if board.overlay or board.view not in ("metrics", "runs"):
        if what in ("up", "down"):
            for _ in range(3):
                act(board, what)
    elif board.view == "runs":
        _in_runs(board, what, x, y, width, height)
    elif board.detail is not None:
        _in_detail(board, what, x, moved)
    else:
        _in_grid(board, what, x, y)


def _in_grid(board: Board, what: str, x: int, y: int) -> None:
    if what in ("up", "down"):
        act(board, "page_back" if what == "up" else "page_on")
        return
    y -= 1 if len(board.watched_runs) > 1 else 0  # the legend
    names = board.names()
    chosen = board.selected if board.selected in names else names[0] if names else None
    for cell in board.layout().page_of(chosen):
        if cell.x <= x < cell.x + cell.width and cell.y <= y < cell.y + cell.height:
            if what == "double" or (what == "click" and cell.name == board.selected):
                board.open_metric(cell.name)
            elif what == "click":
                board.select(cell.name)
            return


def _in_detail(board: Board, what: str, x: int, moved: int) -> None:
    at = board.zoom.at(x)
    if what in ("up", "down"):
        board.zoom.by(0.8 if what == "up" else 1.25, around=at)
    elif what == "drag":
        board.zoom.move(-moved / board.zoom.columns[1])
    else:
        board.zoom.cursor = at
    board.ask_for_rows()


def _in_runs(board: Board, what: str, x: int, y: int, width: int, height: int) -> None:
    if what in ("up", "down"):
        for _ in range(3):
            act(board, what)
        return
    if y == 1:
        column = runs.column_at(board, width, height, x)
        if column in SORTS:
            act(board, f"sort:{column}")
        return
    row = runs.row_at(board, y)
    if row is None:
        return
    board.table.cursor = row.path
    if what == "double":
        act(board, "open")
    elif what == "click" and x < 3:
        act(board, "space")
