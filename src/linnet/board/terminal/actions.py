"""What a key does to the board: every action by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from linnet.board.run_order import SORTS
from linnet.board.terminal.state import Board
from linnet.board.terminal.tabs import VIEWS

Action = Callable[[Board], object]


def act(board: Board, action: str) -> None:
    """Do what a key asks for; an action of one of several things names it behind a colon: `view:log`, `chart:3`."""
    board.message = ""
    ACTIONS[action](board)
    board.ask_for_rows()


def _back(board: Board) -> None:
    board.leaving = not board.step_back()


def _notes(board: Board) -> None:
    board.ask_for_note() if board.view == "notes" else board.show("notes")


def _clip_or_sort(board: Board) -> None:
    board.sort_by() if board.view == "runs" else board.toggle("clip")


ACTIONS: dict[str, Action] = {
    **{f"view:{view}": partial(Board.show, view=view) for view in VIEWS},
    "next_view": lambda board: board.show_next(1),
    "previous_view": lambda board: board.show_next(-1),
    "back": _back,
    "back_only": Board.step_back,
    "help": lambda board: board.lay_over("help"),
    "differences": lambda board: board.lay_over("differences"),
    "open": Board.open_selected,
    "space": Board.mark_or_open,
    **{f"chart:{number}": partial(Board.open_chart, number=number) for number in range(1, 10)},
    "newest": Board.open_newest,
    "next_run": Board.next_run,
    "notes": _notes,
    "left": lambda board: board.move(-1, 0),
    "right": lambda board: board.move(1, 0),
    "up": lambda board: board.move(0, -1),
    "down": lambda board: board.move(0, 1),
    "page_back": lambda board: board.turn_page(-1),
    "page_on": lambda board: board.turn_page(1),
    "first": lambda board: board.go_to_end(0),
    "last": lambda board: board.go_to_end(1),
    "smoothing": Board.next_smoothing,
    "axis": Board.next_axis,
    "log_scale": lambda board: board.toggle("log_scale"),
    "clip": lambda board: board.toggle("clip"),
    "side": lambda board: board.toggle("side"),
    "clip_or_sort": _clip_or_sort,
    "zoom_in": lambda board: board.zoom_by(0.5),
    "zoom_out": lambda board: board.zoom_by(2.0),
    "zoom_all": lambda board: board.zoom.reset(),
    "pan_left": lambda board: board.zoom.move(-0.25),
    "pan_right": lambda board: board.zoom.move(0.25),
    "sort": Board.sort_by,
    **{f"sort:{column}": partial(Board.sort_by, column=column) for column in SORTS},
    "reverse": Board.reverse_order,
    "unmark": lambda board: board.table.marks.clear(),
    "filter": Board.ask_for_filter,
}
