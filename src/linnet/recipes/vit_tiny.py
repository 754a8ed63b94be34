"""ViT-Tiny: a vision transformer that knows nothing, trained to tell classes of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet import gguf
from linnet.data.image_batches import ImageBatch
from linnet.errors import LinnetError, UsageError
from linnet.models import ViT, ViTConfig, build, load, select_weights
from linnet.recipes.donor import donor_errors
from linnet.recipes.job import Job
from linnet.recipes.options import VitOptions
from linnet.train.hardware import Hardware
from linnet.train.protocols import RunData
from linnet.train.settings import TrainSettings
from linnet.train.state import State, check_parameters
from linnet.train.step import Batch, LossFunction, OwnLoss, Step, StepResult

_TRAINED = "trained/"  # in the state: the weights that are trained, where a checkpoint holds their average


class VitTiny:
    """The recipe in three phases: `realize` allocates and initialises, `build` readies the step, `step` trains.

    recipe = VitTiny(settings, hardware, VitOptions(ema=0.999))
    recipe.realize(config)
    recipe.build()
    result = recipe.step(images, labels, lr, is_first=True)

    Two models are kept where `options.ema` is above 0: the one that is trained, and the running average of its
    weights, which is the one that is evaluated and written to checkpoints.
    """

    name = "vit-tiny"

    def __init__(
        self,
        settings: TrainSettings,
        hardware: Hardware,
        options: VitOptions | None = None,
        *,
        init_scale: float = 1.0,
        loss: LossFunction | None = None,
    ) -> None:
        self._own_loss = loss
        self._settings, self._hardware, self._init_scale = settings, hardware, init_scale
        self._options = options or VitOptions()
        self._trained: ViT | None = None
        self._average: ViT | None = None
        self._averages: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._step: Step | None = None
        self._steps = 0  # how many the average has seen

    @property
    def model(self) -> ViT:
        """The model that is evaluated and kept, once it is realised."""
        return self._realized if self._average is None else self._average

    @property
    def config(self) -> ViTConfig:
        """Its shape."""
        return self._realized.config

    def realize(self, config: ViTConfig) -> None:
        """Allocate the model on the device and initialise it from the seed."""
        options, device = self._options, self._hardware.device
        mimetic = options.init == "mimetic"
        model = build(config, self._settings.seed, self._init_scale, device, mimetic=mimetic)
        if options.donor is not None:
            with donor_errors():
                select_weights(model, load(options.donor, task="images"))
        model.set_compute_dtype(self._hardware.dtype)
        self._trained = model
        if options.ema > 0:
            self._average = ViT(config, device)
            self._average.set_compute_dtype(self._hardware.dtype)
            self._average.requires_grad_(False)
            self._average.load_state_dict(model.state_dict())
            pairs = zip(self._average.parameters(), model.parameters(), strict=True)
            trained = [(average, weight) for average, weight in pairs if weight.requires_grad]
            self._averages, self._weights = [pair[0] for pair in trained], [pair[1] for pair in trained]

    def build(self) -> None:
        """Make optimiser and step."""
        own = None if self._own_loss is None else OwnLoss(self._realized, self._own_loss, ImageBatch)
        self._step = Step(self._realized, self._settings, self._hardware, own)

    def step(self, images: Tensor, labels: Tensor, lr: float, *, is_first: bool = False) -> StepResult:
        """Train on pixels [B, C, H, W] from 0 to 255 and classes [B], or shares of them [B, classes].

        `is_first`: forget the optimiser's moments, as the seed does at its first step. Labels out of range are an
        error; of those that lie on a GPU only the first step's are looked at.
        """
        if is_first or labels.device.type == "cpu":  # on a GPU each look at them would make the host wait
            _check_labels(labels, self.config.num_classes)
        if is_first:
            self._built.optimizers.load({})
            self._steps = 0
        result = self._built(ImageBatch(images, labels), lr)
        self._steps += 1
        self._follow()
        return result

    def train_on(self, batch: Batch, lr: float, index: int) -> StepResult:
        """The loop's step."""
        assert isinstance(batch, ImageBatch)
        return self.step(batch.images_BCHW, batch.targets, lr, is_first=index == 0)

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the average towards the weights: quickly at first, when they are still far from where they will be."""
        if self._average is not None:
            weight = 1 - min(self._options.ema, (1 + self._steps) / (10 + self._steps))
            torch._foreach_lerp_(self._averages, self._weights, weight)

    def parameters(self) -> dict[str, Tensor]:
        """The weights of a checkpoint by the names of `linnet.architectures`: the average, where there is one."""
        return self.model.params()

    def moments(self) -> dict[str, Tensor]:
        """The optimiser's tensors, and the weights themselves where a checkpoint holds their average."""
        moments = self._built.optimizers.state()
        if self._average is not None:
            moments |= {_TRAINED + name: tensor for name, tensor in self._realized.params().items()}
        return moments

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the model comes from, for its checkpoints."""
        return {}

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint back into model, average and optimiser, to the bit."""
        _put(self.model, state.parameters or _read(weights))
        if self._average is not None:
            own = {name.removeprefix(_TRAINED): t for name, t in state.moments.items() if name.startswith(_TRAINED)}
            _put(self._realized, own)
        moments = {name: tensor for name, tensor in state.moments.items() if not name.startswith(_TRAINED)}
        self._built.optimizers.load(moments)
        self._steps = int(state.facts["step"])

    @property
    def _realized(self) -> ViT:
        if self._trained is None:
            raise LinnetError("the recipe has no model yet; call realize(config) first")
        return self._trained

    @property
    def _built(self) -> Step:
        if self._step is None:
            raise LinnetError("the recipe has no step yet; call build() after realize(config)")
        return self._step


def from_job(job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[VitTiny, Job]:
    """The recipe of a job, built; a resumed one needs no donor, its checkpoint is put back."""
    options = job.options
    assert isinstance(options, VitOptions) and isinstance(job.model, ViTConfig)
    chosen = replace(options, init="seed", donor=None) if resumed else options
    recipe = VitTiny(job.settings, hardware, chosen, init_scale=job.init_scale, loss=job.loss)
    recipe.realize(job.model)
    recipe.build()
    return recipe, job


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


def _read(weights: Path) -> dict[str, Tensor]:
    with gguf.GGUFFile.open(weights) as file:
        return {name: torch.from_numpy(array) for name, array in gguf.read_params(file)}


def _put(model: ViT, tensors: dict[str, Tensor]) -> None:
    check_parameters(dict(model.named_parameters()), tensors)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(tensors[name])
