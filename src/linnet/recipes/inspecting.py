"""What `inspect` asks of a job: whether it can be told, and who looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from linnet.errors import UsageError
from linnet.recipes.job import Job
from linnet.recipes.recipe import AnyRecipe
from linnet.runs import Session
from linnet.train.hardware import Hardware
from linnet.train.inspection.inspector import Inspector
from linnet.train.protocols import RunData
from linnet.train.state import State

if TYPE_CHECKING:
    from torch import Tensor


def is_inspected(job: Job, group: str) -> bool:
    """Is a group of what can be looked at asked for?"""
    return job.settings.inspected is not None and group in job.settings.inspected.every


def require_inspectable(job: Job, data: RunData, hardware: Hardware) -> None:
    """Refuse a look at what is not there."""
    if job.settings.inspected is None:
        return
    if hardware.shards_weights:
        raise UsageError(
            "`inspect` looks at whole weights, and with `shard=weights` no rank has them: leave one of the two out"
        )
    if is_inspected(job, "gram") and data.probe() is None:
        raise UsageError(
            "`inspect`: gram compares activations on held-out data, and nothing is held out (`held_out`): leave gram"
            " out, or hold something out"
        )


def inspector_of(
    session: Session,
    job: Job,
    data: RunData,
    recipe: AnyRecipe,
    hardware: Hardware,
    first: Mapping[str, Tensor] | None,
    state: State | None = None,
) -> Inspector | None:
    """What looks inside; None where nobody asked for it, and of all ranks but the first.

    `first`: the weights that drift is measured from; `state`: that of the checkpoint that is gone on from.
    """
    if job.settings.inspected is None or not hardware.ranks.is_first:
        return None
    device = recipe.trained.device
    return Inspector(
        recipe.trained,
        job.settings,
        hardware,
        session,
        probe=data.probe() if is_inspected(job, "gram") else None,
        first=None if first is None else {name: weights.to(device) for name, weights in first.items()},
        kept=None if state is None else state.moments,
    )
