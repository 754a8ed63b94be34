"""One training step: gradients, their sum over the ranks, clipping, optimizer. Nothing in it waits for the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from linnet.architectures.parameters import stacked_rows
from linnet.errors import UsageError
from linnet.kernels import Compiled, Executor, Graph, Recomputed, Recording, backward, eager, gradients
from linnet.kernels.distillation import DistilledLoss
from linnet.kernels.ops import attention_backend, ordered_sums
from linnet.kernels.replay import Work
from linnet.train.gradients import GradientBuffer, PlainGradients, SumOrder
from linnet.train.hardware import Hardware
from linnet.train.optim import Optimizers
from linnet.train.process import keep_freed_memory, threads, use_threads
from linnet.train.ranks import SIGNALS
from linnet.train.repeatable import refuse_unordered
from linnet.train.settings import FULL_MOMENTUM, TrainSettings
from linnet.train.sharded_weights import is_sharded

# The forward pass of a part of a batch: its shares of the loss and of the other metrics, the loss first.
_Forward = Callable[[], tuple[Tensor, ...]]


_OBJECTIVE = ""  # the name, among the metrics of a part, of what gradients are taken of but nobody is told
_MEASURED_CALL = 3  # of a step by which it is decided whether sums overlap; before it things are compiled
_WORTH_OVERLAP = 0.05  # times the rest of a step, that a sum takes


# What the gradients of a part are followed by: its metrics are handed over.
_AfterPart = Callable[[tuple[Tensor, ...]], None]

# A stretch of a part, by its name and the part's number.
_Timed = Callable[[str, int], AbstractContextManager[None]]


def _untimed(region: str, part: int) -> AbstractContextManager[None]:
    return nullcontext()


class Batch(Protocol):
    """What a model's loss takes, a row a sample, and how many targets the rows have together.

    Of several ranks each has its share of the rows, and the number of targets is that of the whole batch.
    """

    @property
    def inputs(self) -> tuple[Tensor | None, ...]: ...  # noqa: D102
    @property
    def n_targets(self) -> int: ...  # noqa: D102


# A loss of one's own: model and batch in; a mean over the batch out, or means by name with `loss` among them.
LossFunction = Callable[[Any, Any], Tensor | Mapping[str, Tensor]]


class GradientObserver(Protocol):
    """Looks at what a step computes and changes nothing in it; what it does is captured with the step."""

    def after_backward(self) -> None:
        """The gradients of the whole batch are there, as they are before clipping."""

    def after_update(self) -> Tensor:
        """The weights were moved: what was seen, as one row of float32."""


class StepTimer(Protocol):
    """Takes the time of a step's parts; such a step is not captured."""

    def region(self, name: str) -> AbstractContextManager[None]:
        """A stretch of the step; they nest. `forward` and `backward` are those of its first pass."""

    def executor(self, inner: Executor) -> Executor:
        """An executor that runs a model as this one does, and takes the time of what it is given."""


@dataclass(frozen=True)
class StepObserver:
    """Who looks at a step: at its gradients and update, at its time."""

    gradients: GradientObserver | None = None
    timer: StepTimer | None = None


