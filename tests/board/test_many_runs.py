"""A table of many runs reads what it shows, and no more."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from linnet.board.initial_scan import InitialScan
from linnet.board.terminal.actions import act
from linnet.board.terminal.reader import Reader
from linnet.board.terminal.spans import text_of
from linnet.board.terminal.state import Board
from linnet.board.terminal.views.screen import frame
from linnet.runs import RunStore
from tests.board.conftest import BEGAN, steps, write

RUNS, HEIGHT = 120, 24


@pytest.fixture
def board(root: Path) -> Board:
    end = {"kind": "run_end", "t": 30.0, "reason": "completed"}
    for number in range(RUNS):
        events = [*steps(20, loss=lambda step, number=number: number + 1 / step), end]  # type: ignore[misc]
        write(root / f"run-{number:03d}", events, created_at=BEGAN + number)
    return Board(RunStore(root), view="runs")


def _read_whole(board: Board) -> set[str]:
    return {row.summary.run_id for row in board.run_table.rows if row.best is not None}


def test_all_runs_are_listed_and_those_on_the_screen_are_complete(board: Board) -> None:
    board.table.sort = "run"
    shown = text_of(frame(board, 120, HEIGHT))
    assert f" {RUNS} runs" in shown
    assert "reading" not in shown
    on_screen = {row.summary.run_id for row in board.run_table.rows if row.summary.run_id in shown}
    assert 10 < len(on_screen) < HEIGHT
    assert _read_whole(board) == on_screen
    assert "0.05" in shown.split("run-000")[1].splitlines()[0]


def test_a_page_further_the_next_runs_are_read(board: Board) -> None:
    board.table.sort = "run"
    frame(board, 120, HEIGHT)
    for _ in range(2):
        act(board, "page_on")
    shown = text_of(frame(board, 120, HEIGHT))
    assert "run-020" in shown
    assert {row.summary.run_id for row in board.run_table.rows if row.summary.run_id in shown} <= _read_whole(board)


def test_sorted_by_the_best_value_all_are_read(board: Board) -> None:
    board.table.sort, board.table.reverse = "best", True
    shown = text_of(frame(board, 120, HEIGHT))
    assert len(_read_whole(board)) == RUNS
    assert shown.index("run-119") < shown.index("run-118")


def test_runs_that_did_not_change_are_not_looked_at_again(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    frame(board, 120, HEIGHT)
    monkeypatch.setattr("linnet.board.run_table.summarize", lambda folder: pytest.fail(f"{folder} was read again"))
    board.run_table.scan_seconds = board.run_table.scan_pause = 0.0
    assert not Reader(board, lambda: None).read_once()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reader looks by itself")
def test_another_process_looks_at_the_runs_first(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    Reader(board, lambda: None).read_once()
    early = Board(board.store, view="runs", initial_scan=InitialScan(board.store))
    with monkeypatch.context() as patch:
        patch.setattr("linnet.board.run_table.summarize", lambda folder: pytest.fail(f"{folder} was read again"))
        assert Reader(early, lambda: None).read_once()
    assert [(row.summary, row.stamp) for row in early.rows()] == [(row.summary, row.stamp) for row in board.rows()]
    write(board.store.root / "later", [{"kind": "run_end", "t": 1.0, "reason": "completed"}], created_at=BEGAN)
    early.run_table.scan_seconds = early.run_table.scan_pause = 0.0
    assert Reader(early, lambda: None).read_once()
    assert len(early.rows()) == RUNS + 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reader looks by itself")
def test_where_that_process_dies_the_runs_are_listed_all_the_same(root: Path, board: Board) -> None:
    initial_scan = InitialScan(board.store)
    os.kill(initial_scan.process, signal.SIGKILL)
    early = Board(board.store, view="runs", initial_scan=initial_scan)
    Reader(early, lambda: None).read_once()
    assert len(early.rows()) == RUNS


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reader looks by itself")
def test_a_starter_that_ignores_dead_children_changes_nothing(board: Board) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        runs = InitialScan(board.store).result()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert runs is not None and len(runs) == RUNS


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reader looks by itself")
def test_where_no_process_can_be_had_the_reader_looks(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    early = Board(board.store, view="runs", initial_scan=InitialScan(board.store))
    Reader(early, lambda: None).read_once()
    assert len(early.rows()) == RUNS
