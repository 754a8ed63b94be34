"""A MODEL on the command line: a GGUF path, a RUN (its latest checkpoint), `RUN@best` or `RUN@200`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.errors import UsageError
from linnet.files import step_of, step_path
from linnet.gguf.file import resolve_link
from linnet.runs import Run, RunStore

ModelName = Annotated[
    str, Parameter(help="A GGUF file, or a RUN (its latest checkpoint), `RUN@best`, or `RUN@200` for step 200.")
]


def find_model(name: str, runs: Path | None = None) -> Path:
    """The GGUF file that a MODEL means."""
    path = Path(name)
    if path.is_file():
        return resolve_link(path)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{name} is not a regular file: give a GGUF file or a RUN")
    if name.endswith(".gguf"):
        missing = f"{name} is a folder" if path.is_dir() else f"there is no file {name}"
        raise UsageError(f"{missing}: give a GGUF file or a RUN")
    reference, at, which = name.rpartition("@")
    if not at or not (which.isdigit() or which in ("latest", "best")):
        reference, which = name, "latest"
    run = RunStore(runs).find(reference)
    return _checkpoint(run, which)


def _checkpoint(run: Run, which: str) -> Path:
    weights = run.path / "weights"
    there = run.checkpoints()
    if which.isdigit():
        found = step_path(weights, int(which))
        if found.is_file():
            return found
    else:
        link = weights / which
        if link.is_symlink() or link.exists():
            return resolve_link(link)
        if which == "latest" and there:
            return there[-1]
    if not there:
        raise UsageError(f"run {run.id} has no checkpoint yet: {weights} holds no step_N.gguf")
    steps = ", ".join(str(step_of(file)) for file in there[-8:])
    raise UsageError(f"run {run.id} has no checkpoint {which!r}; there is latest, and of steps {steps}")
