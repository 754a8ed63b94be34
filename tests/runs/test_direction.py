"""Which way a metric is better is told in one place, and every reader agrees with it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import linnet
from linnet.runs.metric_names import goal_of
from tests.conftest import Printed


def _log(name: str, metric: str, values: Iterable[float], **fields: object) -> None:
    with linnet.start(run_id=name, system_every=0, **fields) as run:  # type: ignore[arg-type]
        for step, value in enumerate(values, start=1):
            run.log(step, {metric: value})


@pytest.mark.parametrize(
    ("goal", "names"),
    [
        ("min", "loss train/loss valLoss val_loss Loss/train train_loss_step validation/bits_per_byte bpb"),
        ("min", "perplexity val/ppl mse rmse mae wer cer nll error error_rate mean_squared_error log_loss"),
        ("max", "acc val_acc valacc top5 validation/top-1 Accuracy/val auc ROC_AUC f1 f1_score bleu BLEU4 mAP IoU"),
        ("max", "reward score precision recall success_rate acc_norm"),
        (None, "lr wall_us grad_norm tokens tokens_per_s mfu decode/logprob sys/disk/errors loss_scale acc_steps"),
        (None, "epoch score_threshold acc_stderr protest accumulate train temperature"),
    ],
)
def test_the_words_of_a_name_tell_which_way_is_better(goal: str | None, names: str) -> None:
    assert {name: goal_of(name, {}) for name in names.split()} == dict.fromkeys(names.split(), goal)


def test_a_declared_goal_wins_over_the_name() -> None:
    assert goal_of("loss", {"loss": "max"}) == "max"
    assert goal_of("lr", {"lr": "min"}) == "min"


def test_nothing_is_best_without_a_direction(root: Path, printed: Printed) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in (1, 2, 3):
            run.log(step, loss=1 / step, lr=0.1 / step, grad_norm=step)
            run.eval(step, "validation", bits_per_byte=3.0 - step)
    metrics = linnet.open("a").metrics()
    assert metrics["lr"].best is metrics["grad_norm"].best is None
    assert metrics["validation/bits_per_byte"].best == (3, 0.0)
    table = {row["metric"]: row for row in csv.DictReader(io.StringIO(printed("metrics", "a")), delimiter="\t")}
    assert (table["lr"]["best"], table["lr"]["best_step"], table["lr"]["goal"]) == ("", "", "")
    assert (table["validation/bits_per_byte"]["best"], table["validation/bits_per_byte"]["goal"]) == ("0.0", "min")
    for words in (["show", "a", "--json"], ["compare", "a", "a", "--json"]):
        told = json.loads(printed(*words))
        summary = (told[0] if isinstance(told, list) else told)["metrics"]
        assert (summary["lr"]["best"], summary["lr"]["best_step"], summary["lr"]["goal"]) == (None, None, None)
        assert summary["loss"]["goal"] == "min"


def _row(out: str, name: str) -> list[str]:
    return next(line.split()[1::2] for line in out.splitlines() if line.startswith(f"{name} "))


def test_compare_marks_the_best_whatever_the_order_of_the_runs(root: Path, printed: Printed) -> None:
    for name, value, goals in (("a", 5.0, {}), ("b", 1.0, {"cost": "min"}), ("c", 2.0, {"cost": "min"})):
        _log(name, "cost", [value], goals=goals)
    assert _row(printed("compare", "a", "b", "c"), "cost") == ["5", "1*", "2"]
    assert _row(printed("compare", "b", "c", "a"), "cost") == ["1*", "2", "5"]


def test_compare_marks_none_where_the_goals_of_the_runs_contradict_each_other(root: Path, printed: Printed) -> None:
    _log("a", "cost", [5.0], goals={"cost": "max"})
    _log("b", "cost", [1.0], goals={"cost": "min"})
    out = printed("compare", "a", "b")
    assert _row(out, "cost") == ["–", "–"]
    assert out.endswith("no best of cost: its goal is min in one run and max in another\n")


def test_runs_are_sorted_best_first_whichever_way_is_better(root: Path, printed: Printed) -> None:
    for name, score in (("low", 0.5), ("high", 0.9), ("middle", 0.7)):
        _log(name, "accuracy", [score])
    for name, loss in (("bad", 2.0), ("good", 1.0)):
        _log(name, "loss", [loss])
    _log("without", "lr", [0.1])
    _log("diverged", "loss", [float("nan")])
    order = [run["run_id"] for run in json.loads(printed("runs", "--sort", "loss", "--json"))]
    assert order == ["good", "bad", "high", "middle", "low", "without", "diverged"]


def test_the_chart_marks_the_best_point_and_draws_steps_in_their_order(root: Path, printed: Printed) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step, loss in ((16, 4.0), (1, 9.0), (8, 1.0), (4, 3.0)):
            run.log(step, loss=loss)
    lines = printed("show", "a").splitlines()
    assert any(line.startswith("loss") and line.endswith("◆ best 1 at step 8") for line in lines)
    axis = next(at for at, line in enumerate(lines) if "└──" in line)
    assert "◆" in lines[axis - 1]  # at the foot of the chart
    assert lines[axis + 1].split() == ["1", "16"]
    _log("b", "lr", [0.1, 0.2])
    assert "◆" not in printed("show", "b")
