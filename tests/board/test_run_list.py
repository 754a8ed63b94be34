"""The list of runs as a table: the settings that differ, chosen metrics, any order, and the language of `--where`."""

from __future__ import annotations

from pathlib import Path

import pytest

import linnet
from linnet.board.terminal.actions import act, point
from linnet.board.terminal.spans import text_of
from linnet.board.terminal.state import Board
from linnet.board.terminal.views.screen import frame
from linnet.runs import RunStore

WIDTH, HEIGHT = 140, 20


@pytest.fixture
def board(root: Path) -> Board:
    """Six runs of three rates and two seeds; the best accuracy lies in the middle of a run."""
    for number, (lr, seed) in enumerate((lr, seed) for lr in (0.1, 0.001, 0.01) for seed in (0, 1)):
        config = {"lr": lr, "seed": seed, "width": 32}
        with linnet.start(run_id=f"run-{number}", config=config, tags=["base"], total_steps=20, system_every=0) as run:
            for step in range(1, 21):
                run.log(step, loss=1 / step + lr, acc=1 - abs(step - 10) / 10 - lr)
    return Board(RunStore(root), view="runs")


def listed(board: Board) -> list[str]:
    """The runs on the screen once all is read, by their number."""
    lines = text_of(frame(board, WIDTH, HEIGHT)).splitlines()
    return [line.split("run-")[1][0] for line in lines[5:] if "run-" in line]


def head(board: Board) -> list[str]:
    return text_of(frame(board, WIDTH, HEIGHT)).splitlines()[4].split()


def test_the_settings_that_differ_are_columns(board: Board) -> None:
    assert head(board) == ["run", "status", "tags", "step", "last", "best", "lr", "seed", "age▼", "curve"]
    assert "0.001" in text_of(frame(board, WIDTH, HEIGHT))


def test_any_column_orders_the_runs(board: Board) -> None:
    listed(board)
    board.sort_by("config.lr")
    assert listed(board) == ["2", "3", "4", "5", "0", "1"]
    assert "lr▼" in head(board)
    act(board, "reverse")
    assert listed(board) == ["0", "1", "4", "5", "2", "3"]
    seen = set()
    while board.table.sort not in seen:  # `o` goes round the columns that are shown, one's own too
        seen.add(board.table.sort)
        act(board, "sort")
        assert board.table.sort in board.columns
        frame(board, WIDTH, HEIGHT)
    assert {"config.lr", "config.seed", "age", "best"} <= seen


def test_a_click_on_a_column_orders_by_it(board: Board) -> None:
    lines = text_of(frame(board, WIDTH, HEIGHT)).splitlines()
    x = lines[4].index(" lr ") + 1
    point(board, "click", x, 1)
    assert (board.table.sort, board.table.reverse) == ("config.lr", False)
    point(board, "click", x, 1)
    assert board.table.reverse


def test_columns_can_be_chosen_and_are_read(board: Board) -> None:
    act(board, "columns")
    assert board.asking == "columns"
    board.answer("best(acc),loss@10,acc")
    assert head(board)[6:11] == ["best(acc)", "loss@10", "acc", "lr", "seed"]
    row = next(line for line in text_of(frame(board, WIDTH, HEIGHT)).splitlines() if "run-0" in line)
    assert " 0.9 0.2 -0.1 0.1 0 " in " ".join(row.split())
    board.sort_by("best(acc)")  # more is better
    assert listed(board)[:2] == ["2", "3"]
    board.table.columns = "lr"
    assert "lr" in head(board)
    assert "seed" not in head(board)


@pytest.mark.parametrize(
    ("filter", "runs"),
    [
        ("run-3", ["3"]),
        ("lr>=0.01 and seed=1", ["1", "5"]),
        ("best(acc)>0.95 seed=0", ["2", "4"]),
        ("loss@10<0.15 or run-1", ["1", "2", "3", "4", "5"]),
        ("status:comp tag:ba not lr=0.1", ["2", "3", "4", "5"]),
        ("nothing-like-it", []),
    ],
)
def test_the_filter_is_the_language_of_where_and_words(board: Board, filter: str, runs: list[str]) -> None:
    board.asking = "filter"
    board.answer(filter)
    board.table.sort = "run"
    assert listed(board) == runs


@pytest.mark.parametrize("filter", ["loss<", "(lr=1", "los<2 and", "best(", "'"])
def test_a_filter_that_is_half_typed_hides_nothing_and_says_why(board: Board, filter: str) -> None:
    board.table.filter = filter
    shown = text_of(frame(board, WIDTH, HEIGHT))
    assert "run-0" in shown
    assert board.table.problem
    assert board.table.problem[:20] in shown


def test_a_column_that_nobody_has_is_empty_and_an_unknown_word_is_told(board: Board) -> None:
    board.table.columns = "nonsense"
    assert "nonsense" in head(board)
    board.table.columns = "worst(loss)"
    assert "worst() of a metric does not exist" in text_of(frame(board, WIDTH, HEIGHT))


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_every_width_shows_the_order_it_has(board: Board, width: int) -> None:
    lines = text_of(frame(board, width, HEIGHT)).splitlines()
    assert max(map(len, lines)) <= width
    assert "age▼" in lines[4]


def test_columns_that_were_chosen_stay_where_there_is_little_room(board: Board) -> None:
    board.table.columns = "loss@20,best(acc),lr"
    frame(board, 80, 24)  # the streams are read
    text = text_of(frame(board, 80, 24))
    assert [name for name in text.splitlines()[4].split() if name in ("loss@20", "best(acc)", "lr")] == [
        "loss@20",
        "best(acc)",
        "lr",
    ]
    assert "no room for" not in text and "status" in text
    board.table.columns = "loss@20,best(acc),best(loss),max(loss),lr"
    assert text_of(frame(board, 80, 24)).splitlines()[4].split() == [
        "run",
        "loss@20",
        "best(acc)",
        "best(loss)",
        "max(loss)",
        "lr",
    ]


def test_a_name_that_no_run_has_is_said_and_hides_nothing(board: Board) -> None:
    board.table.filter = "lrr<2"
    listed(board)
    assert sorted(listed(board)) == ["0", "1", "2", "3", "4", "5"]
    said = text_of(frame(board, WIDTH, HEIGHT))
    assert "no run here has a setting or metric 'lrr'; did you mean lr?" in said
    board.table.filter = "lr<0.005"
    assert sorted(listed(board)) == ["2", "3"]
    assert "no run here" not in text_of(frame(board, WIDTH, HEIGHT))
