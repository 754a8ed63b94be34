"""ViT-Tiny: a vision transformer that knows nothing, trained to tell classes of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from linnet import models
from linnet.architectures import AnyConfig, ViTConfig, preset, presets_for
from linnet.board.words import bounded
from linnet.data.augmentation import Augmentation
from linnet.errors import UsageError
from linnet.recipes.flags import (
    Flag,
    FlagGroups,
    ModelName,
    changed_fields,
    config_flags,
    fill,
    flags_of,
    with_model_files,
)
from linnet.recipes.image_rules import RULED, default_batch, fitting_patches
from linnet.recipes.job import BUDGETS, ImageData, Job, settings_flags, settings_of
from linnet.recipes.recipe import INIT_SCALE, ModelRecipe, put_back
from linnet.train.settings import OptimizerName, TrainSettings

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.data.image_batches import ImageBatch
    from linnet.models import ViT
    from linnet.train import Hardware, RunData
    from linnet.train.state import State
    from linnet.train.step import Batch, LossFunction, StepObserver, StepResult

_TRAINED = "trained/"  # in the state: the weights that are trained, where a checkpoint holds their average
_SHAPE = config_flags([ViTConfig])
_FOR_TEXT = ("tokens", "batch_tokens", "eval_tokens", "sample_every", "sample_tokens", "dropout")
_SMALL, _TINY = 64, 16  # pixels a side, up to which images have the patches of a small one, and its width too


def _ruled(flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
    """The flags, those that images decide without a default: whether they were given decides."""
    return tuple(replace(flag, default=None) if flag.name in (*RULED, "batch") else flag for flag in flags)


@dataclass(frozen=True)
class VitSettings(TrainSettings):
    """The settings of the loop, as they are right for small images.

    Args:
        steps: Optimiser steps; by default as many as show each image some 50 times on a GPU, half as often on a CPU.
        batch: Images that pass through the model at once; by default a hundredth of them on a GPU (64 to 512), else 64.
        batch_images: Images of one optimiser step, as many as `batch` by default; gradients are accumulated to reach
            it.
        eval_every: Steps between evaluations on held-out images; ten times a run by default, 0: never.
    """

    steps: int = 600
    batch: int = 64
    lr: float = 3e-3
    optimizer: OptimizerName = "muon"
    weight_decay: float = 0.05


@dataclass(frozen=True)
class VitOptions(Augmentation):
    """How a vision transformer begins, what is averaged, and how its images are varied.

    On the command line, what is not given of the variations is decided by the images (`image_rules.py`).

    Args:
        init: How the weights begin: by the seed's table, with attention as in trained models, or as a part of a
            larger one.
        donor: select: the MODEL of a larger vision transformer.
        ema: How much of itself the running average of the weights keeps at a step, by default 1 - 6 / steps; that is
            what is evaluated and kept.
        eval_images: Held-out images scored each time; by default so many that it costs about 2 % of the run, at the end
            all.
    """

    shift: float = 0.1
    rotate: float = 10.0
    zoom: float = 0.1
    mixup: float = 0.3
    label_smoothing: float = 0.1
    init: Literal["seed", "mimetic", "select"] = "mimetic"
    donor: ModelName | None = None
    ema: float = 0.99
    eval_images: int | None = None
    by_rule: tuple[str, ...] | None = None  # settings and variations that the images are to decide; None: none are left
    donor_name: str | None = None
    donor_sha256: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ema < 1:
            raise UsageError(f"`ema` must be from 0 to below 1, found {self.ema:g}")
        if self.eval_images is not None and self.eval_images < 1:
            raise UsageError(f"`eval_images` must be 1 or more, found {self.eval_images}")
        if (self.init == "select") != (self.donor is not None):
            raise UsageError("`init=select` takes its weights from a larger model, `donor=FILE.gguf`: give both")


class VitTiny(ModelRecipe["ViT"]):
    """The recipe in three phases: `realize` allocates and initialises, `build` readies the step, `step` trains.

    recipe = VitTiny(settings, hardware, VitOptions(ema=0.999))
    recipe.realize(config)
    recipe.build()
    result = recipe.step(images, labels, lr, is_first=True)

    Two models are kept where `options.ema` is above 0: the one that is trained, and the running average of its
    weights, which is the one that is evaluated and written to checkpoints.
    """

    name = "vit-tiny"
    flags: ClassVar[FlagGroups] = {
        "Model": (
            Flag(
                "preset",
                str | None,
                None,
                "vit-tiny (224 px), vit-tiny-32, vit-tiny-28 or vit-tiny-8;"
                " by default the one for the size of the images.",
            ),
            *_SHAPE,
            INIT_SCALE,
        ),
        "Images": flags_of(ImageData),
        "Beginning and variation": _ruled(flags_of(VitOptions)),
        "Training": _ruled(settings_flags(VitSettings, leave_out=_FOR_TEXT)),
    }
    data_types = (ImageData,)
    options_type = VitOptions

    def __init__(
        self,
        settings: TrainSettings,
        hardware: Hardware,
        options: VitOptions | None = None,
        *,
        init_scale: float = 1.0,
        loss: LossFunction | None = None,
    ) -> None:
        super().__init__(settings, hardware, init_scale=init_scale, loss=loss)
        self._options = options or VitOptions()
        self._average: ViT | None = None
        self._followed: tuple[list[Tensor], list[Tensor]] = ([], [])  # averages, and the weights they follow

    @classmethod
    def job(cls, values: Mapping[str, Any]) -> Job:
        """The preset for the size of the images, with the given fields changed."""
        from linnet.data.images import image_count

        values = with_model_files(cls.flags, values)
        has_budget = any(values.get(name) is not None for name in BUDGETS)
        open_names = [name for name in RULED if values[name] is None and not (name == "steps" and has_budget)]
        given = {name: value for name, value in values.items() if value is not None or name not in (*RULED, "batch")}
        if "batch" not in given:
            count = image_count(values["images"])
            given["batch"] = default_batch(count or 0, _uses_gpu(values["device"]))
        options = fill(VitOptions, given)
        return Job(
            _config(values["preset"], changed_fields(_SHAPE, values), values["images"]),
            fill(ImageData, values),
            settings_of(VitSettings, given),
            init_scale=values["init_scale"],
            recipe=cls.name,
            options=replace(options, by_rule=tuple(open_names) or None),
        )

    @classmethod
    def from_job(cls, job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[VitTiny, Job]:
        """The recipe of a job, built; a resumed one needs no donor, its checkpoint is put back."""
        options = job.options
        assert isinstance(options, VitOptions) and isinstance(job.model, ViTConfig)
        chosen = replace(options, init="seed", donor=None) if resumed else options
        recipe = cls(job.settings, hardware, chosen, init_scale=job.init_scale, loss=job.loss)
        recipe.realize(job.model)
        recipe.build()
        if chosen.donor is not None:
            job = replace(job, options=_known_donor(options, Path(chosen.donor)))
        return recipe, job

    @classmethod
    def begins_from_seed(cls, job: Job) -> bool:
        """Not as a part of a larger one."""
        assert isinstance(job.options, VitOptions)
        return job.options.donor is None

    @classmethod
    def first_model(cls, job: Job) -> ViT:
        """The model as it was before the first step."""
        assert isinstance(job.options, VitOptions) and isinstance(job.model, ViTConfig)
        mimetic = job.options.init == "mimetic"
        return models.build(job.model, job.settings.seed, job.init_scale, mimetic=mimetic)

    @property
    def model(self) -> ViT:
        """The model that is evaluated and kept: the average, where there is one."""
        return self.trained if self._average is None else self._average

    def realize(self, config: ViTConfig) -> None:
        """Allocate the model on the device and initialise it from the seed."""
        from linnet.recipes.donor import donor_errors

        options = self._options
        if self._hardware.shards_weights:
            raise UsageError("`shard=weights` is for models of text: a vision transformer fits one device")
        self._allocate(config, mimetic=options.init == "mimetic")
        if options.donor is not None:
            with donor_errors():
                models.select_weights(self.trained, models.load(options.donor, task="images"))
        if options.ema > 0:
            average = models.ViT(self.config, self._hardware.device)
            average.set_compute_dtype(self._hardware.dtype)
            average.requires_grad_(False)
            average.load_state_dict(self.trained.state_dict())
            pairs = zip(average.parameters(), self.trained.parameters(), strict=True)
            followed = [pair for pair in pairs if pair[1].requires_grad]
            self._followed = [pair[0] for pair in followed], [pair[1] for pair in followed]
            self._average = average

    def step(self, images: Tensor, labels: Tensor, lr: float, *, is_first: bool = False) -> StepResult:
        """Train on pixels [B, C, H, W] from 0 to 255 and classes [B], or shares of them [B, classes].

        `is_first`: forget the optimizer's moments, as the seed does at its first step. Labels out of range are an
        error; of those that lie on a GPU only the first step's are looked at.
        """
        return self._step_on(self.batch_of(images, labels), lr, is_first)

    def _step_on(
        self, batch: ImageBatch, lr: float, is_first: bool, observer: StepObserver | None = None
    ) -> StepResult:
        labels = batch.targets
        if is_first or labels.device.type == "cpu":  # on a GPU each look at them would make the host wait
            _check_labels(labels, self.config.num_classes)
        result = self._train(batch, lr, is_first, observer)
        self._follow()
        return result

    def train_on(self, batch: Batch, lr: float, index: int, observer: StepObserver | None = None) -> StepResult:
        """The loop's step."""
        return self._step_on(cast("ImageBatch", batch), lr, index == 0, observer)

    @staticmethod
    def batch_of(images_BCHW: Tensor, targets: Tensor) -> ImageBatch:
        """Some images as a batch."""
        from linnet.data.image_batches import ImageBatch

        return ImageBatch(images_BCHW, targets)

    def _follow(self) -> None:
        """Move the average towards the weights: quickly at first, when they are still far from where they will be."""
        if self._average is not None:
            import torch

            weight = 1 - min(self._options.ema, (1 + self.step_index) / (10 + self.step_index))
            with torch.no_grad():
                torch._foreach_lerp_(*self._followed, weight)

    def moments(self) -> dict[str, Tensor]:
        """The optimizer state, and the weights themselves where a checkpoint holds their average."""
        moments = super().moments()
        if self._average is not None:
            moments |= {_TRAINED + name: tensor for name, tensor in self.trained.params().items()}
        return moments

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint back into model, average and optimizer, to the bit."""
        trained = {name: tensor for name, tensor in state.moments.items() if name.startswith(_TRAINED)}
        moments = {name: tensor for name, tensor in state.moments.items() if name not in trained}
        super().restore(weights, replace(state, moments=moments))
        if trained:
            put_back(self.trained, {name.removeprefix(_TRAINED): tensor for name, tensor in trained.items()})
        elif self._average is not None:  # a fork of a run without an average, or of weights alone
            self.trained.load_state_dict(self._average.state_dict())


def _known_donor(options: VitOptions, donor: Path) -> VitOptions:
    """The options with the name and the hash of the donor's file, by which it is known again."""
    from linnet.files import sha256_of
    from linnet.gguf.card import read_card

    return replace(options, donor_name=bounded(read_card(donor).name or donor.name), donor_sha256=sha256_of(donor))


