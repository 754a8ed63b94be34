"""`linnet runs` and `note`: the runs of a folder."""

from __future__ import annotations

import os
import shlex
import time
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, RunName, RunsFolder, open_store
from linnet.cli.printing import paint, print_json, print_table
from linnet.errors import UsageError
from linnet.runs import Run, RunStore, RunSummary, add_note
from linnet.runs.metric_names import goal_of


def runs(
    *,
    runs: RunsFolder = None,
    experiment: str | None = None,
    tag: str | None = None,
    status: str | None = None,
    recipe: str | None = None,
    archived: bool = False,
    sort: Annotated[str, Parameter(help="time (newest last), loss (best first) or name.", show_default=True)] = "time",
    json: AsJson = False,
) -> int:
    """List the runs of a folder, with status and last loss.

    Args:
        experiment: Only the runs of this experiment.
        tag: Only the runs with this tag.
        status: Only live, completed, interrupted, aborted, errored, crashed or stalled runs.
        recipe: Only the runs of this recipe.
        archived: Also runs that were archived.
    """
    store = open_store(runs)
    summaries = _sorted(
        store.list(experiment=experiment, tag=tag, status=status, recipe=recipe, archived=archived), sort
    )
    if json:
        print_json([as_json(summary) for summary in summaries])
        return 0
    if not summaries:
        folder = f"the folder {words.plain(store.root)}"
        print(f"No run in {folder} fits these filters." if any(store.folders()) else f"There are no runs in {folder}.")
        return 0
    head = ("run", "status", "step", "metric", "last", "time", "age", "about")
    print_table(head, [_row(summary) for summary in summaries], right=(2, 4, 5, 6), status=1)
    for summary in summaries:
        if summary.warning is not None:
            print(paint(f"! {words.bounded(summary.run_id)}: {summary.warning}", "yellow"))
    return 0


def as_json(summary: RunSummary) -> dict[str, object]:
    """A run as every listing gives it."""
    manifest = summary.manifest
    return {
        "run_id": summary.run_id,
        "path": summary.path,
        "status": summary.status,
        "step": summary.step,
        "total_steps": manifest.total_steps,
        "metric": summary.metric,
        "last": summary.value,
        "seconds": summary.t,
        "created_at": manifest.created_at,
        "modified_at": summary.modified,
        **{name: getattr(manifest, name) for name in ("name", "experiment", "group", "parent", "recipe", "tags")},
        "writer": manifest.dialect if summary.warning is None else None,
        "warning": summary.warning,
    }


def _row(summary: RunSummary) -> tuple[str, ...]:
    manifest = summary.manifest
    step = words.number(summary.step)
    folder = os.path.basename(summary.path)  # noqa: PTH119 - one for each of thousands of runs
    moved = f"in {folder}" if folder not in ("", summary.run_id) else None  # copied or renamed: the id alone misleads
    about = [manifest.name, manifest.recipe, manifest.experiment, *(f"#{tag}" for tag in manifest.tags), moved]
    return (
        summary.run_id,
        summary.status,
        f"{step}/{words.number(manifest.total_steps)}" if manifest.total_steps else step,
        summary.metric or "–",
        words.number(summary.value),
        words.duration(summary.t),
        words.duration(max(0.0, time.time() - summary.last_event)),
        " · ".join(word for word in about if word),
    )


def _sorted(summaries: list[RunSummary], sort: str) -> list[RunSummary]:
    if sort == "time":
        return summaries
    if sort == "name":
        return sorted(summaries, key=lambda summary: summary.run_id)
    if sort == "loss":
        return sorted(summaries, key=_best_first)
    raise UsageError(f"--sort {sort!r} does not exist; choose from time, loss, name")


def _best_first(summary: RunSummary) -> tuple[int, float]:
    """By the last value of the metric shown, whichever way is better for it: losses, then scores, then the rest."""
    if summary.value is None or summary.metric is None or summary.value != summary.value:
        return 3, 0.0
    goals = summary.manifest.goals
    if summary.manifest.dialect == "munin":  # which declares its goals in the stream
        goals = Run.load(summary.path).metrics().goals
    goal = goal_of(summary.metric, goals)
    return (0, summary.value) if goal == "min" else (1, -summary.value) if goal == "max" else (2, 0.0)


def note(run: RunName, /, *text: str, step: int | None = None, runs: RunsFolder = None) -> int:
    """Add a remark to a run, while it trains or long after.

    Args:
        text: What to say, in quotes.
        step: The step it is about.
    """
    if not text:
        example = f'linnet note {run} "what to say" {words.runs_flag(runs)}'.rstrip()
        raise UsageError(f"the text of the note is missing: {example}")
    if len(text) > 1:
        example = f"linnet note {run} {shlex.quote(' '.join(text))} {words.runs_flag(runs)}".rstrip()
        raise UsageError(f"put the note in quotes: {example}")
    if not text[0].strip():
        raise UsageError("the note is empty")
    noted = RunStore(runs).find(run)
    add_note(noted, text[0], step)
    print(f"noted on {words.bounded(noted.id)}")
    return 0
