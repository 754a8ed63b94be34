"""A run that was made and not yet logged into: `Run.create`, and a writer killed before its first event."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import linnet
from linnet.runs import Run, RunBundle, RunError, add_note, examine
from tests.runs.conftest import lines_of


def test_a_created_run_is_logged_into_by_resuming_it(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Run.create(root, arch="mlp", config={"lr": 0.1}, tags=["demo"])
    session = linnet.start(root, resume=made.id, total_steps=5, system_every=0)
    session.log(1, loss=1.0)
    session.finish()
    lines = lines_of(made.path)
    assert [line["kind"] for line in lines] == ["run_start", "step", "run_end"]
    assert (lines[0]["model"], lines[0]["config"]) == ({"arch": "mlp"}, {"lr": 0.1})
    run = linnet.open(made.id)
    assert (run.status, run.tags, run.manifest.total_steps) == ("completed", ["demo"], 5)
    assert examine(run).sound
    assert not caplog.records


def test_a_run_killed_between_manifest_and_first_event_goes_on(root: Path) -> None:
    program = f"""
import os, signal
from linnet.runs import RunBundle
RunBundle({str(root)!r}, "a", config={{"lr": 0.1}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert (root / "a/run.json").exists()
    with linnet.start(resume="a", from_step=4, system_every=0) as run:
        run.log(loss=0.5)
    assert [line["kind"] for line in lines_of(root / "a")] == ["run_start", "step", "run_end"]
    assert linnet.open("a").metrics()["loss"].step.tolist() == [5]
    assert examine(linnet.open("a")).sound


def test_events_are_appended_to_a_created_run_as_kaun_board_does(root: Path) -> None:
    run = Run.create(root, arch="mlp")
    run.append_event({"type": "scalar", "step": 1, "epoch": 1, "tag": "train/loss", "value": 0.5})
    run.append_event({"kind": "scalars", "step": 2, "values": {"train/loss": 0.4}})
    assert run.status == "live"
    run.append_event({"kind": "run_end", "reason": "completed", "final_step": 2, "final_loss": 0.4, "exit_code": 0})
    lines = lines_of(run.path)
    assert [line["kind"] for line in lines] == ["run_start", "scalars", "scalars", "run_end"]
    assert lines[1] == {"kind": "scalars", "t": lines[1]["t"], "step": 1, "values": {"train/loss": 0.5}, "epoch": 1}
    times = [line["t"] for line in lines]
    assert times == sorted(times)
    assert run.metrics()["train/loss"].value.tolist() == [0.5, 0.4]
    assert run.status == "completed"
    assert examine(run).sound


def test_an_event_appended_beside_a_writer_never_mixes_with_its_lines(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as session:
        run = linnet.open("a")
        for step in range(1, 200):
            session.log(step, loss=1.0)
            run.append_event({"kind": "eval", "step": step, "name": "other", "loss": 2.0})
    lines = lines_of(root / "a")
    assert [line["kind"] for line in lines].count("run_start") == 1
    assert [line["step"] for line in lines if line["kind"] == "eval"] == list(range(1, 200))
    assert examine(run).sound


def test_a_note_on_a_run_without_events_comes_after_run_start(root: Path) -> None:
    run = Run.create(root)
    add_note(run, "to be trained on Monday")
    assert [line["kind"] for line in lines_of(run.path)] == ["run_start", "note"]


def test_an_event_without_a_kind_is_refused(root: Path) -> None:
    run = Run.create(root)
    with pytest.raises(RunError, match="needs a kind, such as scalars"):
        run.append_event({"step": 1})
    assert not run.events_path.exists()


def test_a_run_tells_what_it_is(root: Path) -> None:
    run = Run.create(root, name="first", experiment="e", tags=["x"], config={"lr": 1}, total_epochs=3)
    assert (run.name, run.experiment, run.tags, run.config, run.total_epochs) == ("first", "e", ["x"], {"lr": 1}, 3)
    assert run.created_at == pytest.approx(run.path.stat().st_mtime, abs=60)
    bundle = RunBundle(root, "b")
    bundle.git("a" * 40, "main")
    assert (bundle.root, bundle.git_sha, bundle.git_branch) == (root, "a" * 40, "main")
    bundle.run_end()


def test_runs_and_metrics_show_themselves(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as session:
        assert repr(session) == "<Session a: open>"
        session.log(3, loss=0.5, lr=0.1)
        assert repr(session) == "<Session a: step 3, loss 0.5, open>"
    run = linnet.open("a")
    assert repr(run) == "<Run a: completed, step 3, loss 0.5>"
    assert repr(run.metrics()) == "<Metrics: loss, lr>"
    assert repr(run.metrics()["loss"]) == "<Series loss: 1 point, latest 0.5 at step 3, best 0.5 at step 3>"


def test_a_manifest_that_cannot_be_read_is_named(root: Path) -> None:
    (root / "a").mkdir(parents=True)
    (root / "a/run.json").write_text('{"run_id": "a", "con')
    with pytest.raises(RunError, match=r"run\.json"):
        Run.load(root / "a")


def test_resuming_a_run_with_a_broken_manifest_says_so(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=0.5)
    (root / "a/run.json").write_text("{")
    with linnet.start(resume="a", system_every=0) as beside:
        pass
    assert beside.run_id == "a-2"
    assert "run.json cannot be read; this run goes on beside it" in caplog.text


def test_a_program_that_changes_its_folder_keeps_writing_into_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with linnet.start("runs", run_id="a", system_every=0) as run:
        monkeypatch.chdir(tmp_path / "elsewhere")
        run.log(1, loss=0.5)
        assert run.weights_dir == tmp_path / "runs/a/weights"
        run.artifact(tmp_path / "runs/a/run.json", name="copy.json")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert json.loads((tmp_path / "runs/a/artifacts/copy.json").read_text())["run_id"] == "a"
    assert Run.create(".").path.parent == tmp_path / "elsewhere"
