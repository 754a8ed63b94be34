"""`run.config`, `run.summary`, and runs that are switched off."""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.cli import main


def on_disk(run: linnet.Session) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.run_dir / "run.json").read_text())
    return found


def test_a_run_that_is_opened_has_what_was_said_of_it(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", group="seeds", parent="older", system_every=0) as run:
        run.summary["best_accuracy"] = 0.97
    opened = linnet.open(tmp_path / "a")
    assert (opened.summary, opened.group, opened.parent) == ({"best_accuracy": 0.97}, "seeds", "older")


def test_a_summary_is_written_at_once_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        run.summary["best_accuracy"] = 0.97
        assert on_disk(run)["summary"] == {"best_accuracy": 0.97}
        assert dict(run.summary) == {"best_accuracy": 0.97}
    assert linnet.open(tmp_path / "a").manifest.summary == {"best_accuracy": 0.97}
    assert main(["show", str(tmp_path / "a")]) == 0
    assert "best_accuracy 0.97" in capsys.readouterr().out
    assert main(["show", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == {"best_accuracy": 0.97}


def test_many_changes_cost_few_writes_and_the_last_one_stands(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        began = time.perf_counter()
        for step in range(2000):
            run.summary["step"] = step
        assert time.perf_counter() - began < 2.0
    assert on_disk(run)["summary"] == {"step": 1999}


@dataclass
class Settings:
    lr: float = 1e-3


def test_a_config_is_updated_from_what_a_program_has(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", config={"lr": 1.0, "seed": 1}, system_every=0) as run:
        run.config.update(Settings())
        run.config.update(argparse.Namespace(batch=8), allow_val_change=True)
        run.config.update({"nested": {"a": 1}}, api_key="abc-very-secret")
        run.config["ctx"] = 64
        del run.config["seed"]
    config = on_disk(run)["config"]
    assert config.pop("api_key") != "abc-very-secret"
    assert config == {"lr": 1e-3, "batch": 8, "nested": {"a": 1}, "ctx": 64}


def test_no_value_and_no_folder_makes_a_summary_raise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("no")

    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        run.summary.update({"nan": float("nan"), "hostile": Hostile(), "set": {1}})
        del run.summary["never there"]
        run.summary.update(3)
    summary = linnet.open(tmp_path / "a").manifest.summary
    assert summary["set"] == [1]
    assert summary["hostile"] == "<Hostile>"


def test_a_forked_child_changes_nothing_on_the_disk(tmp_path: Path) -> None:
    with linnet.start(tmp_path, run_id="a", system_every=0) as run:
        child = os.fork()
        if child == 0:
            run.summary["child"] = 1
            os._exit(0)
        os.waitpid(child, 0)
        assert "summary" not in on_disk(run)


def use_everything(run: linnet.Session, file: Path) -> None:
    """Every method that a loop may call."""
    run.log(1, loss=2.0)
    run.log({"val": {"acc": 0.5}})
    run.step(2, 1.5, lr=0.1)
    run.scalars(2, {"a": 1})
    run.eval(2, "validation", loss=1.0, ppl=2.7)
    run.sample(2, "a", "b")
    run.note("hello")
    run.artifact(file)
    run.image(2, "image", [[0, 1], [1, 0]])
    run.table(2, "table", [{"a": 1}])
    run.histogram(2, "histogram", [1, 2, 3], bins=4)
    run.text(2, "text", "hello")
    run.audio(2, "audio", [0.0, 0.5], rate=8000)
    run.system({"cpu": 1})
    run.heartbeat()
    run.tap(2, "x", None, None, l2=1.0)
    run.grad(2, "x", l2=1.0)
    run.drift(2, "x", 1.0, 0.0)
    run.op_timing(2, 10, {"a": 10})
    run.compare(2, "other", 0.1, 1.0, "par")
    run.align(2, 0, 0, "w", 1.0, 1.0, 1.0)
    run.mask(2, 0, 0, 0.5)
    run.git("abc", "main")
    run.gate("loss", 1.0, 2.0, True)
    with run.region(2, "forward"):
        pass
    run.config.update(lr=1)
    run.summary["best"] = 1
    run.resume(2)
    run.run_start("llama")
    assert run.checkpoint(object(), 2) is None
    (run.weights_dir / "x").write_text("kept by nobody")
    (run.artifacts_dir / "x").write_text("kept by nobody")
    assert run.events_path.parent == run.run_dir and run.root == run.run_dir.parent
    assert (run.git_sha, run.git_branch, run.active) == ("abc", "main", False)
    repr(run)


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_disabled_run_takes_every_call_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    root, file = tmp_path / "runs", tmp_path / "file.txt"
    file.write_text("mine")
    if by == "environment":
        monkeypatch.setenv("LINNET_MODE", "disabled")
    mode = "disabled" if by == "argument" else None
    with caplog.at_level(logging.WARNING, "linnet"), linnet.start(root, config={"lr": 1}, mode=mode) as run:
        use_everything(run, file)
        folder = run.run_dir
        assert dict(run.config) == {"lr": 1}
        assert dict(run.summary) == {"best": 1}
    assert not root.exists()
    assert not folder.exists()
    assert caplog.text == ""
    run.log(3, loss=1.0)  # after its end too
    assert list(tmp_path.iterdir()) == [file]


def test_mode_enabled_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_MODE", "disabled")
    linnet.start(tmp_path, run_id="a", mode="enabled", system_every=0).finish()
    assert linnet.open(tmp_path / "a").status == "completed"


def test_a_mode_that_is_not_known_is_warned_about_and_the_run_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "linnet"):
        linnet.start(tmp_path, run_id="a", mode="disabeld", system_every=0).finish()
    assert "'disabeld' is not known: say enabled or disabled" in caplog.text
    assert linnet.open(tmp_path / "a").status == "completed"
