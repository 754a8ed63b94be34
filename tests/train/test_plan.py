"""The plan before step one, budgets instead of steps, and patience: as a person uses them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

import linnet
from linnet.cli import main
from linnet.cli.plan import plan_lines, time_line
from linnet.models import build, preset
from linnet.recipes.flags import count_of
from linnet.train import Callback
from linnet.train.hardware import choose
from linnet.train.memory import Sharing, peak_memory
from linnet.train.metrics import MetricQueue
from linnet.train.plan import Plan
from linnet.train.settings import TrainSettings
from linnet.train.text import Evaluation
from linnet.train.time_budget import TimeBudget

_QUICK = "--preset tiny --vocab 384 --batch 2 --sample-every 0"


def trained(corpus: Path, flags: str, name: str = "a") -> Any:
    """A run of the command line; its manifest as a dict."""
    words = f"train from-scratch {_QUICK} {flags} --run-id {name}".split()
    assert main([*words, "--corpus", str(corpus)]) == 0
    return json.loads(Path(f"runs/{name}/run.json").read_text())


def planned(corpus: Path, flags: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """What `--dry-run --json` says."""
    words = f"train from-scratch {_QUICK} {flags} --dry-run --json".split()
    assert main([*words, "--corpus", str(corpus)]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_training_begins_with_three_lines_and_keeps_them(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = trained(corpus, "--steps 30 --eval-every 0")
    out = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(out) if line.startswith("plan "))
    assert out[first + 1].split("·")[0].strip() == "30 steps"
    assert "parameters (24.6k embedding)" in out[first] and " tokens, " in out[first]
    assert all(len(line) < 80 for line in out[first : first + 3])
    assert out[first + 2].startswith("rate  muon ")
    assert first < next(number for number, line in enumerate(out) if line.startswith("step 1:"))
    plan = manifest["plan"]
    assert plan["steps"] == 30 and plan["planned"] == 30 * 64 and plan["parameters"] == 106_816
    assert plan["epochs"] == pytest.approx(plan["planned"] / plan["corpus"])
    assert plan["flops"] > 30 * 6 * 64 * 50_000
    assert plan["seconds"] > 0 and any(line.startswith("time  about ") for line in out)
    events = [json.loads(line) for line in Path("runs/a/events.jsonl").read_text().splitlines()]
    assert [event["seconds"] for event in events if event["kind"] == "plan"] == [plan["seconds"]]


def test_the_planned_disk_is_what_is_left_on_it(corpus: Path) -> None:
    plan = trained(corpus, "--steps 20 --keep 2 --eval-every 0")["plan"]
    written = [path for path in Path("runs/a").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in written) == pytest.approx(plan["disk"], rel=0.35)


def test_a_dry_run_makes_no_folder(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"train from-scratch {_QUICK} --steps 50 --dry-run".split()
    assert main([*words, "--corpus", str(corpus)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["plan", "50", "rate", "time"]
    assert not Path("runs").exists()


def test_a_dry_run_in_python_returns_the_plan(corpus: Path) -> None:
    plan = linnet.train(corpus=corpus, preset="tiny", vocab=384, batch=2, tokens="6.4k", dry_run=True)
    assert isinstance(plan, Plan) and plan.steps == 100 and plan.seconds is not None and plan.seconds > 0
    assert not Path("runs").exists()


def test_tokens_and_epochs_become_steps(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_tokens = planned(corpus, "--tokens 1e3", capsys)
    assert by_tokens["steps"] == 15 and by_tokens["planned"] == 960  # never more than was asked for
    by_epochs = planned(corpus, "--epochs 2", capsys)
    assert by_epochs["epochs"] == pytest.approx(2, abs=64 / by_epochs["corpus"])
    assert by_epochs["epochs"] >= 2  # everything is seen
    assert planned(corpus, "--tokens 3", capsys)["steps"] == 1


def test_the_schedule_ends_when_the_budget_does(corpus: Path) -> None:
    config = trained(corpus, "--tokens 640 --eval-every 0")["config"]
    assert config["steps"] == 10 and "tokens" not in config
    events = [json.loads(line) for line in Path("runs/a/events.jsonl").read_text().splitlines()]
    rates = [event["lr"] for event in events if event["kind"] == "step"]
    assert len(rates) == 10 and rates == [
        TrainSettings(steps=10, lr=config["lr"]).learning_rate(step) for step in range(10)
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--steps 5 --tokens 100", "--steps and --tokens both say how long to train: give one of them"),
        ("--minutes 1 --epochs 2", "--minutes and --epochs both say how long to train: give one of them"),
        ("--minutes 0", "--minutes must be above 0, found 0"),
        ("--epochs nan", "--epochs must be above 0, found nan"),
        ("--patience 0", "--patience must be 1 or more, found 0"),
        ("--patience 2 --eval-every 0", "--patience waits for a better evaluation, and --eval-every 0 makes none"),
        ("--batch-tokens 0", "--batch-tokens must be 1 or more, found 0"),
        ("--sample-tokens -1", "--sample-tokens must be 0 or more, found -1"),
        ("--keep -2", "--keep must be 0 or more, found -2"),
        ("--tokens many", "Invalid value for --tokens: expected a number such as 20M, found 'many'"),
    ],
)
def test_contradictions_are_refused(flags: str, message: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"train from-scratch {_QUICK} {flags}".split()
    assert main([*words, "--corpus", str(corpus)]) == 2
    assert capsys.readouterr().err.startswith(f"linnet: {message}")
    assert not Path("runs").exists()


def test_epochs_of_an_iterable_are_refused() -> None:
    rows = ([1, 2, 3] for _ in range(10))
    with pytest.raises(linnet.UsageError, match="`epochs` needs data whose length is known, found an iterable"):
        linnet.train(data=rows, vocab=8, preset="tiny", epochs=1)


def test_gradients_that_are_added_up_in_buffers_are_planned_for_images_too() -> None:
    recipe: Any = SimpleNamespace(model=build(preset("vit-tiny-8")))
    settings = TrainSettings(batch=16, device="cpu")
    on_cpu = choose(settings, tokens=16 * 17)
    planned = partial(peak_memory, recipe, hardware=on_cpu, scored=0, copies=0, sharing=Sharing(of_process=0))
    gradients = sum(parameter.nbytes for parameter in recipe.model.parameters())
    assert planned(settings=replace(settings, batch_images=64)) - planned(settings=settings) >= gradients


def test_images_have_a_plan_too(capsys: pytest.CaptureFixture[str]) -> None:
    words = "train vit-tiny --d-model 32 --n-layers 1 --n-heads 2 --d-ff 32 --batch 16 --epochs 0.1 --dry-run --json"
    assert main(words.split()) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["unit"] == "images" and plan["planned"] == pytest.approx(0.1 * plan["corpus"], abs=16)
    assert main(["train", "vit-tiny", "--tokens", "100"]) == 2


class SlowClock(Callback):
    """Lets a second of the run's clock pass at every step."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seconds, self._patch = 0.0, patch

    def start(self) -> None:
        import linnet.train.loop as loop

        self._patch.setattr(loop.time, "monotonic", lambda: self.seconds)
        self._patch.setattr(MetricQueue, "step_seconds", property(lambda queue: 1.0 if queue._seconds else 0.0))

    def on_step(self, metrics: Any) -> None:
        self.seconds += 1.0


