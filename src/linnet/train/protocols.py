"""What the loop trains and on what: the protocols that recipes and their data fulfil.

Text, images and one's own data differ in their `RunData` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from linnet.gguf import MetadataBlock
from linnet.models import Config, LanguageModel, ViT, ViTConfig
from linnet.runs import Session
from linnet.train.checkpoint import WeightsFormat
from linnet.train.gradients import SumOrder
from linnet.train.settings import TrainSettings
from linnet.train.shards import MomentLayout
from linnet.train.state import State
from linnet.train.step import Batch, StepObserver, StepResult

# ruff: noqa: D102 (the properties of the protocols are described in their docstrings)


class TrainedModel(Protocol):
    """A model, and what a checkpoint of it holds: all that a plan needs to know of a recipe."""

    @property
    def config(self) -> Config | ViTConfig: ...
    @property
    def model(self) -> LanguageModel | ViT: ...
    @property
    def weights_format(self) -> WeightsFormat: ...

    def parameters(self) -> dict[str, Tensor]:
        """What a checkpoint holds, by the names of `linnet.architectures`."""


class PlannedData(Protocol):
    """How much data a step and an evaluation take: all that a plan needs to know of the data."""

    @property
    def unit(self) -> str: ...
    @property
    def per_step(self) -> int: ...
    @property
    def per_epoch(self) -> int | None: ...
    @property
    def tokenizer(self) -> object | None: ...
    @property
    def held_out_metrics(self) -> tuple[str, ...]: ...

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step."""

    def scored(self, step: int) -> int:
        """How many tokens or images an evaluation after a step scores."""


class Recipe(Protocol):
    """A model that is allocated, initialised and ready to step, with its optimizer.

    - `config`: the model's shape, as `gguf.write` takes it; `model`: the model that is evaluated and kept.
    - `origin`: fields of `gguf.Provenance` that only this recipe knows; `weights_format`: how checkpoints hold weights.
    """

    name: str

    @property
    def config(self) -> Config | ViTConfig: ...
    @property
    def model(self) -> LanguageModel | ViT: ...
    @property
    def origin(self) -> Mapping[str, Any]: ...
    @property
    def weights_format(self) -> WeightsFormat: ...

    def train_on(self, batch: Batch, lr: float, index: int, observer: StepObserver | None = None) -> StepResult:
        """One training step, counted from 0, on its batch at the learning rate `lr`.

        `observer`: who looks at it; one is given only in a run that is inspected.
        """

    def sum_order(self, rows: int) -> SumOrder:
        """In which order the gradients of a batch of so many rows are added up."""

    def parameters(self) -> dict[str, Tensor]:
        """What a checkpoint holds, by the names of `linnet.architectures`."""

    def kept_parameters(self) -> dict[str, Tensor]:
        """The same as rank 0 writes it, whole; asked for by all ranks together."""

    def moments(self) -> dict[str, Tensor]:
        """The optimizer state; of what is shared out among ranks, this rank's share."""

    def moment_layouts(self) -> dict[str, MomentLayout]:
        """Where the moments lie that are shared out; asked for by all ranks together."""

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint back, to the bit."""


class EvalResult(Protocol):
    """The metrics of an evaluation on held-out data: its loss, and every one of them by name."""

    @property
    def loss(self) -> float: ...
    @property
    def figures(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class KeptEvaluation:
    """The metrics of an evaluation that a checkpoint kept, for the run that goes on from it."""

    figures: dict[str, float]

    @property
    def loss(self) -> float:
        return self.figures["loss"]


class DataEndedError(Exception):
    """An iterable has no rows left for another batch."""


class RunData(Protocol):
    """Batches by number, an evaluation, samples, and what is counted.

    - `description`: in words; `fingerprint`: a hash that changes with the data; `remarks`: what to tell its owner.
    - `unit`: what is counted, `tokens` or `images`; `per_step`: how many of them a step has, on all ranks together;
      `per_epoch`: how many there are to train on, None where nobody knows; `rows_per_step`: sequences or images.
    - `settings`: those of the run; the loop changes them when it knows how many steps there will be.
    - `tokenizer`: the keys that a checkpoint carries besides the model's; `vocabulary`: the same, to be read.
    - `memory_settings`: the settings that decide how much memory a step takes, with their values.
    - `step_metrics`, `held_out_metrics`: names of the metrics of each step and of each evaluation.
    - `loss_may_rise`: may one batch's loss be far above the first one's without anything being wrong?
    """

    settings: TrainSettings

    @property
    def description(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def remarks(self) -> tuple[str, ...]: ...
    @property
    def unit(self) -> str: ...
    @property
    def per_step(self) -> int: ...
    @property
    def rows_per_step(self) -> int: ...
    @property
    def per_epoch(self) -> int | None: ...
    @property
    def tokenizer(self) -> MetadataBlock | None: ...
    @property
    def vocabulary(self) -> Mapping[str, object] | None: ...
    @property
    def memory_settings(self) -> str: ...
    @property
    def step_metrics(self) -> tuple[str, ...]: ...
    @property
    def held_out_metrics(self) -> tuple[str, ...]: ...
    @property
    def loss_may_rise(self) -> bool: ...

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step."""

    def batch(self, index: int) -> Batch:
        """The batch of a step, counted from 0, or this rank's share; the same one whenever it is asked for."""

    def scored(self, step: int) -> int:
        """How many tokens or images an evaluation after a step scores."""

    def evaluate(self, model: nn.Module, step: int) -> EvalResult | None:
        """Score the held-out data after a step; None where there is none."""

    def report(self, run: Session, step: int, result: EvalResult) -> None:
        """Write an evaluation into the run."""

    def samples(self, model: nn.Module) -> Iterable[tuple[str, str]]:
        """Each prompt with what the model makes of it."""

    def probe(self) -> Tensor | None:
        """Held-out data that are always the same: a sequence of tokens [1, T], or images; None where there are none."""