@dataclass(frozen=True)
class StepResult:
    """The metrics of a step by name, still on the device: `loss`, what else the loss told, `grad_norm`."""

    metrics: dict[str, Tensor]
    signals: dict[str, Tensor] = field(default_factory=dict)  # of several ranks, added up (`ranks.SIGNALS`)
    observed: Tensor | None = None  # what the step's observer has seen

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
    mean; or that and a mean accuracy; or a dict of means by name, `loss` among them; or a student's objective with its
    parts. `loss` takes its place.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: TrainSettings,
        hardware: Hardware,
        loss: Callable[..., Any] | None = None,
    ) -> None:
        self._attention, self._ranks = hardware.attention, hardware.ranks
        self._ordered_sums, self._strict = hardware.ordered, hardware.strict
        self._loss: Callable[..., Any] = model.loss if loss is None else loss  # type: ignore[assignment]
        self._executor: Executor = Compiled(hardware.dtype, ordered=hardware.ordered) if hardware.compile else eager
        if settings.recompute != "off":
            blocks: Any = model.blocks
            self._executor = Recomputed(self._executor, blocks, cheap=settings.recompute == "cheap")
        rows = stacked_rows(model.config) if hasattr(model, "config") else {}  # type: ignore[arg-type]
        self.optimizers = Optimizers(model.named_parameters(), settings, hardware.ranks, rows)
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._sums: PlainGradients | GradientBuffer | None = None
        captured = self._captured = _captured_by(hardware)
        self._whole = captured(lambda *inputs: (*self._accumulate(*inputs), *self._update()))
        self._observed: tuple[GradientObserver, Work] | None = None  # the whole step as somebody looks at it
        self._timer: StepTimer | None = None  # of the step at hand
        # Of several ranks a step is two pieces, with a sum between that is never captured: replayed, it would not be
        # waited for.
        self._forward_backward, self._move = captured(self._accumulate), captured(self._update)
        self._move_by = captured(self._update)  # by a norm that is known
        self._overlap = settings.overlap
        self._overlapping = self._watched = False
        self._began = 0.0
        self._calls = 0
        self._threads = hardware.threads
        self._rows = settings.batch // 2 if hardware.halves else settings.batch
        self._sharded = any(is_sharded(parameter) for parameter in self._trained)
        self._on_cpu = hardware.device.type == "cpu"
        self._must_be_ordered = hardware.strict and hardware.device.type == "cuda" and hardware.ranks.count > 2
        self._ordered = (self._on_cpu or self._must_be_ordered) and not self._sharded
        self._split_batch: SplitBatch | None = None
        if hardware.halves_in_parallel:
            self._split_batch = SplitBatch(self._trained, hardware.threads)
        if hardware.device.type == "cpu":
            keep_freed_memory()
        self._divisors: dict[int, Tensor] = {}
        self._names: tuple[str, ...] = ()  # of what the loss returns, known after the first pass

    def __call__(
        self, batch: Batch, lr: float, momentum: float = FULL_MOMENTUM, observer: StepObserver | None = None
    ) -> StepResult:
        """Train on one batch; with an observer to the same bits."""
        self.optimizers.set_lr(lr, momentum)
        first, *others = batch.inputs
        assert first is not None
        divisor = self._divisor(batch.n_targets, first.device)
        with threads(self._threads), ordered_sums(self._ordered_sums), refuse_unordered(self._strict):
            if observer is not None:
                return self._observed_step(observer, divisor, first, *others)
            if self._ranks.alone:
                values = self._whole(divisor, first, *others)
                return StepResult(self._metrics(values))
            return self._result_of_ranks(self._step_together(None, divisor, first, *others))

    def _observed_step(self, observer: StepObserver, divisor: Tensor, *inputs: Tensor | None) -> StepResult:
        """A step that somebody looks at. One that is timed is not captured: its parts are Python's."""
        self._timer = observer.timer
        try:
            with self._timed("step"):
                if not self._ranks.alone:
                    result = self._result_of_ranks(self._step_together(observer.gradients, divisor, *inputs))
                    observed = None if observer.gradients is None else observer.gradients.after_update()
                    return replace(result, observed=observed)
                work = self._whole if observer.gradients is None else self._observed_by(observer.gradients)
                values = self._as_timed(work)(divisor, *inputs)
            if observer.gradients is None:
                return StepResult(self._metrics(values))
            return StepResult(self._metrics(values[:-1]), observed=values[-1])
        finally:
            self._timer = None

    def _result_of_ranks(self, values: tuple[Tensor, ...]) -> StepResult:
        norm, *signals = values
        assert isinstance(self._sums, GradientBuffer)
        metrics = self._metrics((*self._sums.metrics(), norm))
        return StepResult(metrics, dict(zip(SIGNALS, signals, strict=True)))

    def _as_timed(self, work: Work) -> Work:
        """The work, uncaptured where its parts are timed."""
        return work if self._timer is None else getattr(work, "uncaptured", work)

    def _timed(self, region: str, part: int = 0) -> AbstractContextManager[None]:
        """Of several parts the first one is timed."""
        return nullcontext() if self._timer is None or part else self._timer.region(region)

    def _metrics(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """The metrics of a step by name; a student's objective is none: it cannot be compared between runs."""
        named = zip((*self._names, "grad_norm"), values, strict=True)
        return {name: value for name, value in named if name != _OBJECTIVE}

    def _observed_by(self, observer: GradientObserver) -> Work:
        """The whole step with somebody who looks at it, captured by itself: the other steps stay as they are."""

        def work(*inputs: Any) -> tuple[Tensor, ...]:
            metrics = self._accumulate(*inputs)
            assert self._sums is not None
            self._sums.attach()
            with self._timed("inspect"):
                observer.after_backward()
            values = (*metrics, *self._update())
            with self._timed("inspect"):
                return *values, observer.after_update()

        if self._observed is None or self._observed[0] is not observer:
            self._observed = observer, self._captured(work)
        return self._observed[1]

    def _step_together(
        self, observer: GradientObserver | None, divisor: Tensor, first: Tensor | None, *inputs: Tensor | None
    ) -> tuple[Tensor, ...]:
        """A step of several ranks: the norm of the gradient, and what the ranks said."""
        assert first is not None
        self._calls += 1
        self._overlapping = self._overlapping or self._may_overlap("on")
        if self._overlapping:  # hooks tell of gradients: nothing of it can be captured
            self._accumulate(divisor, first, *inputs)
        else:
            self._as_timed(self._forward_backward)(divisor, first, *inputs)
        assert isinstance(self._sums, GradientBuffer)
        measuring = self._calls == _MEASURED_CALL and self._may_overlap("auto")
        began = _now(first.device) if measuring else 0.0
        with self._timed("sum"):
            norm = self._sums.sum()
        if measuring:
            share = self._ranks.first((_now(first.device) - began) / max(began - self._began, 1e-9))
            self._overlapping = share > _WORTH_OVERLAP
        if observer is not None:
            self._sums.attach()
            observer.after_backward()
        result = self._as_timed(self._move)() if norm is None else self._as_timed(self._move_by)(norm)
        self.optimizers.exchange()
        self._began = _now(first.device) if self._calls == _MEASURED_CALL - 1 else 0.0
        return result

    def overlap(self, rows: int) -> Literal["on", "off", "measured"]:
        """Do sums over the ranks begin during the backward pass, of a batch of so many rows on all ranks together?

        `measured`: the third step decides.
        """
        if self._ranks.alone or not self._can_overlap or not self.order(rows).is_one_sum(self._ranks.count):
            return "off"
        return "on" if self._overlap == "on" else "measured"

    @property
    def _can_overlap(self) -> bool:
        """Do the settings let sums begin during the backward pass, and the way in which gradients are made?

        Not where gradients are complete only after the last share, or come from halves side by side; and a tree over
        ranks is one sum. Ranks that share a CPU's cores have none to spare.
        """
        if self._overlap == "off" or self._split_batch is not None or self._sharded:
            return False
        return self._overlap == "on" or not (self._on_cpu and self._ranks.on_one_machine)

    def _may_overlap(self, wish: str) -> bool:
        """Can sums of the batch at hand begin during the backward pass, and do the settings say `wish`?"""
        sums = self._sums
        if self._overlap != wish or not self._can_overlap:
            return False
        return isinstance(sums, GradientBuffer) and sums.is_settled and sums.is_one_sum

    def order(self, rows: int) -> SumOrder:
        """In which order the gradients of a batch of so many rows, on all ranks together, are added up.

        On a GPU, where another number of ranks rounds otherwise anyway, it is not worth the copies: one part after the
        other. Only a run that must repeat itself takes it there, where more than two have to add up.
        """
        if not self._ordered:
            return SumOrder(1, -(-rows // self._ranks.count // self._rows), exact=False)
        order = SumOrder.of(rows, self._rows, self._ranks.count)
        if self._must_be_ordered and not order.exact:
            raise UsageError(
                f"`deterministic`: {self._ranks.count} GPUs have no fixed order to add up {rows} rows in parts of"
                f" {self._rows}: take 2, 4 or 8 of them, and as many parts or a multiple"
            )
        return order

    def _accumulate(self, divisor: Tensor, first: Tensor, *others: Tensor | None) -> tuple[Tensor, ...]:
        """Forward and backward, as a graph captures them: the gradients of all parts, added up. Returns the metrics."""
        self._executor.before_step()
        order = self.order(len(first) * self._ranks.count)
        sums = self._sums_for(order, first.device)
        sums.begin(order)
        parts = [
            partial(self._forward, slice(start, start + self._rows), divisor, first, *others)
            for start in range(0, len(first), self._rows)
        ]
        passes = self._timed("passes") if len(parts) > 1 else nullcontext()
        with attention_backend(self._attention), passes:
            if self._split_batch is None:
                self._in_turn(parts, sums.add)
            else:
                self._split_batch(parts, sums.add, self._timed)
        return sums.metrics()

    def _update(self, norm: Tensor | None = None) -> tuple[Tensor, ...]:
        """Clipping and the optimizer, as a graph captures them: the norm of the gradient, then the ranks' signals."""
        assert self._sums is not None
        self._sums.attach()
        with self._timed("update"):
            return self.optimizers.step(norm), *self._sums.signals()

    def _sums_for(self, order: SumOrder, device: torch.device) -> PlainGradients | GradientBuffer:
        """Where gradients are added up. One buffer holds them where ranks share them, or where shares are many."""
        buffered = not self._ranks.alone or order.shares > 1
        if self._sums is None or buffered is not isinstance(self._sums, GradientBuffer):
            own = [] if self._sharded else self._trained  # else gradients are added up where weights are kept
            self._sums = GradientBuffer(own, self._ranks, device) if buffered else PlainGradients(device)
        return self._sums

    def _forward(self, rows: slice, divisor: Tensor, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        part = (None if tensor is None else tensor[rows] for tensor in inputs)
        timer = self._timer if rows.start == 0 else None
        executor = self._executor if timer is None else timer.executor(self._executor)
        named = _by_name(self._loss(*part, divisor=divisor, executor=executor))
        self._names = tuple(named)
        return tuple(named.values())

    def _in_turn(self, parts: Sequence[_Forward], after_part: _AfterPart) -> None:
        """Forward and backward of each part; its gradients are added to those of the parameters."""
        for number, part in enumerate(parts):
            with self._timed("forward", number):
                shares = part()
            if self._overlapping and number == len(parts) - 1:
                self._watch_gradients()
            with self._timed("backward", number):
                backward(shares[0])
                self._executor.after_backward()
            after_part(tuple(share.detach() for share in shares))

    def _watch_gradients(self) -> None:
        """The backward pass that comes completes the gradients: let them be sent as they come."""
        assert isinstance(self._sums, GradientBuffer)
        overlap = self._sums.overlapped()
        if not self._watched:
            self._executor.watch(self._trained, overlap.arrived)
            self._watched = True
        overlap.begin()

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
            2, thread_name_prefix="linnet-half", initializer=use_threads, initargs=(threads // 2,)
        )

    def __call__(
        self, parts: Sequence[_Forward], after_part: _AfterPart | None = None, timed: _Timed | None = None
    ) -> list[tuple[Tensor, ...]]:
        """The metrics of each part, its loss first; `after_part` is called with them when its gradients are there."""
        metrics: list[tuple[Tensor, ...]] = []
        for start in range(0, len(parts), 2):
            numbered = list(enumerate(parts))[start : start + 2]
            pair = [self._pool.submit(self._forward_backward, part, number, timed) for number, part in numbered]
            wait(pair)  # where one fails, the other is no longer at work when that is raised
            for shares, by_parameter in [half.result() for half in pair]:
                self._accumulate(by_parameter)
                metrics.append(shares)
                if after_part is not None:
                    after_part(shares)
        return metrics

    def _forward_backward(
        self, part: _Forward, number: int, timed: _Timed | None
    ) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
        timed = timed or _untimed
        with timed("forward", number):
            shares = part()
        with timed("backward", number):
            return tuple(share.detach() for share in shares), gradients(shares[0], self._parameters)

    @torch.no_grad()
    def _accumulate(self, by_parameter: list[Tensor | None]) -> None:
        """As `backward` does: a parameter's gradient has memory of its own, in the parameter's order."""
        reached: set[int] = set()
        for parameter, gradient in zip(self._parameters, by_parameter, strict=True):
            if gradient is None:
                continue
            memory = gradient.untyped_storage().data_ptr()
            if parameter.grad is not None:
                parameter.grad += gradient
            elif gradient.stride() == parameter.stride() and memory not in reached:
                parameter.grad = gradient
                reached.add(memory)
            else:
                parameter.grad = torch.empty_like(parameter).copy_(gradient)


def _captured_by(hardware: Hardware) -> Callable[[Work], Work]:
    """How a piece of a step is captured: as a CUDA graph, as a recording on a CPU, or not at all."""
    if not hardware.graph:
        return lambda work: work
    return Graph if hardware.device.type == "cuda" else Recording


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
        if not batch.n_targets:  # a mean over nothing is NaN, which no factor of 0 makes a number
            means = {name: value.nan_to_num() for name, value in means.items()}
        return {name: value * (batch.n_targets / divisor) for name, value in means.items()}


def _by_name(returned: Tensor | tuple[Tensor, Tensor] | Mapping[str, Tensor] | DistilledLoss) -> dict[str, Tensor]:
    """What a loss returned, by name, with that first which gradients are taken of: the loss, or a student's objective.

    `loss` is cross entropy with a teacher as without.
    """
    if isinstance(returned, DistilledLoss):
        return dict(zip((_OBJECTIVE, "loss", "distill_loss"), returned, strict=True))
    if isinstance(returned, Mapping):
        if "loss" not in returned:
            raise UsageError(f"the loss returned {', '.join(map(str, returned))}: expected 'loss' among them")
        return {"loss": returned["loss"], **returned}
    if isinstance(returned, Tensor):
        return {"loss": returned}
    return dict(zip(("loss", "accuracy"), returned, strict=True))


def _now(device: torch.device) -> float:
    """The time when the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