def test_minutes_end_by_the_clock_and_the_rate_with_them(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SlowClock(monkeypatch)
    clock.start()
    flags: dict[str, Any] = {"corpus": corpus, "preset": "tiny", "vocab": 384, "batch": 2, "sample_every": 0}
    run = linnet.train(**flags, minutes=1.0, lr=1e-3, callbacks=[clock], run_id="a")
    rates = [event.data["lr"] for event in run.events().read_events() if event.kind == "step"]
    assert 59 <= len(rates) <= 61 and run.manifest.total_steps == len(rates) == run.manifest.config["steps"]
    assert rates[-1] == pytest.approx(1e-4, rel=0.05) and max(rates) == pytest.approx(1e-3, rel=0.01)
    falling = rates[rates.index(max(rates)) :]
    assert falling == sorted(falling, reverse=True)
    assert run.status == "completed" and run.manifest.plan["steps"] == pytest.approx(60, abs=1)


def test_a_run_by_the_clock_goes_on_with_what_is_left_of_its_time(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SlowClock(monkeypatch)
    clock.start()

    class Stop(Callback):
        def on_step(self, metrics: Any) -> None:
            if metrics.step == 25:
                raise KeyboardInterrupt

    flags: dict[str, Any] = {"corpus": corpus, "preset": "tiny", "vocab": 384, "batch": 2, "sample_every": 0}
    with pytest.raises(KeyboardInterrupt):
        linnet.train(**flags, minutes=1.0, lr=1e-3, checkpoint_every=20, callbacks=[clock, Stop()], run_id="a")
    run = linnet.resume("a", callbacks=[clock])
    steps = [event for event in run.events().read_events() if event.kind == "step"]
    assert run.status == "completed" and 59 <= steps[-1].step <= 61  # type: ignore[operator]
    again = {event.step: event.data["lr"] for event in steps}
    assert again[21] == pytest.approx(
        TimeBudget(1.0).learning_rate(TrainSettings(steps=60, minutes=1, lr=1e-3), 20, 20.0), 0.02
    )
    assert again[steps[-1].step] == pytest.approx(1e-4, rel=0.05)


def test_the_warm_up_of_a_run_by_the_clock_is_counted_in_steps() -> None:
    settings, budget = TrainSettings(steps=1000, minutes=1, lr=1e-3), TimeBudget(1.0)
    assert budget.learning_rate(settings, 0, 30.0) == pytest.approx(1e-3 / 50)  # half of the time went into compiling
    assert budget.learning_rate(settings, 50, 0.1) == pytest.approx(1e-3)
    assert budget.learning_rate(settings, 900, 60.0) == pytest.approx(1e-4)
    assert budget.learning_rate(settings, 900, 90.0) == pytest.approx(1e-4)


class Scores:
    """Held-out losses as the test wants them."""

    def __init__(self, *losses: float) -> None:
        self._losses = list(losses)

    def __call__(self, *_: Any, **__: Any) -> Evaluation:
        loss = self._losses.pop(0)
        return Evaluation(loss, math.exp(loss), None, 10)


def test_patience_ends_the_run_and_keeps_its_best_checkpoint(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(5.0, 4.0, 4.5, 4.2, 3.0))
    trained(corpus, "--steps 40 --eval-every 2 --checkpoint-every 0 --patience 2")
    out = capsys.readouterr().out
    assert "a completed after 8 steps" in out
    assert "ended early: no held-out loss better than 4 in 2 evaluations (--patience)" in " ".join(out.split())
    run = linnet.open("a")
    assert run.status == "completed" and Path("runs/a/weights/best").resolve().name == "step_4.gguf"
    notes = [event.data["text"] for event in run.events().read_events() if event.kind == "note"]
    assert notes == ["ended early: no held-out loss better than 4 in 2 evaluations (`patience`)"]


def test_a_resumed_run_knows_how_long_it_has_waited(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Callback):
        def on_evaluation(self, step: int, result: Any) -> None:
            if step == 6:
                raise KeyboardInterrupt

    flags: dict[str, Any] = {"corpus": corpus, "preset": "tiny", "vocab": 384, "batch": 2, "sample_every": 0}
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(5.0, 6.0, 7.0))
    with pytest.raises(KeyboardInterrupt):
        linnet.train(**flags, steps=40, eval_every=2, checkpoint_every=4, patience=3, callbacks=[Stop()], run_id="a")
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(7.0, 8.0, 1.0))
    run = linnet.resume("a")  # from step 4, where one evaluation had not been better
    assert max(event.step for event in run.events().read_events() if event.kind == "eval") == 8  # type: ignore[type-var]
    assert Path("runs/a/weights/best").resolve().name == "step_2.gguf"


