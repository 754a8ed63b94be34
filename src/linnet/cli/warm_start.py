"""`linnet train warm-start`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: F401 (cyclopts looks here for the types of inherited fields)
from typing import Annotated, Literal  # noqa: F401

from cyclopts import Group, Parameter

from linnet.cli.options import AsJson, unless_off
from linnet.cli.train import RunFlags, run_job
from linnet.recipes.flags import DonorFlags, ShapeFlags, TextFlags
from linnet.train.settings import TrainSettings

# ruff: noqa: B008 (the defaults are frozen)

_DONOR, _SHAPE, _TEXT, _TRAINING, _RUN = (
    Group.create_ordered(name) for name in ("Donor", "Model", "Text", "Training", "Run")
)


@dataclass(frozen=True)
class Donor(DonorFlags):
    """What the model begins with.

    Parameters
    ----------
    rescale
        Centre embedding rows and give every dimension one spread; --no-rescale leaves them as they are in the donor.
    """

    rescale: Annotated[bool, Parameter(negative="--no-rescale")] = True


def warm_start(
    *,
    donor: Annotated[Donor, Parameter(name="*", group=_DONOR, show_default=unless_off)],
    shape: Annotated[ShapeFlags, Parameter(name="*", group=_SHAPE)] = ShapeFlags(),
    text: Annotated[TextFlags, Parameter(name="*", group=_TEXT, show_default=unless_off)] = TextFlags(),
    settings: Annotated[TrainSettings, Parameter(name="*", group=_TRAINING, show_default=unless_off)] = TrainSettings(),
    run: Annotated[RunFlags, Parameter(name="*", group=_RUN)] = RunFlags(),
    json: AsJson = False,
) -> int:
    """Train a llama that begins with what a donor GGUF knows.

    The donor's tokenizer is taken too, unless `--tokenizer` names another: then rows are found by the text of the
    tokens. The donor is needed once; `linnet resume` goes on without it.
    """
    from linnet.recipes.requests import warm_job

    return run_job(warm_job(donor, shape, text, settings), run, json)
