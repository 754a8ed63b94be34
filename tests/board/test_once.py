"""One frame for a pipe, and what the command refuses."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from linnet.board.terminal.state import Board
from linnet.board.terminal.views.screen import print_frame
from linnet.cli import main
from linnet.runs import RunStore


def test_one_frame_is_printed_for_pipes(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "latest", "--once", "--size", "100x30"]) == 0
    out = capsys.readouterr().out
    assert "✓ completed" in out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 30
    assert max(map(len, out.splitlines())) <= 100
    assert main(["board", "--runs", str(trained.parent), "--once"]) == 0
    assert " 1 run\n" in capsys.readouterr().out
    assert main(["board", "--once", "--key", "loss"]) == 0
    assert "smoothing off" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["board", "--key", "los"], "did you mean loss"),
        (["board", "--once", "--size", "9x9"], "from 20x8"),
        (["board", "nobody"], "no run 'nobody'"),
        (["board", "--runs", "nowhere"], "there is no folder nowhere"),
        (["board"], "needs a terminal"),
    ],
)
def test_wrong_usage_is_told(trained: Path, arguments: list[str], complaint: str, capsys: Any) -> None:
    assert main(arguments) != 0
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("view", ["checkpoints", "config", "log", "samples", "notes", "system", "metrics"])
def test_a_tab_opens_the_newest_run_of_a_folder(trained: Path, view: str, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ([], ["--runs", str(trained.parent)]):
        assert main(["board", "--once", "--view", view, *folder]) == 0
        assert trained.name in capsys.readouterr().out.splitlines()[0]
    assert main(["board", "--once", "--key", "loss", "--runs", str(trained.parent)]) == 0
    assert "smoothing off" in capsys.readouterr().out
    assert main(["board", "--once", "--view", "runs", "--runs", str(trained.parent)]) == 0
    assert " 1 run\n" in capsys.readouterr().out


def test_no_runs_yet(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", "--once"]) == 0
    assert "no runs in" in capsys.readouterr().out


def test_a_frame_goes_into_a_pipe_of_any_encoding(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", pipe)
    print_frame(Board(RunStore(trained.parent), [trained]), 80, 24, "dark")
    pipe.flush()
    assert b"1 loss" in pipe.buffer.getvalue()  # type: ignore[attr-defined]
