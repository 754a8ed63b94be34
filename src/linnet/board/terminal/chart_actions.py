"""What keys do about charts: which come first, which are hidden, in which order; and the runs of a list as points."""

from __future__ import annotations

from linnet.board.terminal.state import Board


def pin_or_plot(board: Board) -> None:
    """The chart that is selected stands first, or not any more; of the list, its runs as points."""
    if board.view == "runs" and board.overlay in ("", "scatter"):
        board.lay_over("scatter")
    elif board.area in ("grid", "detail") and (name := board.chosen()) is not None:
        board.selected = name
        trouble = board.charts.toggle_pin(name)
        pinned = name in board.charts.preferences.pinned
        board.message = trouble or ("pinned" if pinned else "not pinned any more")


def plot_runs(board: Board) -> None:
    """The runs of the list as points."""
    board.show("runs")
    board.lay_over("scatter")


def take_best(board: Board) -> None:
    """Of the points of a list: the best value of each run, or the last."""
    board.scatter.best = not board.scatter.best


def hide(board: Board) -> None:
    """No chart for the metric that is selected, or one again; the next is selected."""
    if board.area != "grid" or (name := board.chosen()) is None:
        return
    names = board.names()
    at = names.index(name)
    board.message = board.charts.toggle_hidden(name)
    if name in board.charts.preferences.hidden and not board.charts.show_hidden:
        board.selected = next(iter(names[at + 1 : at + 2] or names[max(0, at - 1) : at]), None)
        board.message = board.message or f"{name} is hidden; H shows what is"


def show_hidden(board: Board) -> None:
    """Charts for what is hidden or constant too, or not any more."""
    board.charts.show_hidden = not board.charts.show_hidden


def move_chart(board: Board, by: int) -> None:
    """Move the chart that is selected."""
    if board.area == "grid" and (name := board.chosen()) is not None:
        board.selected = name
        board.message = board.charts.move(name, by, board.groups())


def unfold_constants(board: Board) -> None:
    """Charts for constants, or a line again."""
    if board.area == "grid":
        board.message = board.charts.toggle_constants()


def reset_charts(board: Board) -> None:
    """Forget what was pinned, hidden, moved and filtered."""
    if board.area == "grid":
        board.message = board.charts.reset() or "all charts in their usual order"
