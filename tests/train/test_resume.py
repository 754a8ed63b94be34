"""What resume reads and compares before it goes on, what a stop keeps, and what is left in the folder."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import linnet
from linnet import gguf
from linnet.cli.training import finish
from linnet.errors import LinnetError
from linnet.files import STAGED_SUFFIX
from linnet.models import build, preset
from linnet.recipes import Job, TextData, resume, start, training
from linnet.runs import Run
from linnet.train import Callback, StepMetrics, checkpoint, state
from linnet.train.settings import TrainSettings
from linnet.train.state import steps_with_state
from tests.conftest import Said, digest, losses
from tests.train.conftest import flip_a_bit


class Crash(BaseException):
    """As good as a kill, within a test: nothing of the loop handles it."""


class At(Callback):
    """Does something at a step: crash, send a signal."""

    def __init__(self, step: int, act: Any) -> None:
        self._step, self._act = step, act

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == self._step:
            self._act()


def crash() -> None:
    raise Crash


def send(number: signal.Signals) -> Any:
    return lambda: os.kill(os.getpid(), number)


def job_of(corpus: Path, **settings: Any) -> Job:
    given = {
        "steps": 12,
        "batch": 4,
        "checkpoint_every": 4,
        "eval_every": 0,
        "sample_every": 0,
        "warmup": 1,
        **settings,
    }
    return Job(preset("tiny", vocab=384), TextData(str(corpus)), TrainSettings(**given))


def crashed(job: Job, step: int, **labels: Any) -> Run:
    """A run that broke off after a step, as a kill would end it."""
    with pytest.raises(Crash):
        start(job, callbacks=[At(step, crash)], run_id="a", **labels).run()
    return linnet.open("a") if "runs_root" not in labels else linnet.open(Path(labels["runs_root"]) / "a")


@pytest.fixture(scope="session")
def broken_off(corpus: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that broke off after step 10; its last checkpoint is that of step 8."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINNET_CACHE", str(cache))
        return crashed(job_of(corpus), 10, runs_root=tmp_path_factory.mktemp("broken-off")).path


@pytest.fixture
def run(broken_off: Path) -> Run:
    """A copy of it to resume, or to damage."""
    shutil.copytree(broken_off, "runs/a", symlinks=True)
    return linnet.open("a")


# -- what belongs together ------------------------------------------------------------------------------------------


def test_weights_of_another_step_are_refused(said: Said, run: Run) -> None:
    weights = run.path / "weights"
    (weights / "step_8.gguf").write_bytes((weights / "step_4.gguf").read_bytes())
    code, _, err = said("resume", "a")
    assert code == 1
    assert "step_8.gguf is not of this checkpoint: its step is 4, expected 8" in err
    assert "--force" in err


def test_a_state_under_another_name_is_refused(said: Said, run: Run) -> None:
    (run.path / "state/step_8.safetensors").rename(run.path / "state/step_4.safetensors")
    code, _, err = said("resume", "a")
    assert code == 1
    assert "step_4.safetensors is not of this checkpoint: its step is 8, expected 4" in err


def test_the_weights_of_another_run_are_refused(said: Said, run: Run, corpus: Path) -> None:
    twin = start(job_of(corpus, seed=1), run_id="b")
    twin.run()
    (run.path / "weights/step_8.gguf").write_bytes((twin.run_dir / "weights/step_8.gguf").read_bytes())
    code, _, err = said("resume", "a")
    assert code == 1
    assert "its run_id is b, expected a" in err


def test_a_flipped_bit_in_the_weights_is_noticed_and_force_goes_on(said: Said, run: Run) -> None:
    flip_a_bit(run.path / "weights/step_8.gguf", -9)
    code, _, err = said("resume", "a")
    assert code == 1
    assert "step_8.gguf is damaged" in err
    assert said("resume", "a", "--force")[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint_every": "x"}, "checkpoint_every"),
        ({"lr": "fast"}, "lr"),
        ({"prompts": 3}, "expected array, found int"),
    ],
)
def test_settings_of_another_type_in_run_json_are_named(
    said: Said, run: Run, change: dict[str, Any], message: str
) -> None:
    manifest = json.loads((run.path / "run.json").read_text())
    manifest["config"] |= change
    (run.path / "run.json").write_text(json.dumps(manifest))
    code, _, err = said("resume", "a", "--force")
    assert (code, err.count("\n")) == (1, 1)
    assert "run.json does not describe a run that can be resumed" in err
    assert message in err


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("model", {"n_layers": 3}, "blocks.2."),
        ("model", {"n_layers": 1}, "blocks.1."),
        ("model", {"d_ff": 32}, "expected [64, 64], found [256, 64]"),
        ("config", {"optimizer": "adamw"}, "of another optimizer or model: expected exp_avg"),
    ],
)
def test_force_does_not_train_a_model_that_the_checkpoint_is_not_of(
    said: Said, run: Run, part: str, change: dict[str, Any], message: str
) -> None:
    manifest = json.loads((run.path / "run.json").read_text())
    manifest[part] |= change
    (run.path / "run.json").write_text(json.dumps(manifest))
    code, _, err = said("resume", "a", "--force")
    assert code in (1, 2)
    assert err.count("\n") == 1
    assert message in err


def test_a_broken_run_json_is_said_and_starts_nothing(said: Said, run: Run) -> None:
    (run.path / "run.json").write_text("{")
    code, _, err = said("resume", "a")
    assert code == 1
    assert "run.json is missing or damaged, and resume needs the settings in it" in err
    assert [path.name for path in run.path.parent.iterdir() if not path.name.startswith(".")] == ["a"]


def test_two_resumes_at_once_are_one_resume_and_a_refusal(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The other one took the run between this one's look at its status and the start.
    monkeypatch.setattr(Run, "status", "crashed")
    with linnet.start(tmp_path / "runs", resume="a", from_step=8), pytest.raises(LinnetError, match="another process"):
        resume(run)
    assert [path.name for path in run.path.parent.iterdir() if not path.name.startswith(".")] == ["a"]


# -- the continued run is the undisturbed one -----------------------------------------------------------------------


def test_held_out_loss_and_best_are_those_of_the_undisturbed_run(corpus: Path, tmp_path: Path) -> None:
    settings = {"steps": 16, "eval_every": 5, "eval_tokens": 64, "checkpoint_every": 2, "keep": 0, "lr": 0.3}
    settings |= {"schedule": "constant", "seed": 3, "on_nan": "ignore"}
    job = job_of(corpus, **settings)
    start(job, run_id="a", runs_root=tmp_path / "whole").run()
    whole = tmp_path / "whole/a/weights"
    for step in (3, 7, 9, 11, 13):
        root = tmp_path / f"cut{step}"
        run = crashed(job, step, runs_root=root)
        resume(run).run()
        for file in sorted(whole.glob("step_*.gguf")):
            assert digest(run.path / "weights" / file.name) == digest(file), (step, file.name)
        for link in ("best", "latest"):
            assert (run.path / "weights" / link).readlink() == (whole / link).readlink(), step


def test_a_run_killed_after_its_last_weights_is_closed_as_completed(said: Said, corpus: Path) -> None:
    job = job_of(corpus, eval_every=4, keep=0, steps=8, gate="validation/loss<100")
    training = start(job, run_id="a")
    training.run()
    folder = training.run_dir
    assert (folder / "weights/best").readlink() == Path("step_8.gguf")
    # As if it had been killed between `latest` and `best` of step 8.
    kept = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    ends = [i for i, line in enumerate(kept) if b'"kind":"checkpoint"' in line and b'"step":8' in line]
    (folder / "events.jsonl").write_bytes(b"".join(kept[: ends[0]]))
    gguf.point_link(folder / "weights/best", "step_4.gguf")
    assert linnet.open("a").status == "crashed"
    code, _, err = said("resume", "a")
    assert code == 0, err
    run = linnet.open("a")
    assert run.status == "completed"
    assert (folder / "weights/best").readlink() == Path("step_8.gguf")
    end = run.summarize().end
    assert end is not None
    assert (end["final_step"], end["quality_gate"]["passed"], end["exit_code"]) == (8, True, 0)
    assert end["final_loss"] == losses("a")[8]
    checkpoints = [event.step for event in run.events().read_events() if event.kind == "checkpoint"]
    assert checkpoints == [4, 8]
    assert said("resume", "a")[0] == 2  # now there is nothing more to do


def test_a_run_killed_before_its_last_tidying_is_tidied(corpus: Path, tmp_path: Path) -> None:
    settings = {"steps": 8, "checkpoint_every": 4}
    start(job_of(corpus, **settings, keep=0), run_id="a", runs_root=tmp_path / "all").run()
    training = start(job_of(corpus, **settings, keep=1), run_id="a")
    training.run()
    folder, weights = training.run_dir, training.run_dir / "weights"
    kept = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(line for line in kept if b"run_end" not in line))
    shutil.copy(tmp_path / "all/a/weights/step_4.gguf", weights)
    (weights / ".best.0123456789ab.linnet-partial").symlink_to("step_8.gguf")
    resume(Run.load(folder)).run()
    assert linnet.open("a").status == "completed"
    assert sorted(path.name for path in weights.iterdir()) == ["latest", "step_8.gguf"]


def test_tokens_and_seconds_of_a_resumed_run_are_of_one_clock(run: Run) -> None:
    first = state.load(run.path / "state/step_8.safetensors").facts
    outcome = resume(run).run()
    assert first["seconds"] > 0
    assert outcome.seconds > first["seconds"]
    assert outcome.progress.seen == 12 * 4 * 32


# -- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_ends_the_run_with_a_checkpoint_and_its_own_exit_code(corpus: Path, number: signal.Signals) -> None:
    training = start(job_of(corpus, checkpoint_every=0), callbacks=[At(5, send(number))], run_id="a")
    assert finish(training, json=True) == 128 + number
    run = linnet.open("a")
    assert run.status == "interrupted"
    end = run.summarize().end
    assert end is not None
    assert (end["exit_code"], end["final_step"]) == (128 + number, 5)
    assert steps_with_state(run.path) == [5]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_during_the_last_save_does_not_throw_it_away(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, second: signal.Signals
) -> None:
    true_write = gguf.write

    def write(*arguments: Any, **options: Any) -> Path:
        os.kill(os.getpid(), second)
        path = true_write(*arguments, **options)
        os.kill(os.getpid(), second)
        return path

    monkeypatch.setattr(gguf, "write", write)
    training = start(job_of(corpus, checkpoint_every=0), callbacks=[At(5, send(signal.SIGTERM))], run_id="a")
    assert training.run().exit_code == 128 + signal.SIGTERM
    assert steps_with_state(training.run_dir) == [5]
    assert linnet.open("a").status == "interrupted"


def test_nohup_stays_in_force(corpus: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        outcome = start(job_of(corpus), callbacks=[At(5, send(signal.SIGHUP))]).run()
        assert outcome.reason == "completed"
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_was_due_at_the_step_of_a_stop_is_done_first(corpus: Path) -> None:
    job = job_of(corpus, eval_every=5, eval_tokens=64)
    outcome = start(job, callbacks=[At(5, send(signal.SIGINT))], run_id="a").run()
    assert (outcome.reason, outcome.progress.step) == ("interrupted", 5)
    assert linnet.open("a").metrics()["validation/loss"].step.tolist() == [5]


# -- the gate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "more", "message"),
    [
        ("validation/perplexity<3", [], "no metric 'validation/perplexity'"),
        ("lss<3", [], "did you mean loss?"),
        ("validation/loss<3", ["--eval-every", "0"], "no metric 'validation/loss'"),
    ],
)
def test_a_gate_on_a_metric_that_will_not_be_there_is_refused_before_the_first_step(
    said: Said, small: list[str], gate: str, more: list[str], message: str
) -> None:
    code, _, err = said(*small, "--steps", "3", "--gate", gate, *more)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert not Path("runs").exists()


def test_a_gate_leaves_an_interrupted_run_interrupted(said: Said, corpus: Path) -> None:
    job = job_of(corpus, eval_every=6, eval_tokens=64, gate="validation/loss<100")
    outcome = start(job, callbacks=[At(3, send(signal.SIGINT))], run_id="a").run()
    assert (outcome.reason, outcome.gate, outcome.exit_code) == ("interrupted", None, 130)
    assert linnet.open("a").status == "interrupted"
    assert said("resume", "a")[0] == 0


# -- the folder -----------------------------------------------------------------------------------------------------


def test_run_start_says_what_was_derived_and_chosen(corpus: Path) -> None:
    start(job_of(corpus, eval_every=None, warmup=None, steps=40, lr=1e-3), run_id="a").run()
    first = next(event.data for event in linnet.open("a").events().read_events() if event.kind == "run_start")
    assert first["schedule"] == {"kind": "cosine", "lr_max": 1e-3, "lr_min": 1e-4, "warmup": 2, "n_steps": 40}
    chosen = first["chosen"]
    assert (chosen["device"], chosen["dtype"], chosen["compile"]) == ("cpu", "float32", False)
    assert (chosen["threads"], chosen["graph"]) == (1, True)
    assert (chosen["eval_every"], chosen["eval_tokens"], chosen["checkpoint_every"]) == (4, 1024, 4)
    assert (chosen["passes"], chosen["shard"], chosen["overlap"]) == (1, "none", "off")
    cost = first["cost"]
    model = build(preset("tiny", vocab=384))
    assert cost["total_params"] == cost["active_params"] == cost["trained_params"] == model.n_params()
    assert cost["flops_per_token"] == model.flops_per_token(32) == cost["flops_per_step"] / cost["tokens_per_step"]
    assert cost["planned_tokens"] == 40 * 4 * 32


def test_a_resume_says_it_anew(run: Run) -> None:
    resume(run, steps=20).run()
    again = next(event.data for event in run.events().read_events() if event.kind == "resume")
    assert again["schedule"]["n_steps"] == 20 and again["cost"]["planned_tokens"] == 12 * 4 * 32


def test_a_checkpoint_event_names_its_losses_and_its_digest(corpus: Path) -> None:
    training = start(job_of(corpus, eval_every=4, eval_tokens=64), run_id="a")
    outcome = training.run()
    event = [e.data for e in linnet.open("a").events().read_events() if e.kind == "checkpoint"][-1]
    assert event["train_loss"] == losses("a")[12]
    assert outcome.progress.validation is not None
    assert event["validation_loss"] == outcome.progress.validation.loss
    assert "loss" not in event
    assert event["sha256"] == digest(training.run_dir / "weights/step_12.gguf")
    assert outcome.model == training.run_dir / "weights/step_12.gguf"


def test_a_checkpoint_is_announced_when_it_is_on_the_disk(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_write = gguf.write

    def write(*arguments: Any, **options: Any) -> Path:
        if arguments[4] == 8:
            raise OSError(28, "No space left on device")
        return true_write(*arguments, **options)

    announced: list[tuple[int, bool]] = []

    class Listener(Callback):
        def on_checkpoint(self, step: int, path: Path) -> None:
            announced.append((step, path.is_file()))

    monkeypatch.setattr(gguf, "write", write)
    training = start(job_of(corpus), callbacks=[Listener()])
    training.run()
    assert announced == [(4, True), (12, True)]
    assert [path.name for path in (training.run_dir / "state").iterdir()] == ["step_12.safetensors"]


def test_only_checkpoints_beside_which_training_goes_on_are_copied_first(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[int] = []
    true_copy = checkpoint.copy_tensors

    def copy_tensors(tensors: Mapping[str, Tensor]) -> checkpoint.TensorCopies:
        copied.append(len(tensors))
        return true_copy(tensors)

    monkeypatch.setattr(checkpoint, "copy_tensors", copy_tensors)
    training = start(job_of(corpus))
    training.run()
    assert len(list((training.run_dir / "weights").glob("step_*.gguf"))) == 3
    assert len(copied) == 4  # weights and moments of two; the third is the last


def test_leftovers_of_killed_writers_are_removed_when_the_run_goes_on(run: Run) -> None:
    for name in (".tmpA1b2C3", ".step_9.safetensors.tmp", f".step_9.safetensors.0a0b0c{STAGED_SUFFIX}"):
        (run.path / "state" / name).write_bytes(b"half")
    (run.path / "state/step_11.safetensors").write_bytes(b"a state without weights")
    (run.path / f"weights/.step_9.gguf.0a0b0c{STAGED_SUFFIX}").write_bytes(b"half")
    resume(run).run()
    assert [path.name for path in (run.path / "state").iterdir()] == ["step_12.safetensors"]
    assert not list((run.path / "weights").glob(".*"))


def test_only_checkpoints_of_this_run_are_thinned_out(corpus: Path, tmp_path: Path) -> None:
    training = start(job_of(corpus, checkpoint_every=2, keep=1), run_id="a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for step in (1, 2, 3):
        (elsewhere / f"step_{step}.gguf").write_bytes(b"somebody's file")
    (elsewhere / "step_².gguf").write_bytes(b"an odd name")
    (training.run_dir / "weights").symlink_to(elsewhere)
    assert training.run().reason == "completed"
    assert (elsewhere / "step_1.gguf").read_bytes() == b"somebody's file"
    assert (elsewhere / "step_3.gguf").read_bytes() == b"somebody's file"
    assert sorted(path.name for path in elsewhere.glob("step_*")) == [
        "step_1.gguf",
        "step_12.gguf",
        "step_3.gguf",
        "step_².gguf",
    ]


def test_a_name_that_cannot_be_moved_costs_a_warning_not_the_run(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = start(job_of(corpus), run_id="a")
    (training.run_dir / "weights/latest").mkdir(parents=True)
    with caplog.at_level(logging.WARNING, "linnet"):
        outcome = training.run()
    assert (outcome.reason, outcome.exit_code) == ("completed", 0)
    assert outcome.model == training.run_dir / "weights/step_12.gguf"
    assert "weights/latest" in caplog.text


@pytest.mark.parametrize(
    "root", ["a_file/runs", "/proc/linnet-runs"], ids=["below a file", "where nothing can be made"]
)
def test_a_folder_of_runs_that_cannot_be_written_is_refused_at_once(said: Said, small: list[str], root: str) -> None:
    Path("a_file").write_text("")
    code, out, err = said(*small, "--steps", "3", "--runs", root)
    assert code in (1, 2)
    assert "with --runs" in err
    assert "step 1" not in out


@pytest.mark.parametrize(("peak", "logged"), [(1e15, True), (1.0, False), (None, False)])
def test_mfu_is_never_above_one(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, peak: float | None, logged: bool
) -> None:
    true_choose = training.choose
    monkeypatch.setattr(training, "choose", lambda *a, **o: replace(true_choose(*a, **o), peak_flops=peak))
    reports: list[StepMetrics] = []

    class Listener(Callback):
        def on_step(self, metrics: StepMetrics) -> None:
            reports.append(metrics)

    start(job_of(corpus, steps=3), callbacks=[Listener()], run_id="a").run()
    metrics = linnet.open("a").metrics()
    assert ("mfu" in metrics) == logged
    assert [report.mfu is not None for report in reports] == [logged] * 3
