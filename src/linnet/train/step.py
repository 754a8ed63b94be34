"""One training step: forward, loss, backward, clipping, optimiser. Nothing in it waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from linnet.errors import UsageError
from linnet.kernels import Compiled, Executor, Graph, Recording, backward, eager
from linnet.kernels.ops import attention_backend
from linnet.train.allocator import keep_freed_memory
from linnet.train.hardware import Hardware
from linnet.train.optimizer import Optimizers
from linnet.train.settings import TrainSettings
from linnet.train.split_batch import SplitBatch


class Batch(Protocol):
    """What a model's loss takes, a row a sample, and how many targets the rows have together."""

    @property
    def inputs(self) -> tuple[Tensor | None, ...]: ...  # noqa: D102
    @property
    def n_targets(self) -> int: ...  # noqa: D102


# A loss of one's own: model and batch in; a mean over the batch out, or means by name with `loss` among them.
LossFunction = Callable[[Any, Any], Tensor | Mapping[str, Tensor]]


@dataclass(frozen=True)
class StepResult:
    """The metrics of a step by name, still on the device: `loss`, what else the loss told, `grad_norm`."""

    metrics: dict[str, Tensor]

    @property
    def loss(self) -> Tensor:
        """The mean loss of the batch."""
        return self.metrics["loss"]

    @property
    def grad_norm(self) -> Tensor:
        """The norm of the gradient, before clipping."""
        return self.metrics["grad_norm"]


class Step:
    """The step of one model. A batch passes through it in parts of `settings.batch` rows, or of half as many.

    Which of the two is up to `hardware.halves`. The model's `loss` takes the batch's inputs and a divisor, and gives a
    mean; or that and a mean accuracy; or a dict of means by name, `loss` among them.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: TrainSettings,
        hardware: Hardware,
        loss: OwnLoss | None = None,
    ) -> None:
        self._settings = settings
        self._attention = hardware.attention
        self._loss: Callable[..., Any] = model.loss if loss is None else loss  # type: ignore[assignment]
        self._executor: Executor = Compiled(hardware.dtype) if hardware.compile else eager
        self.optimizers = Optimizers(model.named_parameters(), settings)
        self._work: Callable[..., tuple[Tensor, ...]] = self._whole
        if hardware.graph:
            self._work = Graph(self._whole) if hardware.device.type == "cuda" else Recording(self._whole)
        self._threads = hardware.threads
        self._rows = settings.batch // 2 if hardware.halves else settings.batch
        self._split_batch: SplitBatch | None = None
        if hardware.abreast:
            self._split_batch = SplitBatch(
                [each for each in model.parameters() if each.requires_grad], hardware.threads
            )
        if hardware.device.type == "cpu":
            keep_freed_memory()
        self._divisors: dict[int, Tensor] = {}
        self._names: tuple[str, ...] = ()  # of what the loss returns, known after the first pass

    def __call__(self, batch: Batch, lr: float) -> StepResult:
        """Train on one batch."""
        self.optimizers.set_rate(lr)
        first, *more = batch.inputs
        assert first is not None
        with _threads(self._threads):
            values = self._work(self._divisor(batch.n_targets, first.device), first, *more)
        return StepResult(dict(zip((*self._names, "grad_norm"), values, strict=True)))

    def _whole(self, divisor: Tensor, first: Tensor, *more: Tensor | None) -> tuple[Tensor, ...]:
        """All of it; what a graph captures. What the loss returned, then the norm of the gradient."""
        self._executor.before_step()
        parts = [
            partial(self._forward, slice(start, start + self._rows), divisor, first, *more)
            for start in range(0, len(first), self._rows)
        ]
        with attention_backend(self._attention):
            metrics = self._in_turn(parts) if self._split_batch is None else self._split_batch(parts)
        totals = [torch.zeros((), device=first.device) for _ in metrics[0]]
        for shares in metrics:
            for total, share in zip(totals, shares, strict=True):
                total += share
        return *totals, self.optimizers.step()

    def _forward(self, rows: slice, divisor: Tensor, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        part = (None if each is None else each[rows] for each in inputs)
        named = _by_name(self._loss(*part, divisor=divisor, executor=self._executor))
        self._names = tuple(named)
        return tuple(named.values())

    def _in_turn(self, parts: Sequence[Callable[[], tuple[Tensor, ...]]]) -> list[tuple[Tensor, ...]]:
        """The metrics of each part, its loss first; its gradients are added to those of the parameters."""
        metrics = []
        for part in parts:
            shares = part()
            backward(shares[0])
            self._executor.after_backward()
            metrics.append(tuple(share.detach() for share in shares))
        return metrics

    def _divisor(self, n_targets: int, device: torch.device) -> Tensor:
        """The number of targets of the whole batch, on its device: nearly always the same, so it is kept."""
        if n_targets not in self._divisors:
            self._divisors[n_targets] = torch.tensor(float(n_targets), device=device)
        return self._divisors[n_targets]


class OwnLoss:
    """A program's own loss in the place of the model's: it is given the model and a batch, or a part of one.

    - `batch_of` makes a batch of the inputs of some rows. A part's means count by its targets.
    """

    def __init__(self, model: nn.Module, function: LossFunction, batch_of: Callable[..., Batch]) -> None:
        self._model, self._function, self._batch_of = model, function, batch_of

    def __call__(self, *inputs: Tensor | None, divisor: Tensor, executor: Executor) -> dict[str, Tensor]:
        """The means of these rows, times their share of the whole batch."""
        batch = self._batch_of(*inputs)
        means = _by_name(self._function(self._model, batch))
        return {name: value * (batch.n_targets / divisor) for name, value in means.items()}


def _by_name(returned: Tensor | tuple[Tensor, Tensor] | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a loss returned, by name, with the loss first: it is what gradients are taken of."""
    if isinstance(returned, Mapping):
        if "loss" not in returned:
            raise UsageError(f"the loss returned {', '.join(map(str, returned))}: expected 'loss' among them")
        return {"loss": returned["loss"], **returned}
    return (
        {"loss": returned} if isinstance(returned, Tensor) else dict(zip(("loss", "accuracy"), returned, strict=True))
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many of the CPU's threads for a while; the change itself costs nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
