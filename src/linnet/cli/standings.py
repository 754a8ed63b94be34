"""`linnet compare --baseline`: how finished and living runs stand beside another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from linnet.board import words
from linnet.board.plot import sparkline
from linnet.cli.options import RunFilters, choose_runs
from linnet.cli.printing import paint, print_json, print_table, width
from linnet.errors import UsageError
from linnet.gguf.token_spelling import stated_tokens
from linnet.runs import Run, RunStore
from linnet.runs.baseline import (
    Comparison,
    compares_training,
    comparisons,
    latest_of,
    logged_comparisons,
    why_incomparable,
)
from linnet.runs.loss_history import LossHistory
from linnet.runs.settings import ABSENT

_COURSE = 16  # characters of the curve of differences
_WIDE = 100  # columns from which on there is room for it


def print_standings(
    store: RunStore, baseline: str, references: Sequence[str], filters: RunFilters, *, json: bool
) -> None:
    """A row a run: what its baseline had after as many tokens, and the verdict of the last comparison."""
    base = store.find(baseline)
    runs = [run for run in _runs(store, base, references, filters) if run.path.resolve() != base.path.resolve()]
    if not runs:
        raise UsageError(
            f"compare --baseline {base.id} needs runs to hold against it, and none of {store.root} names it as its"
            f" baseline; `{words.listing(store.root)}` lists them"
        )
    history = LossHistory.of(base)
    tokens = _tokens_of(base)
    compared = [(run, *_compared(run, base, history, tokens)) for run in runs]
    if json:
        print_json([_as_json(run, base, all_made, why) for run, all_made, why in compared])
        return
    print(f"beside {paint(words.bounded(base.id), 'bold')} ({history.end:,.0f} {history.unit})")
    roomy = width() >= _WIDE
    head = (
        "run",
        "step",
        "compared",
        "loss",
        "baseline",
        "differs",
        "verdict",
        *(("ppl ×", "course") if roomy else ()),
    )
    rows = [_row(run, all_made, why)[: len(head)] for run, all_made, why in compared]
    print_table(head, rows, right=(1, 3, 4, 5, 7))


def _runs(store: RunStore, base: Run, references: Sequence[str], filters: RunFilters) -> list[Run]:
    """Those that are named or fit; else all that name the baseline as theirs."""
    if references or filters:
        return choose_runs(store, references, filters)
    return [Run.load(summary.path) for summary in store.list() if summary.manifest.compare_to == base.id]


def _tokens_of(run: Run) -> list[str] | None:
    """Its tokens; None where no checkpoint states them."""
    checkpoints = run.checkpoints()
    return stated_tokens(checkpoints[-1]) if checkpoints else None


def _compared(
    run: Run, base: Run, history: LossHistory, tokens: list[str] | None
) -> tuple[list[Comparison], str | None]:
    """Its comparisons with a baseline of these tokens; or why there are none."""
    if (why := why_incomparable(run.manifest.model, base.manifest)) is not None:
        return [], why
    if tokens is not None and (own_tokens := _tokens_of(run)) is not None and own_tokens != tokens:
        return [], f"the baseline {base.id} has other tokens: losses of other tokens say nothing about each other"
    ended = set[tuple[int, str]]()
    if run.status == "aborted" and run.manifest.compare_to == base.id:  # the comparison that ended it is known
        ended = {(comparison.step, comparison.metric) for comparison in logged_comparisons(run) if comparison.aborts}
    own, training = LossHistory.of(run), compares_training(run.config, base.config)
    results = comparisons(own, history, training=training, steps={step for step, _ in ended})
    results = [replace(comparison, aborts=(comparison.step, comparison.metric) in ended) for comparison in results]
    return results, None if len(own) else "no losses yet"


def _row(run: Run, results: list[Comparison], why: str | None) -> tuple[str, ...]:
    latest = latest_of(results)
    if latest is None:
        return run.id, ABSENT, why or "never after as many tokens", ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ""
    course = [comparison.share for comparison in results if comparison.metric == latest.metric]
    return (
        run.id,
        words.number(latest.step),
        "training" if latest.metric == "loss" else "held-out",
        words.number(latest.loss),
        words.number(latest.baseline_loss),
        f"{100 * latest.share:+.1f} %",
        latest.verdict,
        f"{latest.ppl_ratio:.3g}",
        sparkline(course, _COURSE) if len(course) > 1 else "",
    )


def _as_json(run: Run, base: Run, results: list[Comparison], why: str | None) -> dict[str, Any]:
    latest = latest_of(results)
    return {
        "run_id": run.id,
        "path": str(run.path),
        "status": run.status,
        "baseline_run_id": base.id,
        "verdict": None if latest is None else latest.verdict,
        "why": why,
        "latest": None if latest is None else _fields(latest),
        "comparisons": [_fields(comparison) for comparison in results],
    }


def _fields(comparison: Comparison) -> dict[str, Any]:
    return {"step": comparison.step, "work": comparison.work, "share": comparison.share, **comparison.fields()}
