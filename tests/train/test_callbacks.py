"""Callbacks: they hear of everything, may log and stop, see the model, and fail under their own name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.models import LanguageModel
from linnet.train import Callback, CallbackError, EvalResult, StepMetrics

SMALL: dict[str, Any] = {"preset": "tiny", "vocab": 384, "batch": 4, "eval_tokens": 1024, "sample_tokens": 4}


class Diary(Callback):
    def __init__(self) -> None:
        self.pages: list[tuple[str, object]] = []

    def on_start(self) -> None:
        assert isinstance(self.model, LanguageModel)
        self.pages.append(("start", self.run.run_id))

    def on_step(self, metrics: StepMetrics) -> None:
        self.pages.append(("step", metrics.step))
        self.run.log(metrics.step, {"mine/double": 2 * metrics.loss})

    def on_evaluation(self, step: int, result: EvalResult) -> None:
        self.pages.append(("evaluation", step))

    def on_checkpoint(self, step: int, path: Path) -> None:
        assert path.is_file()
        self.pages.append(("checkpoint", step))

    def on_end(self, reason: str) -> None:
        self.run.summary["pages"] = len(self.pages)
        self.pages.append(("end", reason))


def test_a_callback_hears_of_everything_and_may_log(corpus: Path) -> None:
    diary = Diary()
    run = linnet.train(corpus=corpus, steps=4, eval_every=2, callbacks=[diary], run_id="a", **SMALL)
    assert diary.pages[0] == ("start", "a")
    assert [step for kind, step in diary.pages if kind == "step"] == [1, 2, 3, 4]
    assert [step for kind, step in diary.pages if kind == "evaluation"] == [2, 4]
    assert {step for kind, step in diary.pages if kind == "checkpoint"} == {1, 2, 3, 4}
    assert diary.pages[-1] == ("end", "completed")
    metrics = run.metrics()
    assert metrics["mine/double"].value.tolist() == [2 * loss for loss in metrics["loss"].value.tolist()]
    assert run.manifest.summary == {"pages": len(diary.pages) - 1}


def test_it_is_given_every_scalar_that_is_logged_by_its_name(corpus: Path) -> None:
    seen: list[StepMetrics] = []

    class Listener(Callback):
        def on_step(self, metrics: StepMetrics) -> None:
            seen.append(metrics)

    run = linnet.train(corpus=corpus, steps=2, callbacks=[Listener()], run_id="a", **SMALL)
    event = next(event.data for event in run.events().read_events() if event.kind == "step")
    assert {name: event[name] for name in seen[0].values} == seen[0].values
    assert list(seen[0].values)[:4] == ["loss", "lr", "grad_norm", "tokens"]
    assert (seen[0].loss, seen[0].lr) == (event["loss"], event["lr"])


def test_a_run_that_a_callback_stops_is_completed_with_a_checkpoint_and_says_why(corpus: Path) -> None:
    class Enough(Callback):
        def on_step(self, metrics: StepMetrics) -> None:
            if metrics.step == 3:
                self.stop("seen enough")

    run = linnet.train(corpus=corpus, steps=20, checkpoint_every=0, callbacks=[Enough()], run_id="a", **SMALL)
    assert run.status == "completed"
    assert [path.stem for path in run.checkpoints()] == ["step_3"]
    notes = [event.data["text"] for event in run.events().read_events() if event.kind == "note"]
    assert notes == ["ended early: seen enough"]
    assert linnet.resume("a", steps=5).metrics()["loss"].step.tolist() == [1, 2, 3, 4, 5]


def test_a_callback_that_raises_ends_the_run_as_errored_under_its_name(corpus: Path) -> None:
    class Fragile(Callback):
        def on_step(self, metrics: StepMetrics) -> None:
            raise ZeroDivisionError("by nothing")

    diary = Diary()
    with pytest.raises(CallbackError, match=r"Fragile.on_step failed: ZeroDivisionError: by nothing") as caught:
        linnet.train(corpus=corpus, steps=4, callbacks=[Fragile(), diary], run_id="a", **SMALL)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert diary.pages[-1] == ("end", "errored")
    run = linnet.open("a")
    assert run.status == "errored"
    end = [event.data for event in run.events().read_events()][-1]
    assert "Fragile.on_step" in end["error"]


def test_what_is_no_callback_is_refused_before_a_folder_is_made(corpus: Path) -> None:
    with pytest.raises(linnet.LinnetError, match=r"linnet\.Callback"):
        linnet.train(corpus=corpus, callbacks=[print], **SMALL)  # type: ignore[list-item]
    assert linnet.list_runs() == []


def test_outside_of_a_training_a_callback_says_that_it_has_no_run() -> None:
    with pytest.raises(linnet.LinnetError, match="Diary is not part of a training yet"):
        _ = Diary().run
