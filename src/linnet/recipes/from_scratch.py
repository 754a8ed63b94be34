"""From scratch: a model that knows nothing, trained on text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet import gguf
from linnet.data import Batch as TextBatch
from linnet.errors import LinnetError
from linnet.models import Config, LanguageModel, Llama, ViTConfig, build
from linnet.recipes.job import Job
from linnet.train.hardware import Hardware
from linnet.train.protocols import RunData
from linnet.train.settings import TrainSettings
from linnet.train.state import State, check_parameters
from linnet.train.step import Batch, LossFunction, OwnLoss, Step, StepResult


class FromScratch:
    """The recipe in three phases: `realize` allocates and initialises, `build` readies the step, `step` trains.

    recipe = FromScratch(settings, hardware)
    recipe.realize(config)
    recipe.build()
    result = recipe.step(batch, lr)
    """

    name = "from-scratch"

    def __init__(
        self,
        settings: TrainSettings,
        hardware: Hardware,
        *,
        init_scale: float = 1.0,
        loss: LossFunction | None = None,
    ) -> None:
        self._settings, self._hardware, self._init_scale = settings, hardware, init_scale
        self._own_loss = loss
        self._model: LanguageModel | None = None
        self._step: Step | None = None
        self.step_index = 0  # steps done, those before a restored checkpoint among them

    @property
    def model(self) -> LanguageModel:
        """The model, once it is realised."""
        if self._model is None:
            raise LinnetError("the recipe has no model yet; call realize(config) first")
        return self._model

    @property
    def config(self) -> Config:
        """Its shape."""
        return self.model.config

    def realize(self, config: Config) -> None:
        """Allocate the model on the device and initialise it from the seed."""
        device = str(self._hardware.device)
        self._model = build(config, seed=self._settings.seed, init_scale=self._init_scale, device=device)
        self._model.set_compute_dtype(self._hardware.dtype)

    def build(self) -> None:
        """Make optimiser and step."""
        own = None if self._own_loss is None else OwnLoss(self.model, self._own_loss, text_batch)
        self._step = Step(self.model, self._settings, self._hardware, own)

    def step(self, batch: Batch, lr: float, *, is_first: bool = False) -> StepResult:
        """Train on one batch at the rate `lr`.

        `is_first`: forget the optimiser's moments, as the seed does at its first step.
        """
        if is_first:
            self._built.optimizers.load({})
            self.step_index = 0
        result = self._built(batch, lr)
        self.step_index += 1
        return result

    def train_on(self, batch: Batch, lr: float, index: int) -> StepResult:
        """The loop's step."""
        return self.step(batch, lr)

    def parameters(self) -> dict[str, Tensor]:
        """The weights by the names of `linnet.architectures`."""
        return self.model.params()

    def moments(self) -> dict[str, Tensor]:
        """The optimiser's tensors."""
        return self._built.optimizers.state()

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the model comes from, for its checkpoints."""
        return {}

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint back into the model and its optimiser, to the bit.

        The state has what the file does not hold as it was: all of it below f32, a lens and its table.
        """
        parameters = dict(self.model.named_parameters())
        kept = state.parameters
        if not parameters.keys() <= kept.keys():
            kept = {**dict(_read(weights)), **kept}
        if "rope_freqs.weight" in kept and isinstance(self.model, Llama):
            kept = dict(kept)
            self.model.use_divisors(kept.pop("rope_freqs.weight"))
        check_parameters(parameters, kept)
        for name, tensor in kept.items():
            parameters[name].data.copy_(tensor)
        self._built.optimizers.load(state.moments)
        self.step_index = int(state.facts.get("step", 0))

    @property
    def _built(self) -> Step:
        if self._step is None:
            raise LinnetError("the recipe has no step yet; call build() after realize(config)")
        return self._step


def from_job(job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[FromScratch, Job]:
    """The recipe of a job, built; a resumed one is the same until its checkpoint is put back."""
    assert not isinstance(job.model, ViTConfig)
    recipe = FromScratch(job.settings, hardware, init_scale=job.init_scale, loss=job.loss)
    recipe.realize(job.model)
    recipe.build()
    return recipe, job


def text_batch(ids_BT: Tensor, targets_BT: Tensor, documents_BT: Tensor | None) -> TextBatch:
    """Some rows as a batch, for a loss of one's own; their targets are counted on the device's own time."""
    return TextBatch(ids_BT, targets_BT, documents_BT, int((targets_BT >= 0).sum()))


def _read(weights: Path) -> list[tuple[str, Tensor]]:
    with gguf.GGUFFile.open(weights) as file:
        return [(name, torch.from_numpy(array)) for name, array in gguf.read_params(file)]
