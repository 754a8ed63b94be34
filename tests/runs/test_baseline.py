"""A run beside its baseline: the same tokens of both, whatever their batches and lengths, and a verdict by one rule."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.errors import UsageError
from linnet.runs import Run
from linnet.runs.baseline import (
    AbortRule,
    Baseline,
    Comparison,
    compare_evaluation,
    compare_step,
    comparisons,
    find_baseline,
    latest_of,
    logged_comparisons,
    why_incomparable,
)
from linnet.runs.loss_history import LossHistory
from tests.conftest import Said

Loss = Callable[[int], float]


def made(name: str, loss: Loss, steps: int, tokens: int = 1024, **start: Any) -> Run:
    """A run whose loss after so many tokens is a function of them."""
    with linnet.start(run_id=name, system_every=0, **start) as run:
        for step in range(1, steps + 1):
            run.log(step, loss=loss(step * tokens), tokens=tokens)
            if step % (steps // 5) == 0:
                run.eval(step, "validation", loss=loss(step * tokens) + 0.1, samples=2048)
    return linnet.open(name)


def falling(tokens: int) -> float:
    return 2 + 3 * math.exp(-tokens / 20_000)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("higher", "verdict"), [(0.0, "par"), (0.015, "par"), (-0.015, "par"), (0.2, "behind"), (-0.2, "ahead")]
)
def test_the_verdict_is_by_one_per_cent_of_the_baselines_loss(higher: float, verdict: str) -> None:
    base = LossHistory.of(made("base", falling, 100))
    own = LossHistory.of(made("own", lambda tokens: falling(tokens) + higher, 100))
    for comparison in (compare_step(own, base), compare_evaluation(own, base)):
        assert comparison is not None
        assert comparison.verdict == verdict
        assert comparison.loss_delta == pytest.approx(higher)
        assert comparison.ppl_ratio == pytest.approx(math.exp(higher))


def test_losses_near_nothing_are_judged_by_a_thousandth_of_a_nat() -> None:
    assert Comparison(1, "loss", 1, 2e-4, 1e-4).verdict == "par"
    assert Comparison(1, "loss", 1, 0.012, 0.01).verdict == "behind"


@pytest.mark.usefixtures("root")
def test_a_run_of_another_batch_is_compared_after_as_many_tokens() -> None:
    """Half the steps of twice the tokens: at one step they have seen other amounts, after one amount the same."""
    base = LossHistory.of(made("base", falling, 100, 1024))
    wide = LossHistory.of(made("wide", falling, 50, 2048))
    at_step_40 = compare_step(wide, base, 39)
    assert at_step_40 is not None
    assert at_step_40.work == 40 * 2048
    plain = [falling(step * 1024) for step in range(1, 81)]
    assert at_step_40.baseline_loss == pytest.approx(sum(plain) / len(plain))
    held_out = [one for one in comparisons(wide, base) if one.metric == "validation/loss"]
    assert [one.step for one in held_out] == [10, 20, 30, 40, 50]
    assert {one.verdict for one in held_out} == {"par"}


@pytest.mark.usefixtures("root")
def test_the_training_loss_is_the_mean_of_the_last_fifty_steps_of_the_same_tokens() -> None:
    base = LossHistory.of(made("base", lambda tokens: 4 + tokens % 7, 200))
    own = LossHistory.of(made("own", lambda tokens: 5 + tokens % 7, 200))
    comparison = compare_step(own, base)
    assert comparison is not None
    last = [5 + (step * 1024) % 7 for step in range(151, 201)]
    assert comparison.loss == pytest.approx(sum(last) / 50)
    assert comparison.loss_delta == pytest.approx(1)


@pytest.mark.usefixtures("root")
def test_nothing_is_compared_beyond_the_baselines_end() -> None:
    short = LossHistory.of(made("short", falling, 50))
    long = LossHistory.of(made("long", falling, 100))
    assert compare_step(long, short) is None
    assert compare_evaluation(long, short) is None
    made_so_far = comparisons(long, short)
    assert max(one.step for one in made_so_far) == 50
    latest = latest_of(made_so_far)
    assert latest is not None
    assert (latest.step, latest.metric) == (40, "validation/loss")


@pytest.mark.usefixtures("root")
def test_a_held_out_loss_of_another_part_of_the_text_is_not_compared() -> None:
    base, own = made("base", falling, 100), made("own", falling, 100)
    stream = own.events_path.read_text().replace('"samples":2048', '"samples":999')
    own.events_path.write_text(stream)
    made_so_far = comparisons(LossHistory.of(own), LossHistory.of(base))
    assert {one.metric for one in made_so_far} == {"loss"}


@pytest.mark.usefixtures("root")
def test_a_step_without_a_loss_is_passed_over() -> None:
    base = LossHistory.of(made("base", falling, 100))
    own = LossHistory.of(made("own", lambda tokens: math.nan if tokens == 90 * 1024 else falling(tokens), 100))
    comparison = compare_step(own, base)
    assert comparison is not None
    assert abs(comparison.share) < 0.01


@pytest.mark.usefixtures("root")
def test_a_run_that_logs_no_tokens_is_compared_by_steps() -> None:
    with linnet.start(run_id="plain", system_every=0) as run:
        for step in range(1, 101):
            run.log(step, loss=3.0)
    comparison = compare_step(
        LossHistory.of(made("own", lambda _: 2.5, 60)), LossHistory.of(linnet.open("plain")), row=29
    )
    assert comparison is not None
    assert (comparison.step, comparison.work, comparison.loss_delta) == (30, 30, pytest.approx(-0.5))


@pytest.mark.usefixtures("root")
def test_a_fork_goes_on_where_its_parent_was() -> None:
    """Its tokens count on from the parent's, and the window of its first steps reaches back into the parent's."""
    parent = made("parent", falling, 100)
    with linnet.start(run_id="fork", parent="parent", parent_step=50, system_every=0) as run:
        for step in range(51, 101):
            run.log(step, loss=falling(step * 1024) - 1, tokens=1024)
    history = LossHistory.of(linnet.open("fork"))
    assert (history.begin, history.end, len(history)) == (0.0, 100 * 1024, 100)
    comparison = compare_step(history, LossHistory.of(parent), row=74)
    assert comparison is not None
    assert comparison.loss_delta == pytest.approx(-0.5), "half of the window is the parent's own"
    shutil.rmtree(parent.path)
    alone = LossHistory.of(linnet.open("fork"))
    assert (alone.begin, alone.end) == (50 * 1024, 100 * 1024), "a parent that is gone was probably like its fork"


@pytest.mark.usefixtures("root")
def test_a_baseline_that_is_being_written_is_read_on_and_stays_when_its_folder_goes(root: Path) -> None:
    with linnet.start(run_id="base", system_every=0) as run:
        run.log(1, loss=3.0, tokens=1024)
        baseline = Baseline(linnet.open("base"))
        assert baseline.history.end == 1024
        run.log(2, loss=3.0, tokens=1024)
        baseline.refresh()
        assert baseline.history.end == 2048
    shutil.rmtree(root / "base")
    baseline.refresh()
    assert baseline.history.end == 2048
    baseline.close()


def test_a_run_knows_its_baseline_by_path_and_beside_it(root: Path, tmp_path: Path) -> None:
    made("base", falling, 10)
    config = {"baseline": str(root / "base")}
    own = made("own", falling, 10, compare_to="base", config=config, exact=["baseline"])
    start = next(event.data for event in own.events().read_events() if event.kind == "run_start")
    assert start["compare_to"] == own.manifest.compare_to == "base"
    shutil.move(root, tmp_path / "elsewhere")
    moved = Run.load(tmp_path / "elsewhere/own")
    beside = find_baseline(moved)
    assert beside is not None
    assert beside.path == tmp_path / "elsewhere/base"
    shutil.rmtree(beside.path)
    assert find_baseline(moved) is None


@pytest.mark.usefixtures("root")
def test_what_was_logged_is_read_back_without_steps_that_were_trained_again() -> None:
    with linnet.start(run_id="own", compare_to="base", system_every=0) as run:
        for step in (10, 20, 30):
            comparison = Comparison(step, "loss", 1024 * step, 3.3, 3.0, aborts=step == 30)
            run.compare(step, "base", **comparison.fields())
    with linnet.start(resume="own", from_step=20, system_every=0) as run:
        run.note("on again")
    assert [(one.step, one.verdict) for one in logged_comparisons(linnet.open("own"))] == [
        (10, "behind"),
        (20, "behind"),
    ]


@pytest.mark.usefixtures("root")
def test_a_run_is_judged_by_the_comparison_that_ended_it(said: Said) -> None:
    """Its training loss did, after the held-out loss was last measured, at a step of the length it was to have."""
    made("base", falling, 200)
    with linnet.start(run_id="hope", compare_to="base", system_every=0) as run:
        for step in range(1, 161):
            run.log(step, loss=falling(step * 1024) + 1, tokens=1024)
            if step == 150:
                run.eval(step, "validation", loss=falling(step * 1024) + 1, samples=2048)
        for step, metric, aborts in ((150, "validation/loss", False), (160, "loss", True)):
            loss = falling(step * 1024)
            run.compare(step, "base", **Comparison(step, metric, 0.0, loss + 1, loss, aborts).fields())
        run.finish("aborted")
    latest = latest_of(logged_comparisons(linnet.open("hope")))
    assert latest is not None and (latest.step, latest.metric, latest.verdict) == (160, "loss", "abort")
    (standing,) = json.loads(said("compare", "--baseline", "base", "--json")[1])
    assert standing["verdict"] == standing["latest"]["verdict"] == "abort"
    row = said("compare", "--baseline", "base")[1].splitlines()[-1].split()
    assert row[:3] == ["hope", "160", "training"] and "abort" in row
    assert "at step 160: loss" in said("show", "hope")[1]


def test_a_run_that_went_on_after_it_was_ended_is_judged_anew() -> None:
    ended = Comparison(5, "loss", 5.0, 3.0, 2.0, aborts=True)
    before, after = (Comparison(step, "validation/loss", step, 2.0, 2.0) for step in (4, 6))
    assert latest_of([before, ended]) is ended
    assert latest_of([before, ended, after]) is after


def test_losses_of_other_tokens_or_classes_say_nothing_about_each_other(root: Path) -> None:
    manifest = made("base", falling, 10, model={"vocab": 4096}).manifest
    assert why_incomparable({"vocab": 4096}, manifest) is None
    assert "vocabulary of 4,096" in (why_incomparable({"vocab": 384}, manifest) or "")
    assert "trained on text" in (why_incomparable({"num_classes": 10}, manifest) or "")


@pytest.mark.parametrize(
    ("text", "share", "step"), [("0.05", 0.05, None), ("5%", 0.05, None), ("0.1@2_000", 0.1, 2000), ("10% @ 5", 0.1, 5)]
)
def test_an_abort_rule_is_read_as_people_write_it(text: str, share: float, step: int | None) -> None:
    rule = AbortRule.parse(text)
    assert (rule.share, rule.step) == (pytest.approx(share), step)


@pytest.mark.parametrize("text", ["", "much", "0", "-5%", "0.05@", "0.05@soon", "nan"])
def test_another_one_is_refused_with_how_it_is_written(text: str) -> None:
    with pytest.raises(UsageError, match=r"0\.05, 5% or 0\.05@2000"):
        AbortRule.parse(text)


def test_without_a_step_the_rule_counts_from_a_tenth_of_the_run() -> None:
    assert [AbortRule(0.1).counts_at(step, 500) for step in (49, 50)] == [False, True]
    assert [AbortRule(0.1, 200).counts_at(step, 500) for step in (199, 200)] == [False, True]
