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


class TextBatch(Protocol):
    """Sequences and what follows each of their tokens."""

    @property
    def ids_BT(self) -> Tensor: ...  # noqa: D102, N802
    @property
    def targets_BT(self) -> Tensor: ...  # noqa: D102, N802
    @property
    def documents_BT(self) -> Tensor | None: ...  # noqa: D102, N802
    @property
    def n_targets(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class StepResult:
    """Loss and norm of the gradient of a step, still on the device."""

    loss: Tensor
    grad_norm: Tensor


class Step:
    """The step of one model. A batch of more than `settings.batch` sequences passes through it in parts."""

    def __init__(self, model: nn.Module, settings: TrainSettings, hardware: Hardware) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._settings = settings
        self.optimizers = Optimizers(model.named_parameters(), settings)
        loss: Any = model.loss
        self._loss: Callable[..., Tensor] = torch.compile(loss, fullgraph=True) if hardware.compile else loss
        self._divisors: dict[int, Tensor] = {}

    def __call__(self, batch: TextBatch, lr: float) -> StepResult:
        """Train on one batch."""
        rows, micro = len(batch.ids_BT), self._settings.batch
        divisor = self._divisor(batch)
        loss = torch.zeros((), device=batch.ids_BT.device)
        for start in range(0, rows, micro):
            part = slice(start, start + micro)
            documents = None if batch.documents_BT is None else batch.documents_BT[part]
            share = self._loss(batch.ids_BT[part], batch.targets_BT[part], documents, divisor=divisor)
            share.backward()  # type: ignore[no-untyped-call]
            loss += share.detach()
        norm = self._clip()
        if self._settings.on_nan == "skip" and not torch.isfinite(norm).item():
            self.optimizers.forget_gradients()
        else:
            self.optimizers.step(lr)
        return StepResult(loss, norm)

    def _divisor(self, batch: TextBatch) -> Tensor:
        """The number of targets of the whole batch, on its device: nearly always the same, so it is kept."""
        if batch.n_targets not in self._divisors:
            self._divisors[batch.n_targets] = torch.tensor(float(batch.n_targets), device=batch.ids_BT.device)
        return self._divisors[batch.n_targets]

    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if self._settings.clip > 0:
            nn.utils.clip_grads_with_norm_(self._parameters, self._settings.clip, norm)
        return norm
