"""A run beside its baseline: how its loss stands against another run's after as much training, and the verdict.

The same functions judge a run while it trains (`linnet train --baseline`) and after its end (`linnet compare
--baseline`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from linnet.errors import LinnetError, UsageError
from linnet.files import is_file
from linnet.runs.events import Event, as_number
from linnet.runs.run import Run

if TYPE_CHECKING:
    from linnet.runs.loss_history import LossHistory
    from linnet.runs.manifest import Manifest

Verdict = Literal["ahead", "par", "behind", "abort"]
PAR = 0.01  # of the baseline's loss: two seeds of one training differ by about half of that
WINDOW = 50  # steps whose mean is the training loss that is compared
TIMES = 50  # how often the training loss is compared in a run
_LEAST_LOSS = 0.1  # nats; below, a thousandth of a nat is par, for the shares of next to nothing say nothing
_LARGEST_EXPONENT = 700.0
# Settings without which two training losses are not the same quantity: a loss of one's own, units and inputs that are
# left out, varied and mixed images.
_OF_THE_LOSS = (
    *(
        "own_loss",
        "loss",
        "beta",
        "dropout",
        "label_smoothing",
        "mixup",
        "cutmix",
        "erase",
        "rand_augment",
        "magnitude",
    ),
    *("shift", "rotate", "zoom", "shear", "crop", "flip"),
)


@dataclass(frozen=True)
class Comparison:
    """How a run's loss stands against its baseline's after as much training, at one of its steps.

    - `metric`: what is compared: `validation/loss`, or `loss`, the mean over the last steps.
    - `work`: the tokens, images or steps after which both stand.
    """

    step: int
    metric: str
    work: float
    loss: float
    baseline_loss: float
    aborts: bool = False  # it is so far behind that it ends the run

    @property
    def loss_delta(self) -> float:
        """How much higher the run's loss is than its baseline's, in nats."""
        return self.loss - self.baseline_loss

    @property
    def ppl_ratio(self) -> float:
        """The run's perplexity as a multiple of its baseline's."""
        return math.exp(min(self.loss_delta, _LARGEST_EXPONENT))

    @property
    def share(self) -> float:
        """How much higher the run's loss is, as a share of its baseline's: 0.05 is five per cent behind."""
        return self.loss_delta / max(self.baseline_loss, _LEAST_LOSS)

    @property
    def verdict(self) -> Verdict:
        """`par` within one per cent of the baseline's loss; else `ahead` or `behind`."""
        if self.aborts:
            return "abort"
        return "par" if abs(self.share) <= PAR else "ahead" if self.share < 0 else "behind"

    def standing(self, baseline: str) -> str:
        """Where it stands, in words: `4.2 % behind wide`."""
        if abs(self.share) <= PAR:
            return f"on a par with {baseline}"
        return f"{100 * abs(self.share):.1f} % {'ahead of' if self.share < 0 else 'behind'} {baseline}"

    @property
    def figures(self) -> str:
        """What was compared, in words: `held-out loss 3.31 against 3.18`."""
        kind = "loss" if self.metric == "loss" else "held-out loss"
        return f"{kind} {self.loss:.4g} against {self.baseline_loss:.4g}"

    def fields(self) -> dict[str, Any]:
        """What a `compare` event says of it besides step and baseline."""
        judged = {"loss_delta": self.loss_delta, "ppl_ratio": self.ppl_ratio, "verdict": self.verdict}
        return {**judged, "metric": self.metric, "loss": self.loss, "baseline_loss": self.baseline_loss}


