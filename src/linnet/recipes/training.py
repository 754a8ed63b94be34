"""A job on its way: started, or gone on with. Data, device, run folder, recipe, loop."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from linnet import gguf
from linnet.errors import LinnetError, UsageError, is_out_of_memory
from linnet.files import step_path
from linnet.recipes import from_scratch, vit_tiny, warm_start
from linnet.recipes.job import Job
from linnet.recipes.material import Material, PrepareProgress, read, tokens_at_once, weights_of_layers
from linnet.recipes.options import WarmOptions
from linnet.runs import Run, Session, start
from linnet.runs.folder import WEIGHTS
from linnet.runs.ids import require_writable
from linnet.train.checkpointer import BestCheckpoint, checkpoint_event, sha256_of
from linnet.train.flow import write_flow
from linnet.train.gate import Gate
from linnet.train.hardware import Hardware, choose
from linnet.train.loop import Loop, Outcome, Progress
from linnet.train.state import State, StateError, load, state_path, steps_with_state
from linnet.train.stop_signals import StopSignals
from linnet.train.task import KeptEvaluation, Task
from linnet.train.watch import Watch

Realize = Callable[[Job, Hardware, Any, bool], tuple[Any, Job]]

# What can be trained. A function makes the recipe of a job, built; `True`: it goes on from a checkpoint, which the
# caller puts back.
RECIPES: dict[str, Realize] = {
    "from-scratch": from_scratch.realize,
    "warm-start": warm_start.realize,
    "vit-tiny": vit_tiny.realize,
}


class Training:
    """A job on its way: made by `launch` or `go_on`, run once."""

    def __init__(self, run: Session, loop: Loop) -> None:
        self.run_dir = run.run_dir
        self.run_id = run.run_id
        self.unit = loop.unit  # what is counted: tokens or images
        self._session = run
        self._loop = loop

    def finish(self) -> Outcome:
        """Train to the end and close the run with the true reason."""
        with StopSignals() as stop, self._session as session:
            outcome = self._loop.run(stop)
            progress = outcome.progress
            session.run_end(
                progress.step or None,
                progress.loss,
                outcome.reason,
                error=outcome.error,
                quality_gate=outcome.gate,
                exit_code=outcome.exit_code,
            )
        return outcome


def launch(
    job: Job,
    *,
    runs_root: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
    preparing: PrepareProgress | None = None,
    **labels: Any,
) -> Training:
    """Prepare everything and claim a run folder; nothing is made when the job cannot be done.

    `labels`: run_id or a template for it, name, experiment, tags, group, parent.
    """
    if job.settings.gate:
        Gate.parse(job.settings.gate)
    root = require_writable(runs_root)
    hardware = choose(job.settings, tokens=tokens_at_once(job), weights=weights_of_layers(job.model))
    material = read(job, preparing)
    recipe, job = _realized(material, hardware, resumed=False)
    task = _task(material, recipe, hardware)
    session = start(
        root,
        arch=job.model.arch,
        recipe=recipe.name,
        model=job.model_fields(),
        config=job.config_fields(),
        exact=job.config_fields().keys(),  # resume reads them back
        total_steps=job.settings.steps,
        device=hardware.backend,
        **_as_realized(job, task, hardware),
        **labels,
    )
    if not session.active:
        session.finish("errored", "the run folder cannot be written")
        raise LinnetError(f"the run folder {session.run_dir} cannot be written; choose another place with --runs")
    write_flow(session.run_dir, recipe.model, job.settings.batch)
    for remark in material.remarks:
        session.note(remark)
    return _training(session, job, material, task, recipe, hardware, Progress(), watch)


def go_on(
    run: Run,
    *,
    steps: int | None = None,
    force: bool = False,
    watch: Watch | None = None,
    preparing: PrepareProgress | None = None,
) -> Training:
    """Continue a run from its newest checkpoint, to the bit on the CPU.

    One that was killed between its last checkpoint and its end is closed as completed.
    """
    at = _newest_step(run)
    state = load(state_path(run.path, at), verify=not force)
    weights = step_path(run.path / WEIGHTS, at)
    if not force:
        _check_pair(run, at, state, weights)
    job = Job.from_fields(run.manifest.model, run.manifest.config, run.manifest.recipe)
    if steps is not None:
        job = replace(job, settings=replace(job.settings, steps=steps))
    last = job.settings.steps
    if at > last or (at == last and run.status == "completed"):
        raise UsageError(f"run {run.id} has done {at} steps; go further with --steps N")
    require_writable(run.path)
    hardware = choose(job.settings, tokens=tokens_at_once(job), weights=weights_of_layers(job.model))
    material = read(job, preparing, tokenizer=weights)
    _check_same(run, material, state, force)
    recipe, job = _realized(material, hardware, resumed=True)
    recipe.restore(weights, state)
    task = _task(material, recipe, hardware)
    details = _as_realized(job, task, hardware)
    session = start(run.path.parent, resume=run.path.name, from_step=at, strict=True, **details)
    if steps is not None:
        session.manifest.total_steps = steps
        session.manifest.config = {**session.manifest.config, "steps": steps}
        session.manifest.write(session.run_dir)
    return _training(session, job, material, task, recipe, hardware, _progress(state, at), watch)


def _newest_step(run: Run) -> int:
    """The step to go on from; a run that cannot be gone on with is refused by its reason."""
    if run.status == "live":
        raise LinnetError(f"run {run.id} is still being written; wait for it, or stop it first")
    steps = steps_with_state(run.path)
    if not steps:
        raise StateError(f"run {run.id} has no checkpoint with a state to resume from")
    if run.manifest.dialect != "linnet":
        manifest = run.path / "run.json"
        raise StateError(f"{manifest} is missing or damaged, and resume needs the settings in it: put it back")
    return steps[-1]


def _progress(state: State, at: int) -> Progress:
    """Where the loop stood at a checkpoint. States of earlier versions have fewer facts."""
    facts = state.facts
    best, validation = facts.get("best"), facts.get("validation")
    if best is None and facts.get("best_validation") is not None:
        best = {"step": 0, "loss": facts["best_validation"]}
    return Progress(
        step=at,
        seen=int(facts.get("seen", 0)),
        seconds=float(facts.get("seconds", 0.0)),
        loss=facts.get("loss", math.nan),
        accuracy=facts.get("accuracy"),
        validation=KeptEvaluation(validation) if validation else None,
        first_loss=facts.get("first_loss"),
        best=BestCheckpoint(**best) if best else None,
    )


def _check_pair(run: Run, at: int, state: State, weights: Path) -> None:
    """Refuse a state and weights that were not written together, or that have changed since."""
    with gguf.GGUFFile.open(weights) as file:
        origin = {
            weights: {"step": file.metadata.get("general.step"), "run_id": file.metadata.get("general.run_id")},
            state_path(run.path, at): state.facts,
        }
    expected = {"step": at, "run_id": run.id}
    for path, facts in origin.items():
        for name, value in expected.items():
            if name in facts and facts[name] != value:
                raise StateError(
                    f"{path} is not of this checkpoint: its {name} is {facts[name]}, expected {value}; "
                    "put the right file back, or go on all the same with --force"
                )
    event = checkpoint_event(run.path, at) or {}
    if "sha256" in event and event["sha256"] != sha256_of(weights):
        raise StateError(f"{weights} is damaged: its content is not what was written; go on all the same with --force")


def _realized(material: Material, hardware: Hardware, *, resumed: bool) -> tuple[Any, Job]:
    """The job's recipe, ready to step, and the job with what was found out on the way."""
    job = material.job
    if job.recipe not in RECIPES:
        raise UsageError(f"there is no recipe {job.recipe!r}; choose from {', '.join(RECIPES)}")
    try:
        return RECIPES[job.recipe](job, hardware, material.prepared, resumed)
    except RuntimeError as problem:
        if not is_out_of_memory(problem):
            raise
        raise LinnetError(
            f"the model does not fit into the memory of {hardware.device}: choose a smaller one"
        ) from None