_PLAN = Plan(134_515_008, 28_311_552, "tokens", 9_812_000_000, 524_288, 5e14, 19_000, 10**10, 10**11, "cuda")


@given(
    some.integers(1, 10**12), some.none() | some.integers(1, 10**13), some.none() | some.integers(1, 10**8),
    some.sampled_from(["tokens", "images"]), some.floats(0.001, 1e7), some.none() | some.floats(0.01, 1e5),
)  # fmt: skip
@example(1, 1, 2680, "tokens", 9_658_490.0, 1.0)
def test_the_lines_fit_a_terminal(
    parameters: int, corpus: int | None, steps: int | None, unit: str, seconds: float, minutes: float | None
) -> None:
    rates = dict.fromkeys(("lr_embedding", "lr_head", "lr_vectors"), 0.00012) | {"weight_decay": 0.12} | {"lr": 0.0034}
    plan = replace(_PLAN, parameters=parameters, embedding=parameters // 2, corpus=corpus, unit=unit)
    plan = replace(plan, optimizer="muon", rates=rates)
    plan = replace(plan, steps=1000 if steps is None and minutes is None else steps, minutes=minutes)
    timed = replace(plan, steps=plan.steps or 9, seconds=seconds, step_seconds=seconds / 9)
    for line in (*plan_lines(plan), time_line(timed)):
        assert len(line) < 80 and "None" not in line and "–" not in line, line


@given(some.integers(0, 10**15))
def test_large_numbers_are_written_as_people_write_them(number: int) -> None:
    assert count_of(str(number)) == count_of(f"{number:,}") == number or number > 2**53
    assert count_of("20M") == 20_000_000 and count_of("1.5b") == 1_500_000_000 and count_of("1e9") == 10**9


@given(some.text(max_size=8))
def test_what_is_no_number_is_refused(text: str) -> None:
    try:
        assert count_of(text) >= 0
    except ValueError as error:
        assert "expected a number" in str(error)
