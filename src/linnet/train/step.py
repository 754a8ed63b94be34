"""One training step: forward, loss, backward, clipping, optimiser. Nothing in it waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from linnet.models.attention import attention_by
from linnet.models.compute import Compiled, Compute, plain
from linnet.train.graph import Graph
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
        self._settings = settings
        self._attention = hardware.attention
        self._loss: Callable[..., Tensor] = model.loss  # type: ignore[assignment]
        self._compute: Compute = Compiled() if hardware.compile else plain
        self.optimizers = Optimizers(model.named_parameters(), settings)
        self._work = Graph(self._whole) if hardware.graph else self._whole
        self._divisors: dict[int, Tensor] = {}

    def __call__(self, batch: TextBatch, lr: float) -> StepResult:
        """Train on one batch."""
        self.optimizers.set_rate(lr)
        loss, norm = self._work(batch.ids_BT, batch.targets_BT, batch.documents_BT, self._divisor(batch))
        return StepResult(loss, norm)

    def _whole(
        self, ids_BT: Tensor, targets_BT: Tensor, documents_BT: Tensor | None, divisor: Tensor
    ) -> tuple[Tensor, Tensor]:
        """All of it; what a graph captures."""
        total = torch.zeros((), device=ids_BT.device)
        micro = self._settings.batch
        for start in range(0, len(ids_BT), micro):
            part = slice(start, start + micro)
            documents = None if documents_BT is None else documents_BT[part]
            with attention_by(self._attention):
                loss = self._loss(ids_BT[part], targets_BT[part], documents, divisor=divisor, compute=self._compute)
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total, self.optimizers.step()

    def _divisor(self, batch: TextBatch) -> Tensor:
        """The number of targets of the whole batch, on its device: nearly always the same, so it is kept."""
        if batch.n_targets not in self._divisors:
            self._divisors[batch.n_targets] = torch.tensor(float(batch.n_targets), device=batch.ids_BT.device)
        return self._divisors[batch.n_targets]