def _task(material: Material, recipe: Any, hardware: Hardware) -> Task:
    """The recipe at work on its data; a gate on a metric that it will not have is refused."""
    task, settings = material.task(recipe, hardware), material.job.settings
    if settings.gate:
        held_out = task.held_out_metrics if settings.eval_every != 0 else ()
        Gate.parse(settings.gate).require([*task.step_metrics, *(f"validation/{name}" for name in held_out)])
    return task


def _as_realized(job: Job, task: Task, hardware: Hardware) -> dict[str, Any]:
    """What the run really does, for `run_start`: settings that were derived, and what `auto` became."""
    tokens = task.per_step if task.unit == "tokens" else None
    chosen = {**hardware.fields(), **job.settings.derived(tokens)}
    return {"schedule": job.settings.schedule_fields(), "chosen": chosen}


def _training(
    session: Session,
    job: Job,
    material: Material,
    task: Task,
    recipe: Any,
    hardware: Hardware,
    progress: Progress,
    watch: Watch | None,
) -> Training:
    progress.fingerprints = {"config": job.fingerprint(), "data": material.fingerprint}
    remarks = [hardware.why, *material.remarks]
    if isinstance(job.options, WarmOptions) and job.options.taken is not None and progress.step == 0:
        remarks.append(f"from {job.options.donor_name}: {job.options.taken}")
    for remark in remarks if watch is not None else ():
        assert watch is not None
        watch.on_start(remark)
    return Training(session, Loop(recipe, task, job.settings, hardware, session, progress=progress, watch=watch))


def _check_same(run: Run, material: Material, state: State, force: bool) -> None:
    """Refuse to go on with other data or settings than the run began with."""
    before = state.facts.get("fingerprints", {})
    now = {"data": material.fingerprint, "config": material.job.fingerprint()}
    words = {"config": "config in run.json", "data": material.what}
    for name, mark in now.items():
        if before.get(name) != mark and not force:
            raise StateError(
                f"run {run.id}: the {words[name]} has changed since the checkpoint of step {state.facts.get('step')}; "
                "put it back, or go on all the same with --force"
            )
