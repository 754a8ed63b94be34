"""`linnet runs`."""

from __future__ import annotations

import os
import time
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson, RunsFolder
from linnet.cli.terminal import paint, print_json, table
from linnet.files import is_folder
from linnet.runs import Glance, Run, RunError, RunStore
from linnet.runs.metric_names import goal_of


def runs(
    *,
    runs: RunsFolder = None,
    experiment: str | None = None,
    tag: str | None = None,
    status: str | None = None,
    recipe: str | None = None,
    sort: Annotated[str, Parameter(help="time (newest last), loss (best first) or name.", show_default=True)] = "time",
    json: AsJson = False,
) -> int:
    """List the runs of a folder, with status and last loss.

    Parameters
    ----------
    experiment
        Only the runs of this experiment.
    tag
        Only the runs with this tag.
    status
        Only live, completed, interrupted, aborted, errored, crashed or stalled runs.
    recipe
        Only the runs of this recipe.
    """
    store = RunStore(runs)
    if runs is not None and not is_folder(store.root):
        raise RunError(f"there is no folder {store.root}")
    found = _sorted(store.list(experiment=experiment, tag=tag, status=status, recipe=recipe), sort)
    if json:
        print_json([as_json(glance) for glance in found])
        return 0
    if not found:
        where = f"the folder {words.plain(store.root)}"
        print(
            f"There are no runs in {where}." if not any(store.folders()) else f"No run in {where} fits these filters."
        )
        return 0
    head = ("run", "status", "step", "metric", "last", "time", "age", "about")
    print("\n".join(table(head, [_row(glance) for glance in found], right=(2, 4, 5, 6), status=1)))
    for glance in found:
        if glance.warning is not None:
            print(paint(f"! {words.bounded(glance.run_id)}: {glance.warning}", "yellow"))
    return 0


def as_json(glance: Glance) -> dict[str, object]:
    """A run as every listing gives it."""
    manifest = glance.manifest
    return {
        "run_id": glance.run_id,
        "path": glance.path,
        "status": glance.status,
        "step": glance.step,
        "total_steps": manifest.total_steps,
        "metric": glance.metric,
        "last": glance.value,
        "seconds": glance.t,
        "created_at": manifest.created_at,
        "modified_at": glance.modified,
        "name": manifest.name,
        "experiment": manifest.experiment,
        "group": manifest.group,
        "parent": manifest.parent,
        "recipe": manifest.recipe,
        "tags": manifest.tags,
        "writer": manifest.dialect if glance.warning is None else None,
        "warning": glance.warning,
    }


def _row(glance: Glance) -> tuple[str, ...]:
    manifest = glance.manifest
    step = words.number(glance.step)
    folder = os.path.basename(glance.path)  # noqa: PTH119 - one for each of thousands of runs
    moved = f"in {folder}" if folder not in ("", glance.run_id) else None  # copied or renamed: the id alone misleads
    about = [manifest.name, manifest.recipe, manifest.experiment, *(f"#{tag}" for tag in manifest.tags), moved]
    return (
        glance.run_id,
        glance.status,
        f"{step}/{words.number(manifest.total_steps)}" if manifest.total_steps else step,
        glance.metric or "–",
        words.number(glance.value),
        words.duration(glance.t),
        words.duration(max(0.0, time.time() - glance.last_event)),
        " · ".join(word for word in about if word),
    )


def _sorted(found: list[Glance], sort: str) -> list[Glance]:
    from linnet.errors import UsageError

    if sort == "time":
        return found
    if sort == "name":
        return sorted(found, key=lambda glance: glance.run_id)
    if sort == "loss":
        return sorted(found, key=_best_first)
    raise UsageError(f"--sort {sort!r} does not exist; choose from time, loss, name")


def _best_first(glance: Glance) -> tuple[int, float]:
    """By the last value of the metric shown, whichever way is better for it: losses, then scores, then the rest."""
    if glance.value is None or glance.metric is None or glance.value != glance.value:
        return 3, 0.0
    goals = glance.manifest.goals
    if glance.manifest.dialect == "munin":  # which declares its goals in the stream
        goals = Run.load(glance.path).metrics().goals
    goal = goal_of(glance.metric, goals)
    return (0, glance.value) if goal == "min" else (1, -glance.value) if goal == "max" else (2, 0.0)
