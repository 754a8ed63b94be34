"""One training step: forward, loss, backward, clipping, optimiser. Nothing in it waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from linnet.train.hardware import Hardware
from linnet.train.optimizer import Optimizers
from linnet.train.settings import TrainSettings


class Batch(Protocol):
    """What a model's loss takes, a row a sample, and how many targets the rows have together."""

    @property
    def inputs(self) -> tuple[Tensor | None, ...]: ...  # noqa: D102
    @property
    def n_targets(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class StepResult:
    """Loss and norm of the gradient of a step, and the accuracy where the loss tells one; still on the device."""

    loss: Tensor
    grad_norm: Tensor
    accuracy: Tensor | None = None


class Step:
    """The step of one model. A batch of more than `settings.batch` rows passes through it in parts.

    The model's `loss` takes the batch's inputs and a divisor, and gives a mean; or that and a mean accuracy.
    """

    def __init__(self, model: nn.Module, settings: TrainSettings, hardware: Hardware) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._settings = settings
        self.optimizers = Optimizers(model.named_parameters(), settings)
        loss: Any = model.loss
        self._loss: Callable[..., Any] = torch.compile(loss, fullgraph=True) if hardware.compile else loss
        self._divisors: dict[int, Tensor] = {}

    def __call__(self, batch: Batch, lr: float) -> StepResult:
        """Train on one batch."""
        first, micro = batch.inputs[0], self._settings.batch
        assert first is not None
        divisor = self._divisor(batch.n_targets, first.device)
        loss = torch.zeros((), device=first.device)
        accuracy: Tensor | None = None
        for start in range(0, len(first), micro):
            part = slice(start, start + micro)
            found = self._loss(*(None if each is None else each[part] for each in batch.inputs), divisor=divisor)
            share, right = found if isinstance(found, tuple) else (found, None)
            share.backward()
            loss += share.detach()
            if right is not None:
                accuracy = right.detach() if accuracy is None else accuracy + right.detach()
        norm = self._clip()
        if self._settings.on_nan == "skip" and not torch.isfinite(norm).item():
            self.optimizers.forget_gradients()
        else:
            self.optimizers.step(lr)
        return StepResult(loss, norm, accuracy)

    def _divisor(self, n_targets: int, device: torch.device) -> Tensor:
        """The number of targets of the whole batch, on its device: nearly always the same, so it is kept."""
        if n_targets not in self._divisors:
            self._divisors[n_targets] = torch.tensor(float(n_targets), device=device)
        return self._divisors[n_targets]

    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if self._settings.clip > 0:
            nn.utils.clip_grads_with_norm_(self._parameters, self._settings.clip, norm)
        return norm
