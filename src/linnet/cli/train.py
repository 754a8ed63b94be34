"""`linnet train`: one command a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from linnet.cli.options import AsJson, ConfigPath, RunsFolder, unless_off
from linnet.recipes.flags import ModelFlags, TextFlags
from linnet.runs.folder import check_template
from linnet.train.settings import TrainSettings

if TYPE_CHECKING:
    from linnet.recipes import Job

# ruff: noqa: B008 (the defaults are frozen)

_MODEL, _TEXT, _TRAINING, _RUN = (Group.create_ordered(name) for name in ("Model", "Text", "Training", "Run"))


@dataclass(frozen=True)
class RunFlags:
    """Where the run goes and what it is called.

    Parameters
    ----------
    run_id
        The folder's name, or a template for it such as {recipe}-{date}-{seq}; {arch}-{date}-{seq} by default.
    name
        A label.
    experiment
        What it is part of.
    tag
        May be given several times.
    """

    config: ConfigPath = None
    runs: RunsFolder = None
    run_id: str | None = None
    name: str | None = None
    experiment: str | None = None
    tag: tuple[str, ...] = ()


def from_scratch(
    *,
    model: Annotated[ModelFlags, Parameter(name="*", group=_MODEL, show_default=unless_off)] = ModelFlags(),
    text: Annotated[TextFlags, Parameter(name="*", group=_TEXT, show_default=unless_off)] = TextFlags(),
    settings: Annotated[TrainSettings, Parameter(name="*", group=_TRAINING, show_default=unless_off)] = TrainSettings(),
    run: Annotated[RunFlags, Parameter(name="*", group=_RUN)] = RunFlags(),
    json: AsJson = False,
) -> int:
    """Train a language model that knows nothing yet, on any text.

    With no flags at all it learns Python from the interpreter's own standard library. Every checkpoint is a GGUF that
    llama.cpp, Ollama and LM Studio open as it is. `--config FILE.toml` reads flags from a file; those given on the
    command line win.
    """
    from linnet.recipes.requests import scratch_job

    return run_job(scratch_job(model, text, settings), run, json)


def run_job(job: Job, run: RunFlags, json: bool) -> int:
    """Train a job to its end and say what it made."""
    from linnet.cli.training import run_training
    from linnet.recipes import start

    labels: dict[str, Any] = {name: getattr(run, name) for name in ("run_id", "name", "experiment")}
    if run.run_id is not None and "{" in run.run_id:
        check_template(run.run_id)
        labels |= {"run_id": None, "template": run.run_id}
    return run_training(partial(start, job, runs_root=run.runs, tags=list(run.tag), **labels), json)
