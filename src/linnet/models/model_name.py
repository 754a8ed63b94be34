"""MODEL: what a checkpoint is called in every command and call: a GGUF's path, a RUN, `RUN@best`, `RUN@200`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, TypeAlias

from linnet.errors import UsageError
from linnet.files import expanded, is_file, link_target, step_files, step_of, step_path
from linnet.gguf.file import resolve_link
from linnet.gguf.peft import is_peft_folder
from linnet.runs import Run, RunError, RunStore

_LINKS = ("latest", "best")
Which: TypeAlias = Literal["latest", "best"]


def find_model(
    name: str | os.PathLike[str] | Run, runs: str | os.PathLike[str] | None = None, *, of_run: Which = "best"
) -> Path:
    """The GGUF file that a MODEL means; `runs` is the folder of runs.

    A file of that name comes first. Of a run without `@` the checkpoint with the lowest held-out loss is meant, and the
    latest one where no checkpoint was evaluated. `of_run`: or the latest in any case.
    """
    if isinstance(name, Run):
        return _checkpoint_of_run(name, of_run)
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"a model is named by a GGUF's path, a run or 'RUN@best': found {type(name).__name__}")
    name = os.fspath(name)
    path = expanded(name)
    if path.is_file():
        return resolve_link(path)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{name} is not a regular file: give a GGUF file or a RUN")
    if name.endswith(".gguf"):
        missing = f"{name} is a folder" if path.is_dir() else f"there is no file {name}"
        raise UsageError(f"{missing}: give a GGUF file or a RUN")
    if is_peft_folder(path):
        raise UsageError(f"{name} is an adapter of peft: make a GGUF of it first (linnet convert, with its `base`)")
    reference, which = _parts(name)
    run = _find_run(reference, runs)
    return _checkpoint(run, which) if which else _checkpoint_of_run(run, of_run)


def model_path(name: str | os.PathLike[str] | Run, runs: str | os.PathLike[str] | None = None) -> Path:
    """The same for who opens the file: a name that ends in .gguf is taken as it stands, to be judged there."""
    if not isinstance(name, Run) and os.fspath(name).endswith(".gguf"):
        return expanded(os.fspath(name))
    return find_model(name, runs)


def choice_sentence(name: str, path: Path) -> str | None:
    """Which checkpoint a RUN alone has meant, where it is not the last: `step 400, the best of 1,000`.

    None where there is nothing to say: it is the last one too, or the name says which.
    """
    step, steps = step_of(path), [number for number, _ in step_files(path.parent)]
    if step is None or names_checkpoint(name) or expanded(name).is_file() or steps[-1:] == [step]:
        return None
    return f"step {step:,}, the best of {steps[-1]:,} ({name}@latest: the last)"


def names_checkpoint(name: str) -> bool:
    """Does a name ask for one checkpoint of a run: `RUN@best`, `RUN@latest`, `RUN@200`?"""
    return bool(_parts(name)[1])


def _parts(name: str) -> tuple[str, str]:
    """A run's name and, behind the last `@`, which of its checkpoints is meant; an `@` may also belong to the name."""
    reference, _, which = name.rpartition("@")
    if reference and (which in _LINKS or (which.isascii() and which.isdigit())):
        return reference, which
    return name, ""


def _find_run(reference: str, runs: str | os.PathLike[str] | None) -> Run:
    try:
        return RunStore(runs).find(reference)
    except RunError as error:
        if os.sep in reference and not expanded(reference).exists():
            raise RunError(f"there is no file or run {reference}: give a GGUF file or a RUN") from None
        if str(error).startswith("no run "):
            raise RunError(f"there is no file {reference!r}, and {error}") from None
        raise


def _checkpoint_of_run(run: Run, which: Which) -> Path:
    """What a run is taken for where no checkpoint of it is named; a best one that was deleted is not asked for."""
    best = run.path / "weights" / "best"
    if which == "best" and (target := link_target(best)) and is_file(best.with_name(target)):
        return best.with_name(target)
    return _checkpoint(run, "latest")


def _checkpoint(run: Run, which: str) -> Path:
    """A run's checkpoint by step, or by the link `latest` or `best`."""
    weights, checkpoints = run.path / "weights", run.checkpoints()
    path = weights / which if which in _LINKS else step_path(weights, int(which))
    if which not in _LINKS and path.is_file():
        return path
    if which in _LINKS and (path.is_symlink() or path.exists()):
        return resolve_link(path)
    if which == "latest" and checkpoints:
        return checkpoints[-1]
    if not checkpoints:
        raise UsageError(f"run {run.id} has no checkpoint yet: {weights} holds no step_N.gguf")
    steps = ", ".join(str(step_of(checkpoint)) for checkpoint in checkpoints[-8:])
    links = "latest, best" if os.path.lexists(weights / "best") else "latest"
    raise UsageError(f"run {run.id} has no checkpoint {which!r}; there is {links}, and of steps {steps}")
