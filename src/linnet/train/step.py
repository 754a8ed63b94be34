"""One training step: forward, loss, backward, clipping, optimizer. Nothing in it waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from linnet.errors import UsageError
from linnet.kernels import Compiled, Executor, Graph, Recording, backward, eager, gradients
from linnet.kernels.ops import attention_backend
from linnet.train.hardware import Hardware
from linnet.train.optim import Optimizers
from linnet.train.process import keep_freed_memory
from linnet.train.settings import TrainSettings

# The forward pass of a part of a batch: its shares of the loss and of the other metrics, the loss first.
_Forward = Callable[[], tuple[Tensor, ...]]


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
        self, model: nn.Module, settings: TrainSettings, hardware: Hardware, loss: OwnLoss | None = None
    ) -> None:
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
        if hardware.halves_in_parallel:
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            self._split_batch = SplitBatch(trained, hardware.threads)
        if hardware.device.type == "cpu":
            keep_freed_memory()
        self._divisors: dict[int, Tensor] = {}
        self._names: tuple[str, ...] = ()  # of what the loss returns, known after the first pass

    def __call__(self, batch: Batch, lr: float) -> StepResult:
        """Train on one batch."""
        self.optimizers.set_lr(lr)
        first, *others = batch.inputs
        assert first is not None
        with _threads(self._threads):
            values = self._work(self._divisor(batch.n_targets, first.device), first, *others)
        return StepResult(dict(zip((*self._names, "grad_norm"), values, strict=True)))

    def _whole(self, divisor: Tensor, first: Tensor, *others: Tensor | None) -> tuple[Tensor, ...]:
        """The whole step, as a graph captures it: what the loss returned, then the norm of the gradient."""
        self._executor.before_step()
        parts = [
            partial(self._forward, slice(start, start + self._rows), divisor, first, *others)
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
        part = (None if tensor is None else tensor[rows] for tensor in inputs)
        named = _by_name(self._loss(*part, divisor=divisor, executor=self._executor))
        self._names = tuple(named)
        return tuple(named.values())

    def _in_turn(self, parts: Sequence[_Forward]) -> list[tuple[Tensor, ...]]:
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


class SplitBatch:
    """Two halves of a batch side by side, each on half of a CPU's threads: to the bit the same as one after the other.

    Threads that share an operation wait for the slowest of them at its end, two thousand times a step. Halves wait for
    each other once: 3 to 5 % less time for 2,048 tokens on two threads (docs/log.md). Gradients are added to those of
    the parameters always in the order of the parts.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], threads: int) -> None:
        self._parameters = parameters
        self._pool = ThreadPoolExecutor(
            2, thread_name_prefix="linnet-half", initializer=_use_threads, initargs=(threads // 2,)
        )

    def __call__(self, parts: Sequence[_Forward]) -> list[tuple[Tensor, ...]]:
        """The metrics of each part, its loss first."""
        metrics: list[tuple[Tensor, ...]] = []
        for start in range(0, len(parts), 2):
            pair = [self._pool.submit(self._forward_backward, part) for part in parts[start : start + 2]]
            wait(pair)  # where one fails, the other is no longer at work when that is raised
            for shares, by_parameter in [half.result() for half in pair]:
                metrics.append(shares)
                self._accumulate(by_parameter)
        return metrics

    def _forward_backward(self, part: _Forward) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
        shares = part()
        return tuple(share.detach() for share in shares), gradients(shares[0], self._parameters)

    @torch.no_grad()
    def _accumulate(self, by_parameter: list[Tensor | None]) -> None:
        """As `backward` does: a parameter's gradient has memory of its own, in the parameter's order."""
        taken: set[int] = set()
        for parameter, gradient in zip(self._parameters, by_parameter, strict=True):
            if gradient is None:
                continue
            memory = gradient.untyped_storage().data_ptr()
            if parameter.grad is not None:
                parameter.grad += gradient
            elif gradient.stride() == parameter.stride() and memory not in taken:
                parameter.grad = gradient
                taken.add(memory)
            else:
                parameter.grad = torch.empty_like(parameter).copy_(gradient)


def _use_threads(count: int) -> None:
    """Let this thread's operations have so many threads, from now on."""
    torch.get_num_threads()  # else its first large operation would take the number that was set last, by any thread
    torch.set_num_threads(count)


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
    if isinstance(returned, Tensor):
        return {"loss": returned}
    return dict(zip(("loss", "accuracy"), returned, strict=True))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many of the CPU's threads for a while; the change itself costs nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
