"""`linnet train vit-tiny`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal  # noqa: F401 (cyclopts looks here for the types of inherited fields)

from cyclopts import Group, Parameter

from linnet.cli.options import AsJson, unless_off
from linnet.cli.train import RunFlags, run_job
from linnet.recipes.flags import ImageFlags, VitFlags
from linnet.recipes.options import VitOptions, VitSettings
from linnet.train.settings import OptimizerName  # noqa: F401

# ruff: noqa: B008 (the defaults are frozen)

_MODEL, _IMAGES, _VARIATION, _TRAINING, _RUN = (
    Group.create_ordered(name) for name in ("Model", "Images", "Beginning and variation", "Training", "Run")
)
_Hidden = Parameter(parse=False)  # a setting that images have no use for


@dataclass(frozen=True)
class Settings(VitSettings):
    """The settings of the loop that images have a use for.

    Parameters
    ----------
    batch
        Images of a step.
    eval_every
        Steps between evaluations on held-out images; ten times a run by default, 0: never.
    """

    batch: int = VitSettings.batch
    eval_every: int | None = None
    batch_tokens: Annotated[int | None, _Hidden] = None
    eval_tokens: Annotated[int | None, _Hidden] = None
    sample_every: Annotated[int | None, _Hidden] = None
    sample_tokens: Annotated[int, _Hidden] = VitSettings.sample_tokens


def vit_tiny(
    *,
    model: Annotated[VitFlags, Parameter(name="*", group=_MODEL)] = VitFlags(),
    images: Annotated[ImageFlags, Parameter(name="*", group=_IMAGES, show_default=unless_off)] = ImageFlags(),
    options: Annotated[VitOptions, Parameter(name="*", group=_VARIATION, show_default=unless_off)] = VitOptions(),
    settings: Annotated[Settings, Parameter(name="*", group=_TRAINING, show_default=unless_off)] = Settings(),
    run: Annotated[RunFlags, Parameter(name="*", group=_RUN)] = RunFlags(),
    json: AsJson = False,
) -> int:
    """Train a vision transformer to tell classes of images.

    With no flags at all it learns the 1,797 scanned digits that come with scikit-learn. Photographs want more
    variation: --flip 0.5 --crop 0.3 --rand-augment 2 --cutmix 0.5.
    """
    from linnet.recipes.requests import vit_job

    return run_job(vit_job(model, images, options, settings), run, json)
