"""A baseline that runs along: comparisons while a run trains, what they say at its end, and a run that is ended."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import linnet
from linnet.runs import Event, Run
from linnet.runs.baseline import AbortRule, Comparison, compares_training, comparisons, logged_comparisons
from linnet.runs.loss_history import LossHistory
from linnet.train import Callback
from linnet.train.baseline_callback import BaselineCallback
from linnet.train.callback import Callbacks, TrainingContext
from tests.conftest import SMALL, Said, interrupt
from tests.scale.forked_ranks import fork_ranks

LAZY: dict[str, Any] = {"preset": "tiny", "vocab": 384, "batch": 4, "sample_every": 0, "eval_tokens": 1024}
COMPARE = ("step", "metric", "verdict", "loss", "baseline_loss")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory, corpus: Path, cache: Path) -> Path:
    """A folder with a baseline that learns."""
    root = tmp_path_factory.mktemp("bases") / "runs"
    linnet.train(corpus=corpus, cache=cache, runs=root, run_id="base", steps=40, lr=5e-3, **LAZY)
    return root


@pytest.fixture(autouse=True)
def _beside(bases: Path, tmp_path: Path) -> None:
    """The baseline in the folder of runs of each test."""
    shutil.copytree(bases / "base", tmp_path / "runs/base", symlinks=True)


def events(run: Run, kind: str) -> list[Event]:
    return [event for event in run.events().read_events() if event.kind == kind]


def compared(run: Run) -> list[tuple[object, ...]]:
    return [tuple(event.data[name] for name in COMPARE) for event in events(run, "compare")]


def verdicts(made: Iterable[Comparison]) -> list[str]:
    return [one.verdict for one in made]


def test_a_run_is_compared_at_every_evaluation_and_between(corpus: Path) -> None:
    """The same training as its baseline's: every loss is the same, and each comparison says so."""
    seen: list[tuple[int, str]] = []

    class Listener(Callback):
        def on_comparison(self, comparison: Comparison, baseline: str) -> None:
            seen.append((comparison.step, baseline))

    run = linnet.train(corpus=corpus, steps=40, lr=5e-3, baseline="base", run_id="twin", callbacks=[Listener()], **LAZY)
    (start,) = events(run, "run_start")
    assert start.data["compare_to"] == run.manifest.compare_to == "base"
    made = logged_comparisons(run)
    assert [one.step for one in made if one.metric == "validation/loss"] == list(range(4, 41, 4))
    assert [one.step for one in made if one.metric == "loss"] == list(range(1, 41))
    assert {one.loss_delta for one in made} == {0.0}
    assert set(verdicts(made)) == {"par"}
    assert seen == [(one.step, "base") for one in made]


def test_finished_runs_get_the_same_verdicts_that_they_got_while_they_trained(corpus: Path) -> None:
    """Another batch, so that the two are at other steps after as many tokens; and another length."""
    run = linnet.train(
        corpus=corpus, steps=25, lr=1e-3, baseline="base", run_id="wide", **{**LAZY, "batch": 8, "eval_every": 5}
    )
    later = comparisons(LossHistory.of(run), LossHistory.of(linnet.open("base")))
    live = logged_comparisons(run)
    assert [(one.step, one.metric) for one in live] == [(one.step, one.metric) for one in later]
    assert max(one.step for one in live) == 20, "the baseline ended there"
    for one, other in zip(live, later, strict=True):
        assert (one.loss, one.baseline_loss) == pytest.approx((other.loss, other.baseline_loss), rel=1e-9)
    notes = [event.data["text"] for event in events(run, "note")]
    assert notes == ["the baseline base ended after 5,120 tokens: from here on nothing is compared"]


def test_a_run_that_goes_on_compares_as_one_that_was_not_interrupted(corpus: Path) -> None:
    flags = ["--corpus", str(corpus), *SMALL, "--steps", "40", "--lr", "1e-3", "--baseline", "base"]
    flags += ["--sample-every", "0", "--checkpoint-every", "15"]
    linnet.train(  # the same in one piece
        corpus=corpus, steps=40, lr=1e-3, baseline="base", run_id="whole", **{**LAZY, "eval_tokens": 2048}
    )
    interrupt(["train", "from-scratch", "--run-id", "parts", *flags], "checkpoint 15")
    resumed = linnet.resume("parts")
    whole, parts = (logged_comparisons(run) for run in (linnet.open("whole"), resumed))
    assert [(one.step, one.metric, one.loss_delta) for one in parts] == [
        (one.step, one.metric, one.loss_delta) for one in whole
    ]
    assert events(resumed, "resume")[0].data["compare_to"] == "base"


