"""The weights that a run began with, which drift is measured from.

Those that come from a seed are made again whenever they are wanted: they are a pure function of it. Those of a donor or
of another run's checkpoint are kept in `state/first.safetensors`, since a resumed run needs neither of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.errors import UsageError
from linnet.recipes.job import Job
from linnet.recipes.registry import recipe_type
from linnet.runs.folder import STATE

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.recipes.recipe import AnyRecipe

_FILE = "first.safetensors"


def copy_weights(recipe: AnyRecipe) -> dict[str, Tensor]:
    """Those that a recipe trains, as they are now."""
    named = recipe.trained.named_parameters()
    return {name: parameter.detach().clone() for name, parameter in named if parameter.requires_grad}


def keep_first_weights(run_dir: Path, run_id: str, job: Job, weights: Mapping[str, Tensor], *, forked: bool) -> None:
    """Keep the weights that a run begins with, unless they can be made again."""
    from linnet.train.state import State, save

    if forked or not recipe_type(job.recipe).begins_from_seed(job):
        save(run_dir / STATE / _FILE, State({"run_id": run_id}, {}, weights))


def first_weights(run_dir: Path, job: Job, *, forked: bool) -> Mapping[str, Tensor]:
    """The weights that a run began with, by the names of its parameters: kept, or made again from the seed."""
    from linnet.train.state import load

    file, kind = run_dir / STATE / _FILE, recipe_type(job.recipe)
    if file.is_file():
        return load(file).parameters
    if forked or not kind.begins_from_seed(job):
        raise UsageError(
            f"run {run_dir.name} did not begin from a seed, and its first weights were not kept: it was started without"
            " `inspect=drift`; leave drift out"
        )
    return {name: parameter.detach() for name, parameter in kind.first_model(job).named_parameters()}
