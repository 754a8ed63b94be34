"""The runs of the board's list as points: a metric against a setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.board.terminal.actions import act
from linnet.board.terminal.state import Board
from tests.board.conftest import END, board_of, look, read, steps, write


@pytest.fixture
def sweep(root: Path) -> Path:
    """Three rates with two seeds each; the last value of each run is another than its best."""
    for rate, value in ((1e-4, 4.0), (1e-3, 2.0), (1e-2, 3.0)):
        for seed in (1, 2):
            losses = {5: value - 1, 10: value}
            events = steps(10, loss=lambda step, known=losses, last=value: known.get(step, last + 1))
            events.append({"kind": "eval", "t": 10.0, "step": 10, "name": "validation", "loss": value + 0.5})
            config = {"lr": rate, "seed": seed, "width": 64 * seed}
            write(root / f"lr{rate:g}-{seed}", [*events, END], config=config, experiment="sweep")
    return root


def plotted(root: Path) -> Board:
    board = board_of(root, view="runs")
    act(board, "pin")
    return read(board)


def test_p_draws_the_list_against_the_learning_rate(sweep: Path) -> None:
    board = plotted(sweep)
    text = look(board, 80, 24)
    assert "validation/loss against lr" in text
    assert text.count("●") == 3 and "0.0001" in text and "0.01" in text
    assert "x setting" in text and "[ ] metric" in text and "b best or last" in text
    act(board, "back")
    assert board.overlay == "" and board.view == "runs"


def test_another_setting_another_metric_and_the_best(sweep: Path) -> None:
    board = plotted(sweep)
    act(board, "page_on")
    assert "loss against lr" in look(read(board)).replace("validation/loss", "")
    act(board, "best_or_last")
    text = look(read(board))
    assert "best(loss) against lr" in text
    board.scatter.next_setting()
    assert "against width" in look(read(board))
    act(board, "log_scale")
    read(board)
    assert board.scatter.scatter is not None and board.scatter.scatter.log
    assert not board.log_scale, "the charts' own scale is another matter"


def test_marked_and_filtered_runs_only(sweep: Path) -> None:
    board = board_of(sweep, view="runs")
    board.answer("") if board.asking else None
    board.table.filter = "lr0.001"
    act(board, "pin")
    read(board)
    assert board.scatter.scatter is not None
    assert sum(len(group.values) for group in board.scatter.scatter.groups) == 2


def test_runs_that_differ_in_nothing_say_so(root: Path) -> None:
    for name in ("a", "b"):
        write(root / name, [*steps(5), END], config={"lr": 1.0})
    assert "these runs have not settings that differ" in look(plotted(root))


def test_a_run_that_is_new_or_goes_on_appears(sweep: Path) -> None:
    board = plotted(sweep)
    board.run_table.scan_seconds = board.run_table.scan_pause = 0.0
    write(sweep / "late", [*steps(10, loss=lambda step: 1.0), END], config={"lr": 0.1, "seed": 1, "width": 64})
    act(board, "page_on")
    assert "0.1" in look(read(board))


@pytest.mark.parametrize("size", [(20, 8), (40, 12), (80, 24), (200, 60)])
def test_every_size_is_filled_to_the_letter(sweep: Path, size: tuple[int, int]) -> None:
    look(plotted(sweep), *size)


def test_hostile_settings_do_not_steer(root: Path) -> None:
    for at, name in enumerate(("\x1b[31mred", "b" * 300, "\u202eback")):
        write(root / f"r{at}", [*steps(5), END], config={"optimizer": name})
    text = look(plotted(root), 80, 24)
    assert "\x1b" not in text and "\u202e" not in text and "␛[31mred" in text
