"""`Recipe`: what the loop trains, a model with its optimizer and its step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from linnet.models import Config, LanguageModel, ViT, ViTConfig
from linnet.train.state import State
from linnet.train.step import Batch, StepResult


class Recipe(Protocol):
    """A model that is allocated, initialised and ready to step."""

    name: str

    @property
    def config(self) -> Config | ViTConfig:
        """The model's shape, as `gguf.write` takes it."""

    @property
    def model(self) -> LanguageModel | ViT:
        """The model that is evaluated and kept."""

    def train_on(self, batch: Batch, lr: float, index: int) -> StepResult:
        """One training step, counted from 0, on its batch at the learning rate `lr`."""

    def parameters(self) -> dict[str, Tensor]:
        """What a checkpoint holds, by the names of `gguf.names`."""

    def moments(self) -> dict[str, Tensor]:
        """The optimizer state."""

    @property
    def origin(self) -> Mapping[str, Any]:
        """Fields of `gguf.Provenance` that only this recipe knows."""

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint back, to the bit."""
