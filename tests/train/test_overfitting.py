"""A held-out loss that rises is told where it happens and at the end, and its best checkpoint is what is used."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.board.journal import Journal
from linnet.cli import main
from linnet.cli.plan import plan_lines
from linnet.models.model_name import find_model
from linnet.train import Callback
from linnet.train.checkpoint import BestCheckpoint
from linnet.train.overfitting import has_risen, margin_of_best
from linnet.train.plan import Plan
from tests.train.test_plan import Scores

_RISE = "the held-out loss has risen to 4.6, from its best of 4 at step 20"
_HEART = "the model learns its text by heart; that step is kept as best"
_FLAGS = "--preset tiny --vocab 384 --batch 8 --ctx 64 --sample-every 0 --eval-every 10 --checkpoint-every 0"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """So little text that ten steps pass through it more than once."""
    folder = tmp_path / "notes"
    folder.mkdir()
    text = Path(json.decoder.__file__).read_text()
    for number in range(12):
        (folder / f"{number}.txt").write_text(text[1000 * number : 1000 * (number + 1)])
    return folder


def train(small: Path, flags: str) -> None:
    assert main([*f"train from-scratch {_FLAGS} {flags}".split(), "--corpus", str(small), "--run-id", "a"]) == 0


def notes_of(run: linnet.Run) -> list[tuple[int | None, dict[str, Any]]]:
    return [(event.step, event.data) for event in run.events().read_events() if event.kind == "note"]


def test_a_rise_is_told_once_where_it_happens_and_at_the_end(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(5.0, 4.0, 4.01, 4.6, 4.7))
    train(small, "--steps 50")
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert f"warning 40: {_RISE}: {_HEART}" in lines and out.count("warning 40") == 1
    end = " ".join(out[out.index("a completed") :].split())
    assert f"warning {_RISE.replace('4.6', '4.7')}: {_HEART}" in end
    assert "runs/a/weights/step_20.gguf" in end and "step 20, the best of 50; a GGUF" in end
    run = linnet.open("a")
    (told,) = [(step, data["text"]) for step, data in notes_of(run) if data.get("level") == "warning"]
    assert told == (40, f"{_RISE}: {_HEART}")
    journal = Journal(run)
    block = run.events_path.read_bytes()
    journal.take(block, 0, len(block))
    assert [(entry.step, entry.text) for entry in journal.log_entries() if entry.level == "warning"] == [told]
    assert find_model("a").name == "step_20.gguf" and find_model("a@latest").name == "step_50.gguf"


def test_of_few_held_out_tokens_the_latest_that_noise_cannot_tell_from_the_lowest_is_the_best(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(5.0, 4.0, 4.01, 4.02))
    train(small, "--steps 30")
    assert main(["resume", "a", "--steps", "40"]) == 0
    assert "tokens are held out, and their loss says little" in capsys.readouterr().out
    assert find_model("a").name == "step_40.gguf"


@pytest.mark.parametrize(
    ("margin", "losses", "best"),
    [
        (0.0, [5.0, 4.0, 4.0, 4.01], 1),
        (0.0, [5.0, math.nan, 4.0], 2),
        (0.1, [5.0, 4.0, 4.05, 4.09], 3),
        (0.1, [5.0, 4.0, 4.09, 4.18, 4.15], 2),  # measured by the lowest, not by what was taken last
        (0.1, [5.0, 4.0, 4.05, 3.9, 4.05], 3),
    ],
)
def test_the_best_is_measured_by_the_lowest(margin: float, losses: list[float], best: int) -> None:
    chosen = BestCheckpoint(0, losses[0])
    for step, loss in enumerate(losses[1:], 1):
        chosen = chosen.or_later(step, loss, margin)
    assert (chosen.step, chosen.loss) == (best, losses[best])


def test_only_few_held_out_tokens_are_noise() -> None:
    assert margin_of_best(16, "tokens") == 0.375
    assert margin_of_best(1024, "tokens") == margin_of_best(16, "images") == 0.0


def test_json_names_the_best_step_and_the_model_is_that_one(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(5.0, 4.0, 4.6))
    train(small, "--steps 30 --json")
    made = json.loads(capsys.readouterr().out)
    assert (made["best_step"], made["best_validation_loss"]) == (20, 4.0)
    assert made["model"].endswith("step_20.gguf") and made["latest"].endswith("step_30.gguf")
    assert made["warning"] == f"{_RISE}: {_HEART}"


def test_a_resumed_run_does_not_tell_it_again_and_knows_the_best_step(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(5.0, 4.0, 4.5, 4.6, 4.7, 4.8))
    train(small, "--steps 40")
    capsys.readouterr()
    assert main(["resume", "a", "--steps", "60"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "warning 5" not in out and "risen to 4.8, from its best of 4 at step 20" in out
    assert "step 20, the best of 60" in out


def test_a_loss_that_falls_says_nothing_and_one_in_the_first_pass_speaks_of_the_rate(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(5.0, 4.0, 3.0))
    train(small, "--steps 30")
    out = capsys.readouterr().out
    assert "warning" not in out and "the best of" not in out

    told: list[tuple[int, str]] = []

    class Told(Callback):
        def on_warning(self, step: int, text: str) -> None:
            told.append((step, text))

    (small / "long.txt").write_text("A long story about birds that nobody has told before. " * 4000)
    monkeypatch.setattr("linnet.recipes.token_data.evaluate", Scores(4.0, 4.5, 4.6))
    flags: dict[str, Any] = {"preset": "tiny", "vocab": 384, "sample_every": 0, "corpus": small, "callbacks": [Told()]}
    run = linnet.train("from-scratch", **flags, steps=3, batch=1, eval_every=1, checkpoint_every=0, run_id="b")
    ((step, text),) = told
    assert step == 3 and text.endswith("at step 1, within the first pass over the data: a lower `lr` may help")
    assert find_model(run).name == "step_3.gguf"  # the only one that was evaluated and kept


@pytest.mark.parametrize(
    ("best", "loss", "scored", "risen"),
    [(4.0, 4.03, 65_536, False), (4.0, 4.05, 65_536, True), (4.0, 4.05, 256, False), (4.0, float("nan"), 9, False)],
)
def test_what_is_within_noise_is_no_rise(best: float, loss: float, scored: int, risen: bool) -> None:
    assert has_risen(best, loss, scored, repeats=True) is risen


def test_in_the_first_pass_over_the_data_a_small_rise_is_none() -> None:
    assert not has_risen(3.3, 3.346, 4096, repeats=False)  # it fell to 2.57 later, when the rate was lower
    assert has_risen(4.0, 4.25, 65_536, repeats=False)


def test_a_plan_of_many_epochs_says_so_in_one_row() -> None:
    plan = Plan(10**6, 10**5, "tokens", 1_200_000, 4096, 1e9, 11_720, 10**7, 10**8, "cpu")
    note = plan_lines(plan)[2]
    assert note == "note  40 epochs of 1.2M tokens will overfit: add text, or set --patience 3"
    few = replace(plan, steps=1000)
    for quiet in (few, replace(plan, stops_early=True), replace(plan, unit="images"), replace(plan, corpus=None)):
        assert len(plan_lines(quiet)) == 2
