"""What can happen to a run on its way: bad losses, no memory, no disk, a signal. It says so and keeps what it has."""

from __future__ import annotations

import errno
import json
import logging
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

import linnet
from linnet import gguf
from linnet.cli.training import finish
from linnet.models import LanguageModel, load, preset
from linnet.recipes import FromScratch, Job, TextData, start, training
from linnet.train import state
from linnet.train.settings import TrainSettings
from linnet.train.state import steps_with_state
from tests.conftest import Said


@pytest.fixture
def job(corpus: Path) -> Job:
    settings = TrainSettings(steps=6, batch=4, checkpoint_every=2, eval_every=0, sample_every=0)
    return Job(preset("tiny", vocab=384), TextData(str(corpus)), settings)


@pytest.fixture
def third_loss_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the third step is NaN, and so is its gradient; counted by a tensor, which a recorded step keeps."""
    true_loss, calls = LanguageModel.loss, torch.zeros(())

    def loss(self: LanguageModel, *arguments: Any, **options: Any) -> torch.Tensor:
        found = true_loss(self, *arguments, **options)
        if not torch.is_grad_enabled():
            return found
        calls.add_(1)
        return found * torch.where(calls == 3, math.nan, 1.0)

    monkeypatch.setattr(LanguageModel, "loss", loss)


def losses(run: str = "latest") -> list[float]:
    found: list[float] = linnet.open(run).metrics()["loss"].value.tolist()
    return found


@pytest.mark.usefixtures("third_loss_is_nan")
def test_stop_ends_the_run_and_keeps_the_last_good_checkpoint(said: Said, small: list[str]) -> None:
    code, out, _ = said(*small, "--steps", "6", "--checkpoint-every", "2")
    run = linnet.open("latest")
    assert (code, run.status) == (1, "aborted")
    assert "the loss of step 3 is not finite; lower --lr" in out
    assert [file.stem for file in run.checkpoints()] == ["step_2"]
    assert all(torch.isfinite(tensor).all() for tensor in load(run.checkpoints()[0]).params().values())


@pytest.mark.usefixtures("third_loss_is_nan")
def test_skip_leaves_the_step_out_and_goes_on(said: Said, small: list[str]) -> None:
    code, _, err = said(*small, "--steps", "6", "--on-nan", "skip", "--eval-every", "0")
    assert code == 0, err
    found = losses()
    assert [math.isfinite(loss) for loss in found] == [True, True, False, True, True, True]
    assert linnet.open("latest").status == "completed"
    model = load(linnet.open("latest").checkpoints()[-1])
    assert all(torch.isfinite(tensor).all() for tensor in model.params().values())


@pytest.mark.usefixtures("third_loss_is_nan")
def test_ignore_goes_on_whatever_comes(said: Said, small: list[str]) -> None:
    code, _, err = said(*small, "--steps", "6", "--on-nan", "ignore", "--eval-every", "0", "--sample-every", "0")
    assert code == 0, err
    assert [math.isfinite(loss) for loss in losses()] == [True, True, False, False, False, False]
    assert linnet.open("latest").status == "completed"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore lines"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["cuda", "cpu"],
)
def test_out_of_memory_says_what_to_lower_and_keeps_the_checkpoint(
    said: Said, small: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    true_step, calls = FromScratch.step, []

    def step(self: FromScratch, *arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == 5:
            raise error
        return true_step(self, *arguments)

    monkeypatch.setattr(FromScratch, "step", step)
    code, out, err = said(*small, "--steps", "8", "--checkpoint-every", "2")
    run = linnet.open("latest")
    assert (code, run.status) == (1, "errored")
    (line,) = [line for line in out.splitlines() if "out of memory" in line]
    assert "lower --batch (now 4) or --ctx (now 32)" in line
    assert "Traceback" not in out + err
    assert [file.stem for file in run.checkpoints()] == ["step_2", "step_4"]
    assert steps_with_state(run.path) == [4]
    assert said("resume", "latest")[0] == 0
    assert len(losses()) == 8


def test_a_model_that_does_not_fit_is_one_line_and_leaves_nothing_behind(
    said: Said, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def realize(self: FromScratch, config: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(FromScratch, "realize", realize)
    code, _, err = said(*small, "--steps", "2")
    assert (code, err.count("\n")) == (1, 1)
    assert "the model does not fit into the memory of cpu: choose a smaller one" in err
    assert not Path("runs").exists()


def test_another_fault_of_the_program_is_not_taken_for_one_of_memory(
    small: list[str], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_step, calls = FromScratch.step, []

    def step(self: FromScratch, *arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == 4:
            raise RuntimeError("a bug")
        return true_step(self, *arguments)

    monkeypatch.setattr(FromScratch, "step", step)
    with pytest.raises(RuntimeError, match="a bug"):
        said(*small, "--steps", "8", "--checkpoint-every", "2")
    run = linnet.open("latest")
    assert run.status == "errored"
    # Step 3 was done, but step 4 may have moved some of the weights before it broke off.
    assert [file.stem for file in run.checkpoints()] == ["step_2"]


def test_weights_that_cannot_be_written_do_not_stop_training(
    job: Job, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    training = start(job)
    (training.run_dir / "weights").write_text("in the way")
    with caplog.at_level(logging.WARNING, "linnet"):
        code = finish(training, json=False)
    assert code == 1
    assert len(losses()) == 6
    assert "checkpoint of step 2 was not written" in caplog.text
    end = linnet.open("latest").summarize().end
    assert end is not None
    assert (end["reason"], end["exit_code"]) == ("errored", 1)
    assert "checkpoint of step 6 was not written" in end["error"]
    assert "checkpoint of step 6 was not written" in capsys.readouterr().out


def test_a_disk_that_was_full_for_a_while_costs_one_checkpoint(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    true_write = gguf.write

    def write(*arguments: Any, **options: Any) -> Path:
        if arguments[4] == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return true_write(*arguments, **options)

    monkeypatch.setattr(gguf, "write", write)
    with caplog.at_level(logging.WARNING, "linnet"):
        assert finish(start(job), json=True) == 0
    assert "checkpoint of step 4 was not written: [Errno 28] No space left on device" in caplog.text
    run = linnet.open("latest")
    assert run.status == "completed"
    assert [file.stem for file in run.checkpoints()] == ["step_2", "step_6"]
    assert steps_with_state(run.path) == [6]


def test_a_run_that_fails_before_its_first_step_is_not_taken_for_done(
    said: Said, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is there by then; the same command, given again, trains it."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "model_flow.json")

    again = [*small, "--steps", "2", "--run-id", "a", "--resume", "auto"]
    with monkeypatch.context() as patch:
        patch.setattr(training, "write_flow", full)
        code, _, err = said(*again)
    assert (code, err) == (1, "linnet: model_flow.json: No space left on device\n")
    end = linnet.open("a").summarize().end or {}
    assert (end["reason"], end["exit_code"]) == ("errored", 1)
    assert "No space left on device" in end["error"]
    assert said(*again)[0] == 0
    assert (linnet.open("a").status, len(losses("a"))) == ("completed", 2)


@pytest.mark.parametrize("fault", [SafetensorError("I/O error: no space"), ValueError("a bug"), MemoryError()])
def test_whatever_keeps_a_state_from_being_written_does_not_hang_the_training(
    fault: Exception, job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def save(*_: object) -> None:
        raise fault

    monkeypatch.setattr(state, "save", save)
    with caplog.at_level(logging.WARNING, "linnet"):
        done = threading.Thread(target=lambda: finish(start(job), json=True), daemon=True)
        done.start()
        done.join(60)
    assert not done.is_alive()
    assert f"checkpoint of step 6 was not written: {fault or type(fault).__name__}" in caplog.text
    assert linnet.open("latest").status == "errored"


def test_sigterm_ends_a_run_as_ctrl_c_does(small: list[str], said: Said) -> None:
    words = [*small, "--steps", "100000", "--checkpoint-every", "0", "--eval-every", "0"]
    process = subprocess.Popen([sys.executable, "-m", "linnet", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("step 1:"):
            process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    run = linnet.open("latest")
    assert run.status == "interrupted"
    last = int(run.metrics()["loss"].step[-1])
    assert [file.stem for file in run.checkpoints()] == [f"step_{last}"]
    assert any(f"linnet resume {run.id}" in line for line in lines)
    assert said("resume", "latest", "--steps", str(last + 2))[0] == 0


def test_documents_do_not_see_each_other_when_asked(said: Said, small: list[str], corpus: Path) -> None:
    texts = [json.dumps({"text": line}) for file in sorted(corpus.iterdir()) for line in file.read_text().splitlines()]
    Path("lines.jsonl").write_text("\n".join(texts))
    words = [*small[:2], "--corpus", "lines.jsonl", *small[4:], "--steps", "4", "--seed", "1"]
    assert said(*words, "--run-id", "joined")[0] == 0
    assert said(*words, "--run-id", "apart", "--documents")[0] == 0
    assert linnet.open("apart").manifest.config["documents"] is True
    assert losses("apart") != losses("joined")
    assert losses("apart") == pytest.approx(losses("joined"), rel=0.05)


def test_the_folder_says_what_the_model_is_made_of(said: Said, small: list[str]) -> None:
    assert said(*small, "--steps", "1")[0] == 0
    flow = json.loads((linnet.open("latest").path / "flow.json").read_text())
    shapes = {node["name"]: node["shape"] for node in flow["nodes"]}
    assert shapes["token_embd.weight"] == "64×384"
    assert shapes["ids"] == "32×4"