@dataclass(frozen=True)
class AbortRule:
    """`SHARE[@STEP]`: a run ends that is behind its baseline by more than this share of its loss, from a step on.

    Twice in a row by one quantity, so that a spike ends none. Without a step from the tenth of the run on.
    """

    share: float
    step: int | None = None
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> AbortRule:
        """Read a rule as people write it: `0.05`, `5%`, `0.05@2000`."""
        share_text, at, step_text = text.strip().partition("@")
        share_text = share_text.strip()
        percent = share_text.endswith("%")
        try:
            share = float(share_text.removesuffix("%")) / (100 if percent else 1)
            step = int(step_text.replace(",", "").replace("_", "")) if at else None
        except ValueError:
            share, step = math.nan, None
        if not 0 < share < (math.inf if percent else 1) or (step is not None and step < 0):
            raise UsageError(
                f"`abort_behind` {text!r} is not understood; write the share of the baseline's loss, and the step from"
                " which it counts: 0.05, 5% or 0.05@2000"
            )
        return cls(share, step, text.strip())

    def counts_at(self, step: int, steps: int) -> bool:
        """Does it count at a step of a run of so many?"""
        return step >= (max(1, steps // 10) if self.step is None else self.step)


class Baseline:
    """A run that another one is compared with; it may have ended long ago, or still be written.

    What was read of it stays when its folder goes away.
    """

    def __init__(self, run: Run) -> None:
        from linnet.runs.loss_history import LossHistory

        self.run = run
        self._metrics = run.metrics()
        self.history: LossHistory = LossHistory.of(run, self._metrics)

    @property
    def id(self) -> str:
        """The baseline's id."""
        return self.run.id

    def refresh(self) -> None:
        """Take in what was written since."""
        from linnet.runs.loss_history import LossHistory

        try:
            if is_file(self.run.events_path) and self._metrics.refresh():
                self.history = LossHistory.of(self.run, self._metrics)
        except (LinnetError, OSError):  # it went away at this moment
            return

    def close(self) -> None:
        """Let go of its file."""
        self._metrics.close()


def find_baseline(run: Run) -> Run | None:
    """The baseline that a run names: where it lay when the run began, else of that name beside it; None: gone."""
    manifest = run.manifest
    path, name = manifest.config.get("baseline"), manifest.compare_to
    folders = [Path(path)] if isinstance(path, str) else []
    folders += [run.path.parent / name] if name is not None and Path(name).name == name else []
    for folder in folders:
        try:
            if folder.resolve() != run.path.resolve():
                return Run.load(folder)
        except (LinnetError, OSError):
            continue
    return None


def why_incomparable(model: Mapping[str, Any], baseline: Manifest) -> str | None:
    """Why the losses of a model and of a baseline say nothing about each other; None where they do."""
    for field, thing in (("vocab", "a vocabulary"), ("num_classes", "a number of classes")):
        own, other = model.get(field), baseline.model.get(field)
        if own is not None and other is not None and own != other:
            return (
                f"the baseline {baseline.run_id} has {thing} of {other:,} and this run of {own:,}: losses of other"
                f" {'tokens' if field == 'vocab' else 'classes'} say nothing about each other"
            )
    if ("vocab" in model and "num_classes" in baseline.model) or ("num_classes" in model and "vocab" in baseline.model):
        return f"the baseline {baseline.run_id} was trained on {'images' if 'vocab' in model else 'text'}"
    return None


def compares_training(config: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool:
    """Is the training loss of two runs the same quantity, by their settings?"""
    return all((config.get(name) or None) == (baseline.get(name) or None) for name in _OF_THE_LOSS)


def compare_step(own: LossHistory, baseline: LossHistory, row: int = -1) -> Comparison | None:
    """The mean training loss of the last steps up to a row, beside the baseline's over the same tokens.

    None where the baseline was not trained so far, or either has no finite loss there.
    """
    own, baseline = _in_one_unit(own, baseline)
    if not len(own):
        return None
    end = float(own.work[row])
    begin = own.window(end, WINDOW)
    if begin is None:
        return None
    loss, other = own.mean(begin, end), baseline.mean(begin, end)
    return None if loss is None or other is None else Comparison(int(own.step[row]), "loss", end, loss, other)


def compare_evaluation(own: LossHistory, baseline: LossHistory, row: int = -1) -> Comparison | None:
    """The held-out loss of an evaluation beside the baseline's after as many tokens.

    None where the baseline was not trained so far, or scored another part of the text.
    """
    own, baseline = _in_one_unit(own, baseline)
    if not len(own.evaluations):
        return None
    step, work, loss, samples = own.evaluations[row].tolist()
    other = baseline.held_out(work, None if math.isnan(samples) else samples)
    return None if other is None else Comparison(int(step), "validation/loss", work, loss, other)


def comparisons(
    own: LossHistory, baseline: LossHistory, *, training: bool = True, steps: Collection[int] = ()
) -> list[Comparison]:
    """The comparisons of a run as it makes them while it trains, in order; `training`: of its training loss too.

    `steps`: where else it made some, as a run does that ended early: it went by the length it was to have.
    """
    own, baseline = _in_one_unit(own, baseline)
    every = interval(int(own.step[-1])) if len(own) else 1
    rows = [row for row, step in enumerate(own.step.tolist()) if training and (step % every == 0 or step in steps)]
    results = [compare_step(own, baseline, row) for row in rows]
    results += [compare_evaluation(own, baseline, row) for row in range(len(own.evaluations))]
    return sorted((one for one in results if one is not None), key=lambda one: (one.step, one.metric))


def interval(steps: int) -> int:
    """Steps between two comparisons of the training loss in a run of so many."""
    return max(1, steps // TIMES)


def latest_of(results: Sequence[Comparison]) -> Comparison | None:
    """The comparison that a run is judged by: the last one of the held-out loss, else of the training loss.

    Of a run that ended so, the one that ended it; going on, it is judged anew.
    """
    ended = [result for result in results if result.aborts and result.step == results[-1].step]
    held_out = [result for result in results if result.metric != "loss"]
    judged = ended or held_out or results
    return judged[-1] if judged else None


def logged_comparisons(run: Run) -> list[Comparison]:
    """What the stream of a run says of its baseline, without the steps that were trained again."""
    from linnet.runs.scan import events_of_kinds

    results: list[Comparison] = []
    for event in events_of_kinds(run.events_path, ("compare", "resume"), run.origin):
        if event.kind == "resume":
            results = results if event.step is None else [result for result in results if result.step <= event.step]
        elif (comparison := to_comparison(event)) is not None:
            results.append(comparison)
    return results


def to_comparison(event: Event) -> Comparison | None:
    """A `compare` event as what it says; None where it lacks the losses, as those of other writers may."""
    data = event.data
    loss, other = (as_number(data.get(name)) for name in ("loss", "baseline_loss"))
    if event.step is None or not (math.isfinite(loss) and math.isfinite(other)):
        return None
    metric = data.get("metric")
    metric = metric if isinstance(metric, str) else "loss"
    return Comparison(event.step, metric, math.nan, loss, other, data.get("verdict") == "abort")


def _in_one_unit(own: LossHistory, baseline: LossHistory) -> tuple[LossHistory, LossHistory]:
    return (own, baseline) if own.unit == baseline.unit else (own.in_steps(), baseline.in_steps())
