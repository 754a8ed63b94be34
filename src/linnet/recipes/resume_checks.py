"""What a checkpoint must be like for its run to go on from it; what is not is refused by its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from linnet import gguf
from linnet.errors import LinnetError, UsageError
from linnet.files import sha256_of
from linnet.recipes.job import Job, RowData, Rows
from linnet.runs import Run
from linnet.train.checkpoint import checkpoint_event
from linnet.train.state import State, StateError, state_path, steps_with_state
from linnet.train.step import LossFunction

if TYPE_CHECKING:
    from linnet.recipes.training import JobData


def with_data_and_loss(run: Run, job: Job, weights: Path, rows: Rows | None, loss: LossFunction | None) -> Job:
    """The job with the data and the loss of the program that started it; without them it cannot go on."""
    if isinstance(job.data, RowData) and rows is None:
        raise UsageError(
            f"run {run.id} was trained on the data of a program ({job.data.rows}): go on with it there,"
            " linnet.resume(run, data=…)"
        )
    if rows is not None and not isinstance(job.data, RowData):
        raise UsageError(f"run {run.id} was not trained on the data of a program: leave data= out")
    if rows is not None and rows.tokenizer is None:
        with gguf.GGUFFile.open(weights) as file:
            rows = replace(rows, tokenizer=weights) if "tokenizer.ggml.tokens" in file.metadata else rows
    if (job.loss_name is None) != (loss is None):
        known = "was trained with the model's own loss: leave loss= out"
        if job.loss_name is not None:
            known = f"was trained with a loss of its own ({job.loss_name}): give it, linnet.resume(run, loss=…)"
        raise UsageError(f"run {run.id} {known}")
    return replace(job, rows=rows, loss=loss)


def check_steps_left(run: Run, done: int, last: int) -> None:
    """Refuse to go on with a run that has done its last step."""
    if done > last or (done == last and run.status == "completed"):
        raise UsageError(f"run {run.id} has done {done} steps; go further with `steps=N`")


def newest_step(run: Run, *, free: bool = False) -> int:
    """The step to go on from; a run that cannot be gone on with is refused by its reason.

    `free`: nobody writes it, though its last words on another machine may be young.
    """
    if run.status == "live" and not free:
        raise LinnetError(f"run {run.id} is still being written; wait for it, or stop it first")
    steps = steps_with_state(run.path)
    if not steps:
        raise StateError(f"run {run.id} has no checkpoint with a state to resume from")
    if run.manifest.dialect != "linnet":
        manifest = run.path / "run.json"
        raise StateError(f"{manifest} is missing or damaged, and resume needs the settings in it: put it back")
    return steps[-1]


def check_pair(run: Run, at: int, state: State, weights: Path) -> None:
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
                    "put the right file back, or go on all the same with `force`"
                )
    event = checkpoint_event(run.path, at) or {}
    if "sha256" in event and event["sha256"] != sha256_of(weights):
        raise StateError(f"{weights} is damaged: its content is not what was written; go on all the same with `force`")


def check_same_data(run: Run, data: JobData, state: State, force: bool) -> None:
    """Refuse to go on with other data or settings than the run began with."""
    before = state.facts.get("fingerprints", {})
    now = {"data": data.fingerprint, "config": data.job.fingerprint()}
    words = {"config": "config in run.json", "data": data.description}
    for name, mark in now.items():
        if before.get(name) != mark and not force:
            raise StateError(
                f"run {run.id}: the {words[name]} has changed since the checkpoint of step {state.facts.get('step')}; "
                "put it back, or go on all the same with `force`"
            )
