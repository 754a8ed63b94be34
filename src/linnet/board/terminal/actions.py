"""What a key or the mouse does to the board: every action by its name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from linnet.board.run_list import SORTS
from linnet.board.terminal import chart_actions
from linnet.board.terminal.inside_page import InsidePage
from linnet.board.terminal.keys import VIEWS
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import artifacts, inside, runs

Action = Callable[[Board], object]
Gesture = Literal["click", "double", "up", "down", "drag"]  # up, down: the wheel


def act(board: Board, action: str) -> None:
    """Do what a key asks for; an action of one of several things names it behind a colon: `view:log`, `chart:3`."""
    board.message = ""
    board.escaped &= action == "escape"
    ACTIONS[action](board)
    board.ask_for_rows()


def _back(board: Board) -> None:
    board.leaving = not board.step_back()


def _escape(board: Board) -> None:
    """Back; one Esc too many does not quit: where it has just gone back, it says what would."""
    if board.step_back():
        board.escaped = True
    elif board.escaped:
        board.message, board.escaped = "Esc again, or q, quits", False
    else:
        board.leaving = True


def _notes(board: Board) -> None:
    board.ask_for_note() if board.view == "notes" else board.show("notes")


def _on_inside(action: Callable[[InsidePage], object], elsewhere: Action) -> Action:
    """One thing in the inside tab, another one on the others."""
    return lambda board: action(board.inside) if board.area == "inside" else elsewhere(board)


def _clip_or_sort(board: Board) -> None:
    board.sort_by() if board.view == "runs" else board.toggle("clip")


def _ask_for_filter(board: Board) -> None:
    """Of the metrics, which have a chart; of the inside, what is shown; else of the runs."""
    if board.area in ("grid", "detail"):
        board.show("metrics")
        board.asking = "charts"
    elif board.area == "inside":
        board.asking = board.inside.asks()
    else:
        board.show("runs")
        board.asking = "filter"


def _ask_for_columns(board: Board) -> None:
    """Have the columns of the list typed."""
    board.show("runs")
    board.asking = "columns"


ACTIONS: dict[str, Action] = {
    **{f"view:{view}": partial(Board.show, view=view) for view in VIEWS},
    "next_view": lambda board: board.show_next(1),
    "previous_view": lambda board: board.show_next(-1),
    "back": _back,
    "escape": _escape,
    "back_only": Board.step_back,
    "help": lambda board: board.lay_over("help"),
    "differences": lambda board: board.lay_over("differences"),
    "open": Board.open_selected,
    "space": Board.mark_or_open,
    **{f"chart:{number}": partial(Board.open_chart, number=number) for number in range(1, 10)},
    "newest": Board.open_newest,
    "next_run": Board.next_run,
    "open_file": Board.open_file,
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
    "family": _on_inside(lambda inside: inside.next_figure(-1), lambda board: board.toggle("family")),
    "figure_on": lambda board: board.inside.next_figure(1),
    "figure_back": lambda board: board.inside.next_figure(-1),
    "region_on": lambda board: board.inside.next_region(1),
    "region_back": lambda board: board.inside.next_region(-1),
    "turn_rows": lambda board: board.inside.turn_rows(),
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
    "filter": _ask_for_filter,
    "pin": chart_actions.pin_or_plot,
    "plot_runs": chart_actions.plot_runs,
    "best_or_last": chart_actions.take_best,
    "hide": _on_inside(InsidePage.turn_rows, chart_actions.hide),
    "show_hidden": chart_actions.show_hidden,
    "move_back": partial(chart_actions.move_chart, by=-1),
    "move_on": partial(chart_actions.move_chart, by=1),
    "constants": chart_actions.unfold_constants,
    "reset_charts": chart_actions.reset_charts,
    "columns": _ask_for_columns,
}


def point(board: Board, gesture: Gesture, x: int, y: int, moved: int = 0) -> None:
    """What the mouse does at x, y of the body. `moved`: columns it was dragged by."""
    wheel = gesture in ("up", "down")
    match board.area:
        case "page" | "runs" if wheel:
            for _ in range(3):
                act(board, gesture)
        case "runs" if y == 1:
            column = runs.column_at(board, x)
            if column is not None and column != "curve":
                board.message = ""
                board.sort_by(column)
        case "runs" if (row := runs.row_at(board, y)) is not None:
            board.table.cursor = row.path
            if gesture == "double":
                act(board, "open")
            elif gesture == "click" and x < 3:
                act(board, "space")
        case "inside" if wheel:
            act(board, gesture)
        case "inside" if y == 0 and (page := inside.page_at(x, board.size[0])) is not None:
            board.inside.page = page
        case "inside":
            board.inside.point(x, y - 1)
            if gesture == "double":
                act(board, "open")
        case "artifacts" if wheel:
            board.artifact_page.scroll(-3 if gesture == "up" else 3)
        case "artifacts":
            if artifacts.select_at(board, x, y) and gesture == "double":
                act(board, "open")
        case "grid" if wheel:
            act(board, "page_back" if gesture == "up" else "page_on")
        case "grid":
            _point_at_chart(board, gesture, x, y - (1 if len(board.watched_runs) > 1 else 0))  # below the legend
        case "detail":
            x_value = board.zoom.x_at(x)
            if wheel:
                board.zoom.scale(0.8 if gesture == "up" else 1.25, around=x_value)
            elif gesture == "drag":
                board.zoom.move(-moved / board.zoom.columns[1])
            else:
                board.zoom.cursor = x_value
            board.ask_for_rows()


def _point_at_chart(board: Board, gesture: Gesture, x: int, y: int) -> None:
    for cell in board.layout().page_of(board.chosen()):
        if cell.x <= x < cell.x + cell.width and cell.y <= y < cell.y + cell.height:
            if gesture == "double" or (gesture == "click" and cell.name == board.selected):
                board.open_metric(cell.name)
            elif gesture == "click":
                board.selected = cell.name
