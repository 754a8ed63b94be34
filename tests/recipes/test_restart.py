"""`--run-id X --resume auto`: the same command goes on after whatever ended it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.errors import LinnetError, UsageError
from linnet.recipes import restart
from tests.conftest import Printed, Said, digest, interrupt, losses

TRAINER = Path(__file__).parents[1] / "train/killed_trainer.py"


@pytest.fixture(autouse=True)
def _away_from_home(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def words(small: list[str]) -> list[str]:
    often = ["--steps", "9", "--checkpoint-every", "3", "--warmup", "2", "--eval-every", "4"]
    return [*small, *often, "--run-id", "a", "--resume", "auto"]


@contextmanager
def locked(run: str) -> Iterator[None]:
    """Another process writes the run meanwhile."""
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()

    def write() -> None:
        linnet.start(resume=run, system_every=0).log(1, loss=1.0)
        ready.set()
        done.wait()
        os._exit(0)

    writer = context.Process(target=write)
    writer.start()
    try:
        assert ready.wait(20)
        yield
    finally:
        done.set()
        writer.join()


def test_the_same_command_starts_goes_on_and_has_done(
    printed: Printed, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(*words, "--runs", "whole")
    interrupt(words, at="eval 4:")
    assert linnet.open("a").status == "interrupted"
    printed(*words)
    assert losses("a") == losses(str(tmp_path / "whole/a"))
    assert digest(Path("runs/a/weights/step_9.gguf")) == digest(Path("whole/a/weights/step_9.gguf"))
    assert "a completed its 9 steps before: nothing is left to do" in printed(*words)
    done = json.loads(printed(*words, "--json"))
    assert (done["run_id"], done["reason"], done["steps"]) == ("a", "completed", 9)
    assert [folder.name for folder in Path("runs").iterdir()] == ["a"]


def test_killed_at_random_moments_the_same_command_gives_the_same_weights(
    printed: Printed, small: list[str], tmp_path: Path
) -> None:
    words = [*small, "--steps", "60", "--checkpoint-every", "15", "--eval-every", "30", "--run-id", "a"]
    printed(*words, "--runs", "whole")
    done = subprocess.run(
        [sys.executable, str(TRAINER), "3", "3", *words, "--resume", "auto"],
        env={**os.environ, "LINNET_RUNS": str(tmp_path / "killed")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip().endswith("last 0"), done.stdout + done.stderr
    assert losses(str(tmp_path / "killed/a")) == losses(str(tmp_path / "whole/a"))
    assert digest(Path("killed/a/weights/step_60.gguf")) == digest(Path("whole/a/weights/step_60.gguf"))
    assert [folder.name for folder in Path("killed").iterdir()] == ["a"]


def test_a_folder_without_a_checkpoint_is_begun_again(printed: Printed, words: list[str]) -> None:
    printed(*words, "--runs", "whole")
    Path("runs/a").mkdir(parents=True)  # killed between the folder and its manifest
    (Path("runs/a") / ".run.json.0123456789ab.linnet-partial").write_text("{")
    interrupt(words, at="eval 4:")
    for file in [*Path("runs/a/weights").iterdir(), *Path("runs/a/state").iterdir()]:
        file.unlink()  # as if it had been killed before its first
    printed(*words)
    run = linnet.open("a")
    assert run.status == "completed"
    assert losses("a") == losses("whole/a")
    assert [event.step for event in run.events().read_events() if event.kind == "resume"] == [0]


def test_other_flags_are_refused_by_name_and_free_ones_taken(said: Said, printed: Printed, words: list[str]) -> None:
    interrupt(words, at="eval 4:")
    refused = {
        ("--lr", "0.5"): "run a was started without --lr, and this command has --lr 0.5: give it as it was, or another",
        ("--batch", "2"): "run a was started with --batch 4, and this command has --batch 2",
    }
    for other, complaint in refused.items():
        at = words.index(other[0]) if other[0] in words else len(words)
        code, _, err = said(*words[:at], *words[at + 2 :], *other)
        assert (code, complaint in err) == (2, True), err
    images = ["train", "vit-tiny", "--run-id", "a", "--resume", "auto"]
    code, _, err = said(*images)
    assert (code, "is of the recipe from-scratch, and this command trains vit-tiny" in err) == (2, True), err
    assert "was not forked from another run" in said(*words, "--from", "a")[2]
    more = [word if word != "9" else "12" for word in words]
    printed(*more, "--keep", "0", "--prompt", "def")
    run = linnet.open("a")
    assert (run.summarize().step, run.manifest.total_steps, run.config["keep"]) == (12, 12, 0)
    assert run.config["prompts"] == ["def"]
    printed(*[word if word != "9" else "14" for word in words])  # further than it had completed
    assert linnet.open("a").summarize().step == 14


@pytest.mark.parametrize("name", [None, "{date}-{seq}", "///"])
def test_a_name_that_changes_each_time_is_refused(said: Said, small: list[str], name: str | None) -> None:
    code, _, err = said(*small, "--resume", "auto", *(["--run-id", name] if name else []))
    assert (code, "--resume auto needs a --run-id that is the same each time" in err) == (2, True), err


def test_a_run_that_somebody_writes_is_waited_for(
    said: Said, words: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    interrupt(words, at="eval 4:")
    monkeypatch.setattr(restart, "_WAIT_SECONDS", 0.2)
    with locked("a"):
        code, _, err = said(*words)
    assert code == 1
    assert "run a is being written by process" in err
    assert "waiting for it to end" in caplog.text + err


def test_a_writer_on_another_machine_is_taken_for_dead_when_it_is_silent(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(words, at="eval 4:")
    manifest = json.loads(Path("runs/a/run.json").read_text())
    manifest["provenance"] |= {"boot_id": "another", "host": "node7"}
    Path("runs/a/run.json").write_text(json.dumps(manifest))
    events = Path("runs/a/events.jsonl")
    events.write_text("".join(line for line in events.read_text().splitlines(True) if "run_end" not in line))
    assert linnet.open("a").status == "live"
    flags: dict[str, Any] = {"corpus": words[words.index("--corpus") + 1]}
    monkeypatch.setattr(restart, "_SILENT_SECONDS", 0.2)
    monkeypatch.setattr(restart, "_check_flags", lambda *_: None)
    previous = restart.PreviousRun.find("a", None, "from-scratch", flags)
    assert previous is not None and previous.step == 4
    monkeypatch.setattr(restart, "_SILENT_SECONDS", 60.0)
    monkeypatch.setattr(restart, "_WAIT_SECONDS", 0.2)
    with pytest.raises(LinnetError, match=r"on node7; stop it first"):
        restart.PreviousRun.find("a", None, "from-scratch", flags)


def test_budgets_forks_and_python(corpus: Path, printed: Printed) -> None:
    flags: dict[str, Any] = {"corpus": corpus, "preset": "tiny", "vocab": 384, "batch": 4, "eval_every": 0}
    flags |= {"sample_every": 0, "resume": "auto"}
    with pytest.raises(UsageError, match="resume cannot be 'yes'"):
        linnet.train(**{**flags, "resume": "yes"})
    first = linnet.train(tokens="2k", run_id="a", **flags)
    steps = first.summarize().step
    assert linnet.train(tokens="2k", run_id="a", **flags).summarize().step == steps
    assert linnet.train(tokens="4k", run_id="a", **flags).summarize().step == 31
    fork = linnet.train(from_="a", steps=3, run_id="b", resume="auto")
    assert linnet.train(from_="a", steps=3, run_id="b", resume="auto").summarize().step == fork.summarize().step
    further = linnet.train(from_="a", steps=5, run_id="b", resume="auto")
    assert further.summarize().step == 36
    code = printed("train", "from-scratch", "--from", "a", "--steps", "5", "--run-id", "b", "--resume", "auto")
    assert "nothing is left to do" in code


def test_a_run_without_recorded_flags_is_compared_with_its_settings(said: Said, words: list[str]) -> None:
    interrupt(words, at="eval 4:")
    manifest = json.loads(Path("runs/a/run.json").read_text())
    assert manifest.pop("flags")["batch"] == 4
    Path("runs/a/run.json").write_text(json.dumps(manifest))
    lr = manifest["config"]["lr"]
    assert f"started with --lr {lr}, and this command has --lr 0.5" in said(*words, "--lr", "0.5")[2]
    assert said(*words, "--lr", str(lr))[0] == 0
