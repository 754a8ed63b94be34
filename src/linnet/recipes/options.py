"""What only one recipe is asked for: a dataclass each, flat, so that `run.json` holds it among the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from linnet.data.augmentation import Augmentation
from linnet.errors import UsageError
from linnet.train.settings import OptimizerName, TrainSettings


@dataclass(frozen=True)
class WarmOptions:
    """What a warm start takes from where. The fields from `donor_d_in` on are found out when it is realised."""

    donor: str  # a GGUF of the llama family
    init: str = "select"  # a mode of `inheritance.MODES`
    lens: str | None = None  # a lens file to use instead of one's own
    # Tokens that the donor does not have: new, or from its pieces of them; None: there may be none.
    tokens: Literal["exact", "pieces"] | None = "pieces"
    layers: Literal["even", "first"] = "even"  # which of them `select` takes
    rescale: bool = True
    train_table: bool = False
    donor_d_in: int | None = None
    donor_name: str | None = None
    donor_sha256: str | None = None
    explained_variance: float | None = None
    coverage: float | None = None
    taken: str | None = None  # what was taken from where, in a line


@dataclass(frozen=True)
class VitSettings(TrainSettings):
    """The settings of the loop, as they are right for small images."""

    steps: int = 600
    batch: int = 64
    lr: float = 3e-3
    optimizer: OptimizerName = "muon"
    weight_decay: float = 0.05


@dataclass(frozen=True)
class VitOptions(Augmentation):
    """How a vision transformer begins, what is averaged, and how its images are varied.

    Parameters
    ----------
    init
        How the weights begin: by the seed's table, with attention as in trained models, or as a part of a larger one.
    donor
        select: the GGUF of a larger vision transformer.
    ema
        How much of itself the running average of the weights keeps at a step; that is what is evaluated and kept.
    eval_images
        Held-out images scored each time; by default so many that it costs about 2 % of the run, at the end all.
    """

    shift: float = 0.1
    rotate: float = 10.0
    zoom: float = 0.1
    mixup: float = 0.3
    label_smoothing: float = 0.1
    init: Literal["seed", "mimetic", "select"] = "mimetic"
    donor: str | None = None
    ema: float = 0.99
    eval_images: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ema < 1:
            raise UsageError(f"`ema` must be from 0 to below 1, found {self.ema:g}")
        if self.eval_images is not None and self.eval_images < 1:
            raise UsageError(f"`eval_images` must be 1 or more, found {self.eval_images}")
        if (self.init == "select") != (self.donor is not None):
            raise UsageError("`init=select` takes its weights from a larger model, `donor=FILE.gguf`: give both")


Options: TypeAlias = WarmOptions | VitOptions | None
OPTIONS: dict[str, type[Any]] = {"warm-start": WarmOptions, "vit-tiny": VitOptions}