def test_a_hopeless_run_is_ended_with_a_checkpoint_and_exit_code_1(small: list[str], said: Said) -> None:
    flags = ["--steps", "40", "--lr", "1e-6", "--baseline", "base", "--abort-behind", "5%@8", "--run-id", "slow"]
    code, out, _ = said(*small, *flags)
    run = linnet.open("slow")
    (end,) = events(run, "run_end")
    ended = end.data["final_step"]
    assert code == end.data["exit_code"] == 1
    assert run.status == end.data["reason"] == "aborted"
    assert "behind its baseline base at step" in end.data["error"]
    assert [path.stem for path in run.checkpoints()][-1] == f"step_{ended}"
    made = logged_comparisons(run)
    far = [one.step for one in made if one.step >= 8 and one.share > 0.05]
    assert len(set(far)) == 2, "the second comparison in a row ends it"
    assert verdicts(made)[-1] == "abort"
    assert ended == far[-1]
    assert f"% behind its baseline base at step {ended}" in out
    assert "(--abort-behind 5%@8)" in out
    assert "linnet resume slow" in out
    standings = json.loads(said("compare", "--baseline", "base", "slow", "--json")[1])
    assert standings[0]["verdict"] == standings[0]["latest"]["verdict"] == "abort", "the same verdict afterwards"
    again = linnet.resume("slow", steps=ended + 2)
    assert again.status == "completed", "a budget that ends before the next verdict"


def test_two_ranks_end_a_hopeless_run_together(small: list[str], tmp_path: Path) -> None:
    """Rank 0 alone compares, and both stop after the same step."""
    flags = ["--steps", "40", "--lr", "1e-6", "--baseline", "base", "--abort-behind", "5%@8", "--run-id", "slow"]
    codes = [rank.end()[0] for rank in fork_ranks([*small, *flags], tmp_path, 2, None)]
    run = linnet.open("slow")
    assert codes == [1, 1]
    assert run.status == "aborted"
    assert logged_comparisons(run)[-1].verdict == "abort"
    assert len(run.checkpoints()) > 0


def test_a_baseline_that_is_gone_when_a_run_goes_on_costs_only_the_comparison(corpus: Path, tmp_path: Path) -> None:
    linnet.train(corpus=corpus, steps=4, lr=1e-3, baseline="base", run_id="orphan", **LAZY)
    before = logged_comparisons(linnet.open("orphan"))
    shutil.rmtree(tmp_path / "runs/base")
    told: list[str] = []

    class Listener(Callback):
        def on_remark(self, text: str) -> None:
            told.append(text)

    run = linnet.resume("orphan", steps=8, callbacks=[Listener()])
    assert (run.status, run.summarize().step) == ("completed", 8)
    assert logged_comparisons(run) == before
    assert "the baseline base is gone: training goes on, and is not compared" in told
    assert run.manifest.compare_to == "base"


def test_a_baseline_may_lie_in_another_folder_and_be_a_run_itself(corpus: Path, bases: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "runs/base")
    for number, baseline in enumerate((bases / "base", str(bases / "base"), linnet.open(str(bases / "base")))):
        run = linnet.train(corpus=corpus, steps=2, baseline=baseline, run_id=f"far{number}", **LAZY)
        assert run.config["baseline"] == str(bases / "base")
        assert {event.data["baseline_run_id"] for event in events(run, "compare")} == {"base"}


def test_a_fork_is_compared_with_the_run_it_came_from(corpus: Path) -> None:
    run = linnet.train(from_="base@32", steps=8, lr=5e-3, warmup=0, baseline="base", run_id="fork", eval_every=4)
    made = logged_comparisons(run)
    assert {one.step for one in made if one.metric == "loss"} == set(range(33, 41))
    first = made[0]
    assert (first.step, first.loss_delta) == (33, 0.0), "its window is its parent's, and so is its first loss"


