"""Families of runs: the tree of `linnet runs --tree`, and the lines that a fork has from its ancestors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

import linnet
from linnet.board.inherited import inherited_curves
from linnet.board.terminal.actions import act
from linnet.board.terminal.spans import text_of
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import chart
from linnet.board.terminal.views.screen import frame
from linnet.runs import Run, RunStore, RunSummary
from linnet.runs.family import ancestors, children_of, family_tree
from linnet.runs.manifest import Manifest
from tests.conftest import Printed, Said


def a_run(root: Path, name: str, steps: range, parent: str | None = None, parent_step: int | None = None) -> None:
    with linnet.start(root, run_id=name, parent=parent, parent_step=parent_step, system_every=0) as run:
        for step in steps:
            run.log(step, loss=100.0 - step + (0.5 if parent else 0.0), lr=1.0)


@pytest.fixture
def family(root: Path) -> Path:
    a_run(root, "base", range(1, 21))
    a_run(root, "low", range(11, 31), "base", 10)
    a_run(root, "lower", range(16, 21), "low", 15)
    a_run(root, "orphan", range(8, 10), "nobody", 7)
    return root


def test_runs_stand_below_their_parents(family: Path, printed: Printed) -> None:
    lines = printed("runs", "--tree").splitlines()
    assert [line.split("  completed")[0].rstrip() for line in lines[1:]] == [
        "base",
        "└─ low @10",
        "   └─ lower @15",
        "orphan (from nobody, which is gone)",
    ]
    shutil.rmtree(family / "base")
    assert "low (from base, which is gone)" in printed("runs", "--tree")


def test_a_tree_and_groups_are_two_orders(family: Path, said: Said) -> None:
    code, _, err = said("runs", "--tree", "--by", "lr")
    assert code == 2 and err.startswith("linnet: --tree and --by order the same rows in two ways")


def test_a_listing_for_programs_names_parent_and_step(family: Path, printed: Printed) -> None:
    low = next(run for run in json.loads(printed("runs", "--json")) if run["run_id"] == "low")
    assert (low["parent"], low["parent_step"]) == ("base", 10)
    assert "base@10" in printed("show", "low")


def test_the_line_of_a_fork_begins_with_its_ancestors(family: Path) -> None:
    curve = inherited_curves(Run.load(family / "lower"))["loss"]
    assert curve.step.tolist() == list(range(1, 16))
    assert curve.mean.tolist() == [100.0 - step + (0.5 if step > 10 else 0.0) for step in range(1, 16)]
    line = [(one.run.id, one.after, one.until) for one in ancestors(Run.load(family / "lower"))]
    assert line == [("low", 10, 15), ("base", -1, 10)]
    assert ancestors(Run.load(family / "orphan")) == [] and inherited_curves(Run.load(family / "base")) == {}


def test_the_board_shows_the_family_and_joins_the_lines(family: Path) -> None:
    board = Board(RunStore(family), [family / "low"])
    shown = text_of(frame(board, 80, 24))
    assert "from base@10" in shown and "fork lower" in shown
    assert board.watched is not None and board.watched.inherited
    board.open_metric("loss")
    joined = text_of(frame(board, 80, 24))
    assert [curve.step.tolist() for _, curve in chart.inherited_of(board, "loss")] == [list(range(1, 11))]
    act(board, "family")
    assert chart.inherited_of(board, "loss") == [] and text_of(frame(board, 80, 24)) != joined
    board.show("runs")
    assert "low  ← base@10" in text_of(frame(board, 120, 24))


@given(some.lists(some.integers(-1, 12), max_size=12))
def test_every_run_stands_in_the_tree_once(parents: list[int]) -> None:
    """Whatever the manifests say: circles, runs that are their own parent, parents that are gone."""
    summaries = [
        RunSummary(
            run_id=str(at),
            path=str(at),
            status="completed",
            manifest=Manifest(run_id=str(at), parent=None if parent < 0 else str(parent)),
        )
        for at, parent in enumerate(parents)
    ]
    members = family_tree(summaries)
    assert sorted(member.summary.run_id for member in members) == sorted(summary.run_id for summary in summaries)
    assert all(not member.lines or member.lines.endswith(("├─ ", "└─ ")) for member in members)
    assert all(child in [summary.run_id for summary in summaries] for child in children_of("0", summaries))


def test_a_parent_that_is_a_path_is_not_followed(root: Path) -> None:
    a_run(root, "a", range(1, 3), "../elsewhere", 1)
    assert ancestors(Run.load(root / "a")) == []
