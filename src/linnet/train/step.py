"""One training step: forward, loss, backward, clipping, optimiser. Nothing in it waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from linnet.kernels import Compiled, Executor, Graph, Recording, backward, eager
from linnet.kernels.ops import attention_backend
from linnet.train.abreast import Abreast
from linnet.train.allocator import keep_freed_memory
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
    """The step of one model. A batch passes through it in parts of `settings.batch` rows, or of half as many.

    Which of the two is up to `hardware.halves`. The model's `loss` takes the batch's inputs and a divisor, and gives a
    mean; or that and a mean accuracy.
    """

    def __init__(self, model: nn.Module, settings: TrainSettings, hardware: Hardware) -> None:
        self._settings = settings
        self._attention = hardware.attention
        self._loss: Callable[..., Any] = model.loss  # type: ignore[assignment]
        self._executor: Executor = Compiled(hardware.dtype) if hardware.compile else eager
        self.optimizers = Optimizers(model.named_parameters(), settings)
        self._work: Callable[..., tuple[Tensor, ...]] = self._whole
        if hardware.graph:
            self._work = Graph(self._whole) if hardware.device.type == "cuda" else Recording(self._whole)
        self._threads = hardware.threads
        self._rows = settings.batch // 2 if hardware.halves else settings.batch
        self._abreast: Abreast | None = None
        if hardware.abreast:
            self._abreast = Abreast([each for each in model.parameters() if each.requires_grad], hardware.threads)
        if hardware.device.type == "cpu":
            keep_freed_memory()
        self._divisors: dict[int, Tensor] = {}

    def __call__(self, batch: Batch, lr: float) -> StepResult:
        """Train on one batch."""
        self.optimizers.set_rate(lr)
        first, *more = batch.inputs
        assert first is not None
        with _threads(self._threads):
            return StepResult(*self._work(self._divisor(batch.n_targets, first.device), first, *more))

    def _whole(self, divisor: Tensor, first: Tensor, *more: Tensor | None) -> tuple[Tensor, ...]:
        """All of it; what a graph captures. Loss, norm of the gradient, and the accuracy where there is one."""
        self._executor.before_step()
        parts = [
            partial(self._forward, slice(start, start + self._rows), divisor, first, *more)
            for start in range(0, len(first), self._rows)
        ]
        with attention_backend(self._attention):
            found = self._in_turn(parts) if self._abreast is None else self._abreast(parts)
        totals = [torch.zeros((), device=first.device) for _ in found[0]]
        for shares in found:
            for total, share in zip(totals, shares, strict=True):
                total += share
        loss, *accuracy = totals
        return loss, self.optimizers.step(), *accuracy

    def _forward(self, rows: slice, divisor: Tensor, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        part = (None if each is None else each[rows] for each in inputs)
        found = self._loss(*part, divisor=divisor, executor=self._executor)
        return found if isinstance(found, tuple) else (found,)

    def _in_turn(self, parts: Sequence[Callable[[], tuple[Tensor, ...]]]) -> list[tuple[Tensor, ...]]:
        """What each part finds; its gradients are added to those of the parameters."""
        found = []
        for part in parts:
            shares = part()
            backward(shares[0])
            self._executor.after_backward()
            found.append(tuple(share.detach() for share in shares))
        return found

    def _divisor(self, n_targets: int, device: torch.device) -> Tensor:
        """The number of targets of the whole batch, on its device: nearly always the same, so it is kept."""
        if n_targets not in self._divisors:
            self._divisors[n_targets] = torch.tensor(float(n_targets), device=device)
        return self._divisors[n_targets]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many of the CPU's threads for a while; the change itself costs nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
