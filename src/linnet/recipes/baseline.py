"""The baseline of a training (`baseline=RUN`): found, checked against what is trained, taken along as a callback."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import UsageError
from linnet.gguf.token_spelling import stated_tokens
from linnet.recipes.job import Job
from linnet.runs import Run, RunError, RunStore
from linnet.runs.baseline import AbortRule, Baseline, compares_training, find_baseline, why_incomparable
from linnet.train.baseline_callback import BaselineCallback

if TYPE_CHECKING:
    from linnet.train.callback import Callbacks
    from linnet.train.progress import Progress
    from linnet.train.protocols import RunData
    from linnet.train.ranks import Ranks

_TOKENS = "tokenizer.ggml.tokens"


def with_baseline(
    job: Job, runs_root: str | os.PathLike[str] | None, ranks: Ranks, resumed: Run | None = None
) -> tuple[Job, Baseline | None]:
    """The job with the path of its baseline, and the baseline itself, which rank 0 alone reads.

    That of a run that is `resumed` may be gone: training goes on without. A new one must be there.
    """
    settings = job.settings
    if settings.baseline is None:
        if settings.abort_behind is not None:
            raise UsageError("`abort_behind` says when a run is too far behind its `baseline`: name that run")
        return job, None
    if settings.abort_behind is not None:
        AbortRule.parse(settings.abort_behind)
    run: Run | None = None
    with ranks.together():  # before they ask for it: all fail, or none
        if ranks.is_first:
            try:
                run = RunStore(runs_root).find(settings.baseline)
            except RunError as error:
                if resumed is None or resumed.manifest.config.get("baseline") != settings.baseline:
                    raise RunError(f"`baseline`: {error}") from None
                run = find_baseline(resumed)
    path = ranks.first(settings.baseline if run is None else str(run.path.absolute()))
    return replace(job, settings=replace(settings, baseline=path)), None if run is None else Baseline(run)


def check_baseline(baseline: Baseline | None, job: Job, data: RunData) -> None:
    """Refuse a baseline whose losses say nothing about those of this run."""
    if baseline is None:
        return
    why = why_incomparable(job.model_fields(), baseline.run.manifest)
    if why is None and _has_other_tokens(baseline.run, data):
        why = f"the baseline {baseline.id} has other tokens: losses of other tokens say nothing about each other"
    if why is not None:
        raise UsageError(f"{why}; leave `baseline` out, and hold bits per byte against each other: linnet compare")


def _has_other_tokens(run: Run, data: RunData) -> bool:
    """Has a checkpoint of the run another vocabulary than the data? False where there is none to tell by."""
    own: Any = None if data.vocabulary is None else data.vocabulary.get(_TOKENS)
    known = _tokens_of(run)
    return own is not None and known is not None and known != list(own)


def _tokens_of(run: Run) -> list[str] | None:
    checkpoints = run.checkpoints()
    return stated_tokens(checkpoints[-1]) if checkpoints else None


def baseline_remark(baseline: Baseline | None, job: Job) -> str | None:
    """What is said of the baseline before the first step."""
    if job.settings.baseline is None:
        return None
    if baseline is None:
        name = Path(job.settings.baseline).name
        return f"the baseline {name} is gone: training goes on, and is not compared"
    history = baseline.history
    how_far = f"{history.end:,.0f} {history.unit}" if len(history) else "no steps yet"
    going_on = ", and goes on" if baseline.run.status == "live" else ""
    text = f"compared with the baseline {baseline.id} ({how_far}{going_on})"
    if not compares_training(job.config_fields(), baseline.run.manifest.config):
        text += ": by the held-out loss alone, for its training loss is another quantity"
    if "vocab" in baseline.run.manifest.model and _tokens_of(baseline.run) is None:
        text += "; it has no checkpoint yet that states its tokens, which are taken to be the same"
    rule = job.settings.abort_behind
    return text if rule is None else f"{text}; ended when it is behind by more than {rule} (`abort_behind`)"


def baseline_callback(
    baseline: Baseline, job: Job, data: RunData, progress: Progress, listeners: Callbacks
) -> BaselineCallback:
    """What compares the run while it trains."""
    text = job.settings.abort_behind
    rule = None if text is None else AbortRule.parse(text)
    return BaselineCallback(baseline, rule, listeners, unit=data.unit, seen=progress.seen, scored=data.scored)