def test_the_same_command_again_may_name_a_baseline_that_the_first_did_not(corpus: Path) -> None:
    same = {"corpus": corpus, "lr": 1e-3, "run_id": "again", "resume": "auto", **LAZY}
    assert linnet.train(steps=4, **same).manifest.compare_to is None
    run = linnet.train(steps=8, baseline="base", **same)
    assert run.manifest.compare_to == "base"
    assert {one.step for one in logged_comparisons(run)} == {5, 6, 7, 8}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"baseline": "nobody"}, "`baseline`: no run 'nobody'"),
        ({"abort_behind": "5%"}, "`abort_behind` says when a run is too far behind its `baseline`: name that run"),
        ({"baseline": "base", "abort_behind": "lots"}, "`abort_behind` 'lots' is not understood"),
        ({"baseline": "base", "abort_behind": "5"}, "`abort_behind` '5' is not understood"),
        ({"baseline": "base", "vocab": 400}, "the baseline base has a vocabulary of 384 and this run of 400"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_a_folder_is_made(
    corpus: Path, flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(linnet.LinnetError) as caught:
        linnet.train(corpus=corpus, steps=2, run_id="mine", **{**LAZY, **flags})
    assert message in str(caught.value)
    assert [run.run_id for run in linnet.list_runs()] == ["base"]


def test_the_end_of_a_run_and_show_say_how_it_stands(small: list[str], said: Said) -> None:
    flags = ["--steps", "12", "--lr", "1e-6", "--baseline", "base", "--run-id", "slow"]
    _, out, _ = said(*small, *flags)
    assert "compared with the baseline base (5,120 tokens)" in out
    assert "% behind base: loss" in out
    _, shown, _ = said("show", "slow")
    assert "baseline" in shown
    assert "% behind base at step 12" in shown


class EndedError(Exception):
    """A comparison has ended the run."""


def judged(rule: str, comparisons: list[tuple[int, str, float]], steps: int = 100) -> int | None:
    """The step at which comparisons (step, metric, share behind) end a run of so many; None: they do not."""

    def abort(why: str) -> None:
        raise EndedError(why)

    callback = BaselineCallback(
        SimpleNamespace(id="base"),  # type: ignore[arg-type]
        AbortRule.parse(rule), Callbacks([]), unit="tokens", seen=0, scored=lambda step: 1,
    )  # fmt: skip
    callback.attach(TrainingContext(SimpleNamespace(compare=lambda *_, **__: None), None, abort, abort))  # type: ignore[arg-type]
    callback._steps_planned = steps
    for step, metric, share in comparisons:
        try:
            callback._log_comparison(Comparison(step, metric, float(step), 2.0 * (1 + share), 2.0))
        except EndedError:
            return step
    return None


HELD_OUT = "validation/loss"


@pytest.mark.parametrize(
    ("comparisons", "ends"),
    [
        ([(10, "loss", 0.2), (20, "loss", 0.2)], 20),
        ([(10, "loss", 0.2), (20, "loss", 0.01), (30, "loss", 0.2)], None),
        ([(10, "loss", 0.2), (10, HELD_OUT, 0.2), (20, "loss", 0.2)], 20),
        # What it is judged by is its held-out loss, however well it learns its text by heart.
        ([(10, "loss", -0.3), (10, HELD_OUT, 0.2), (20, "loss", -0.4), (20, HELD_OUT, 0.3)], 20),
        ([(10, HELD_OUT, 0.2), (20, "loss", 0.0), (30, "loss", 0.0), (30, HELD_OUT, 0.0)], None),
        ([(10, HELD_OUT, 0.0), (11, "loss", 0.2), (12, "loss", 0.2), (13, "loss", 0.2)], None),
        ([(10, HELD_OUT, 0.0), (11, "loss", 0.2), (12, "loss", 0.2), (20, HELD_OUT, 0.2), (21, "loss", 0.2)], 21),
        ([(90, HELD_OUT, 0.2), (100, HELD_OUT, 0.2)], None),  # there is nothing left to end
    ],
)
def test_a_run_is_ended_by_the_loss_that_it_is_judged_by(
    comparisons: list[tuple[int, str, float]], ends: int | None
) -> None:
    assert judged("5%", comparisons) == ends


def test_the_training_loss_with_dropout_is_another_quantity() -> None:
    assert compares_training({}, {}) and compares_training({"dropout": 0.0}, {})
    assert compares_training({"dropout": 0.1}, {"dropout": 0.1})
    assert not compares_training({"dropout": 0.1}, {})


def test_losses_of_other_tokens_are_not_compared_though_there_are_as_many(
    corpus: Path, tmp_path: Path, said: Said
) -> None:
    (tmp_path / "verse.txt").write_text(
        "".join(f"{n} times {n} is {n * n}, said the owl to {n + 1} mice.\n" * 2 for n in range(900))
    )
    other = {**LAZY, "corpus": str(tmp_path / "verse.txt"), "steps": 2, "lr": 1e-3}
    linnet.train(run_id="other", **other)
    with pytest.raises(linnet.LinnetError, match="the baseline base has other tokens"):
        linnet.train(run_id="mine", baseline="base", **other)
    code, out, _ = said("compare", "--baseline", "base", "other")
    assert code == 0 and "other tokens" in " ".join(out.split())
    (standing,) = json.loads(said("compare", "--baseline", "base", "other", "--json")[1])
    assert standing["verdict"] is None and "other tokens" in standing["why"]
    shutil.rmtree(tmp_path / "runs/base/weights")  # it ended before its first checkpoint, or has none yet
    _, out, _ = said("train", "from-scratch", "--corpus", str(corpus), *SMALL, "--steps", "2", "--baseline", "base")
    assert "it has no checkpoint yet that states its tokens, which are taken to be the same" in out
