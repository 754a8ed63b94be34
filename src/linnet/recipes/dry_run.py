"""`dry_run`: what a job would take, after a few trial steps; nothing is written but a prepared corpus."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from linnet.recipes.fork import ForkPoint
from linnet.recipes.job import Job, PrepareProgress
from linnet.recipes.rank_guard import require_same_training
from linnet.recipes.recipe import AnyRecipe
from linnet.recipes.training import JobData, plan_of, prepare
from linnet.train.hardware import Hardware
from linnet.train.plan import Plan
from linnet.train.ranks import join
from linnet.train.time_budget import TimeBudget

_STEPS = {"cpu": 4, "cuda": 12}  # at least: the first ones compile, fill caches and capture
_SECONDS = 3.0  # that more of them may take
_LONG = 20.0  # seconds of a step after which there is no second one


def dry_run(
    job: Job,
    preparing: PrepareProgress | None = None,
    fork: ForkPoint | None = None,
    on_data: Callable[[JobData], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Plan:
    """Read the data, build the model, try some steps on it, and throw it away: the plan, with its time.

    `on_data` has the data as they were read, with what was left out of them. `on_plan` has the plan before the steps,
    which may take minutes, still without the time.
    """
    ranks = join(job.settings.device)
    with ranks.together(), job.donor if job.donor is not None else nullcontext():
        recipe, data, hardware, job = prepare(job, preparing, fork, ranks)
        done = 0 if fork is None else fork.restore(recipe, data)[0].step
    require_same_training(recipe, data, job, ranks)
    if on_data is not None:
        on_data(data)
    plan = plan_of(recipe, data, job, hardware, done)
    if on_plan is not None:
        on_plan(plan)
    seconds = _trial(recipe, data, hardware, done, job.settings.steps)
    usual = statistics.median(seconds[len(seconds) // 2 :])
    beginning = sum(max(0.0, each - usual) for each in seconds)  # compiling, and the like
    if job.settings.minutes is not None:
        total = 60 * job.settings.minutes
        steps = TimeBudget(job.settings.minutes).steps(0, min(beginning, total), usual)
        return replace(plan, steps=steps, seconds=total, step_seconds=usual)
    return replace(plan, seconds=plan.rest(0, usual) + beginning, step_seconds=usual)


def _trial(recipe: AnyRecipe, data: JobData, hardware: Hardware, done: int, last: int) -> list[float]:
    """Seconds of the first steps after those that are done, each waited for."""
    settings, seconds = data.job.settings, list[float]()
    least = min(last - done, _STEPS.get(hardware.device.type, 4))
    while len(seconds) < least or (len(seconds) < last - done and sum(seconds) < _SECONDS):
        began, step = time.perf_counter(), done + len(seconds)
        batch = data.batch(step - (settings.data_offset or 0))
        result = recipe.train_on(batch, settings.learning_rate(step), step)
        float(result.loss)
        seconds.append(hardware.ranks.first(time.perf_counter() - began))
        if seconds[-1] > _LONG:
            break
    return seconds
