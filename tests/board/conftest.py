from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from linnet.board.downsampling import DownsamplingLimits
from linnet.board.terminal.keys import View
from linnet.board.terminal.reader import Reader
from linnet.board.terminal.spans import Line, length, text_of
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import screen
from linnet.board.terminal.views.screen import frame
from linnet.runs import RunStore

Event = dict[str, Any]
BEGAN = 1_780_000_000.0


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def write(folder: Path, events: Iterable[Event | bytes], **manifest: Any) -> Path:
    """A run folder with exactly these lines: nothing in it depends on when it was made."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"schema_version": 1, "run_id": folder.name, "created_at": BEGAN, "tags": []}
    about |= {"provenance": {"host": "trainer"}, **manifest}
    (folder / "run.json").write_text(json.dumps(about))
    append(folder, events)
    return folder


def append(folder: Path, events: Iterable[Event | bytes]) -> None:
    """More lines for a run."""
    with (folder / "events.jsonl").open("ab") as file:
        for event in events:
            file.write(event if isinstance(event, bytes) else json.dumps(event).encode())
            file.write(b"\n")


def steps(count: int, first: int = 1, **values: Callable[[int], float]) -> list[Event]:
    """Training steps; a second each."""
    values = values or {"loss": lambda step: 2 + 6 / step}
    return [
        {"kind": "step", "phase": "train", "t": float(step), "step": step} | {k: f(step) for k, f in values.items()}
        for step in range(first, first + count)
    ]


END = {"kind": "run_end", "t": 400.0, "reason": "completed", "final_step": 400, "exit_code": 0}


FIGURES: Event = {
    "cpu": {"percent": 42.0, "user": 30.0, "system": 12.0},
    "memory": {"used": 8e9, "total": 16e9},
    "process": {"cpu": 180.0, "rss": 1.5e9},
    "disk": {"percent": 60.0, "free": 4e11, "read_bps": 1e6},
    "gpus": [{"percent": 90, "memory_used": 6e9, "memory_total": 8e9, "power": 220.0, "temperature": 71}],
}


def training(noise: float = 0.3) -> list[Event]:
    """A run as a trainer leaves it: steps, evaluations, the machine, samples, a note, an end."""
    events: list[Event] = [{"kind": "run_start", "schema": "toy/v1", "t": 0.0, "started_at": "2026-05-28T20:26:40Z"}]
    for step in range(1, 401):
        loss = 2.2 + 5.5 * math.exp(-step / 60) + noise * math.sin(step * 12.9898)
        at = {"t": float(step), "step": step}
        values = {"loss": loss, "lr": 3e-4 * min(1, step / 40), "grad_norm": 1 + math.cos(step), "tokens": 1024}
        values |= {"tokens_per_s": 5815.0, "mfu": 0.43, "epoch": step / 200}
        events.append({"kind": "step", "phase": "train", **at, **values})
        if step % 50 == 0:
            events.append({"kind": "eval", "phase": "eval", **at, "name": "validation", "loss": loss + 0.1})
            events.append({"kind": "system", "t": float(step), **FIGURES})
        if step % 200 == 0:
            events.append({"kind": "sample", **at, "prompt": "def main(", "text": "):\n    pass"})
    events.append({"kind": "note", "t": 400.0, "text": "the good seed; keep", "at": "2026-05-28T20:33:20Z"})
    return [*events, END]


ABOUT: dict[str, Any] = {
    "recipe": "from-scratch",
    "experiment": "width",
    "tags": ["wide", "seed3"],
    "total_steps": 400,
    "total_epochs": 2,
    "config": {"lr": 0.0003, "batch": 8},
    "model": {"arch": "llama", "d_model": 192},
}


@pytest.fixture
def trained(root: Path) -> Path:
    """One completed run."""
    return write(root / "llama-20260528-001", training(), **ABOUT)


def board_of(root: Path, *runs: str, view: View = "metrics", limits: DownsamplingLimits | None = None) -> Board:
    """A board on these runs, with everything read."""
    store = RunStore(root)
    board = Board(store, [store.find(run).path for run in runs], view, limits=limits)
    frame(board, 120, 40)
    return board


def look(board: Board, width: int = 120, height: int = 40) -> str:
    """The whole screen as text; every line of it exactly as wide as the screen."""
    lines = screen.whole(board, width, height)
    assert [length(line) for line in lines] == [width] * height
    return text_of(lines)


def read(board: Board, rounds: int = 3) -> Board:
    """Let the board look at its files again."""
    reader = Reader(board, lambda: None)
    for watched in board.watched_runs:
        watched.scan_seconds = 0.0
    for _ in range(rounds):
        reader.read_once()
    return board


def styles(lines: list[Line]) -> set[str]:
    return {style for line in lines for text, style in line if text.strip()}