def _config(name: str | None, changes: dict[str, Any], source: str) -> AnyConfig:
    """A preset with some fields changed; by default the one for the size of the images."""
    from linnet.data.images import native_size, size_of_files

    presets = presets_for("images")
    if name is None:
        size = changes.get("image_size") or native_size(source) or size_of_files(source)
        name = next((name for name, config in presets.items() if config.image_size == size), None)
        if name is None:
            name = "vit-tiny" if size is None or size > _SMALL else "vit-tiny-32" if size > _TINY else "vit-tiny-8"
            if size is not None and size <= _SMALL and "patch_size" not in changes:
                fitted, patch = (size, None) if "image_size" in changes else fitting_patches(size)
                changes = {**changes, "image_size": fitted, **({} if patch is None else {"patch_size": patch})}
        changes = changes if size is None else {"image_size": size, **changes}
    config: AnyConfig = preset(name, presets, **changes)
    return config


def _uses_gpu(device: str) -> bool:
    """Will a device by this word be a GPU? A word that is none is refused where the device is chosen."""
    import torch

    is_there = torch.cuda.is_available() or torch.backends.mps.is_available()
    return device.startswith(("cuda", "mps")) or (device == "auto" and is_there)


def _check_labels(labels: Tensor, num_classes: int) -> None:
    """Refuse classes that the model does not have; torch's own error names neither, and on a GPU ends the process."""
    if labels.ndim == 2 and labels.shape[1] != num_classes:
        raise UsageError(f"labels give shares of {labels.shape[1]} classes; expected {num_classes}, those of the model")
    if labels.ndim == 1 and len(labels):
        least, greatest = (int(bound) for bound in labels.aminmax())
        wrong = least if least < 0 else greatest
        if not 0 <= wrong < num_classes:
            raise UsageError(
                f"label {wrong} is out of range: expected 0 to {num_classes - 1}, the classes of the model"
            )
