"""A long stream read with workers gives what it gives without, whatever becomes of them or of the file."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from linnet.runs import Metrics, Run, decoding, examine
from linnet.runs.lines import LineReader

OTHERS = [
    {"kind": "eval", "name": "validation", "loss": 1.5},
    {"kind": "resume"},
    {"kind": "note", "text": "so far"},
    {"kind": "step", "loss": 2.0, "lr": None},
    {"kind": "goal", "metric": "lr", "goal": "max"},
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LineReader, "block_bytes", 4 << 10)


def write_stream(file: Path, steps: int = 3000, seed: int = 0) -> None:
    """Steps with something else between them now and then, and a damaged line."""
    pick = random.Random(seed)
    written = [json.dumps({"kind": "run_start", "t": 0.0, "run_id": file.parent.name})]
    for step in range(steps):
        if pick.random() < 0.01:
            written.append(json.dumps({**pick.choice(OTHERS), "t": step / 8, "step": step}))
        written.append(json.dumps({"kind": "step", "t": step / 8, "step": step, "loss": pick.random(), "lr": 0.5}))
    written[steps // 2] = written[steps // 2][:20]
    file.write_text("\n".join(written) + "\n")


def same(one: Metrics, other: Metrics) -> bool:
    """Do both hold the same rows, and say the same of the stream?"""
    facts = [(found.names(), found.damaged, found.last_step, found.goals) for found in (one, other)]
    return facts[0] == facts[1] and all(
        np.array_equal(getattr(one[name], key), getattr(other[name], key), equal_nan=True)
        for name in one.names()
        for key in ("step", "t", "value", "epoch")
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_rows_and_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    file = tmp_path / "events.jsonl"
    write_stream(file, seed=seed)
    alone, judged = _alone(file), examine(Run.load(tmp_path), workers=0)
    asked: list[int] = []
    monkeypatch.setattr(decoding, "segments", _counting(asked))
    assert same(_with_workers(file), alone)
    assert examine(Run.load(tmp_path), workers=2) == judged
    assert len(asked) < 2 * (file.stat().st_size // LineReader.block_bytes)  # the workers have done some


def _counting(asked: list[int]):  # type: ignore[no-untyped-def]
    real = decoding.segments

    def segments(block: bytes) -> Iterator[decoding.Segment]:
        asked.append(len(block))
        return real(block)

    return segments


def test_workers_that_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stream(tmp_path / "events.jsonl")
    alone = _alone(tmp_path / "events.jsonl")
    real, killed = decoding._Worker.ask, []

    def ask(self: decoding._Worker, offset: int, length: int) -> None:
        if offset > 20_000 and not killed:
            os.kill(self.process.pid, signal.SIGKILL)
            killed.append(self.process.pid)
        real(self, offset, length)

    monkeypatch.setattr(decoding._Worker, "ask", ask)
    assert same(_with_workers(tmp_path / "events.jsonl"), alone)
    assert killed


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/true"])
def test_no_python_for_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    write_stream(tmp_path / "events.jsonl")
    monkeypatch.setattr(sys, "executable", python)
    assert same(_with_workers(tmp_path / "events.jsonl"), _alone(tmp_path / "events.jsonl"))


def test_a_stream_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, new = tmp_path / "events.jsonl", tmp_path / "new.jsonl"
    write_stream(file, seed=1)
    write_stream(new, steps=2000, seed=2)
    alone = _alone(new)
    real, looked = LineReader.read_block, []

    def read_block(self: LineReader) -> bytes:
        looked.append(self.position)
        if len(looked) == 20:
            new.replace(file)
        return real(self)

    monkeypatch.setattr(LineReader, "read_block", read_block)
    assert same(_with_workers(file), alone)
    assert not new.exists()


def _alone(file: Path) -> Metrics:
    return Metrics(file, cached=False, workers=0)


def _with_workers(file: Path) -> Metrics:
    return Metrics(file, cached=False, workers=2)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted by /proc")
def test_nothing_stays_open_and_no_process_is_left(tmp_path: Path) -> None:
    write_stream(tmp_path / "events.jsonl", steps=500)
    gc.disable()
    try:
        before, children = len(list(Path("/proc/self/fd").iterdir())), psutil.Process().children()
        for _ in range(5):
            assert len(_with_workers(tmp_path / "events.jsonl")["loss"].value)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert psutil.Process().children() == children
    finally:
        gc.enable()


def test_a_short_stream_needs_no_workers() -> None:
    assert decoding.workers_for(1 << 20) == 0
