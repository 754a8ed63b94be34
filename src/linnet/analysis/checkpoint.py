"""`Checkpoint`: a MODEL that is looked into, with the run and the step that it is of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from linnet.architectures import AnyConfig
from linnet.errors import UsageError
from linnet.files import step_of
from linnet.gguf import GGUFFile, config_of
from linnet.infer.loaded_model import LoadedModel, read_model, task_of_file
from linnet.models import pick_device
from linnet.models.model_files import ModelFiles, find_files
from linnet.models.model_name import Which, find_model
from linnet.runs import Run, RunError

if TYPE_CHECKING:
    import torch

Model: TypeAlias = str | os.PathLike[str] | Run  # what a MODEL may be given as


@dataclass(frozen=True)
class Checkpoint:
    """A model's file; `run` and `step`: of the run it lies in, None of a file that is of none."""

    path: Path
    run: Run | None
    step: int | None

    @classmethod
    def find(cls, model: Model, runs: str | os.PathLike[str] | None = None, *, of_run: Which = "best") -> Checkpoint:
        """What a MODEL means: a GGUF's path, a RUN (its best checkpoint), `RUN@latest` or `RUN@200`."""
        path = find_model(model, runs, of_run=of_run)
        return cls(path, run_of(path), step_of(path))

    @property
    def name(self) -> str:
        """What people call it: `wide@200`, or the file's name."""
        return self.path.name if self.run is None or self.step is None else f"{self.run.id}@{self.step}"

    @cached_property
    def files(self) -> ModelFiles:
        """The model, and the adapter where the run has trained one."""
        return find_files(self.path, takes_adapters=False)

    @cached_property
    def task(self) -> str | None:
        """`text` or `images`; None where it is none of our models."""
        return task_of_file(self.files.model)

    @cached_property
    def config(self) -> AnyConfig:
        """The model's shape, by what the file states."""
        with GGUFFile.open(self.files.model) as file:
            return config_of(file)

    def load(self, device: torch.device) -> LoadedModel:
        """The model, ready to be used."""
        return read_model(self.files, device)


def text_model(
    model: Model | LoadedModel, use: str, device: str = "auto", runs: str | os.PathLike[str] | None = None
) -> tuple[LoadedModel, str]:
    """A language model and its name, loaded where it is not; one of images is refused. `use`: what it is wanted for.

    A file of an architecture that is none of ours is refused by its own words, when it is loaded.
    """
    known = model if isinstance(model, LoadedModel) else Checkpoint.find(model, runs)
    if known.task == "images":
        raise UsageError(f"{known.name} tells images apart: {use}")
    return known if isinstance(known, LoadedModel) else known.load(pick_device(device)), known.name


def run_of(path: Path) -> Run | None:
    """The run a checkpoint lies in."""
    try:
        return Run.load(path.resolve().parent.parent)
    except RunError:
        return None
