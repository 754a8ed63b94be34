"""`Callback`: code that is called while a run trains. The command line's screen is one."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from linnet.errors import LinnetError, error_text

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from linnet.runs import Session
    from linnet.runs.baseline import Comparison
    from linnet.train.metrics import StepMetrics
    from linnet.train.plan import Plan
    from linnet.train.protocols import EvalResult

P = ParamSpec("P")


class CallbackError(LinnetError):
    """A callback raised an exception; the message names it, `__cause__` is what it raised."""

    def _render_traceback_(self) -> list[str]:
        """In a notebook too, the whole of it: it is the user's own code that is to be found."""
        return traceback.format_exception(self)


@dataclass(frozen=True)
class TrainingContext:
    """What a callback may reach: the run being written, the model being trained, and two ways to end it."""

    run: Session
    model: nn.Module
    stop: Callable[[str], None]
    abort: Callable[[str], None]


class Callback:
    """Called at steps, evaluations, checkpoints and the end; by default does nothing about them.

    class EarlyStopping(linnet.Callback):
        def on_evaluation(self, step, result):
            if result.loss > 3:
                self.stop("it learns nothing")

    Inside of its methods `self.run` logs, `self.model` is the model as it is evaluated and kept, and `self.stop(why)`
    ends the run after the step at hand, with a checkpoint, as completed. What a method raises ends the run as errored.
    """

    _context: TrainingContext | None = None

    @property
    def run(self) -> Session:
        """The run being written: `self.run.log(step, {"my/metric": 1.0})`."""
        return self._attached.run

    @property
    def model(self) -> nn.Module:
        """The model being trained."""
        return self._attached.model

    def stop(self, why: str = "") -> None:
        """End the run after this step; it is completed, and `why` stands in a note."""
        self._attached.stop(why or f"stopped by {type(self).__name__}")

    def abort(self, why: str) -> None:
        """End the run after this step as aborted, with a last checkpoint and exit code 1: it is not worth going on."""
        self._attached.abort(why)

    def attach(self, context: TrainingContext) -> None:
        """Called by the loop before anything else."""
        self._context = context

    @property
    def _attached(self) -> TrainingContext:
        if self._context is None:
            raise LinnetError(
                f"the callback {type(self).__name__} is not part of a training yet: give it to callbacks="
            )
        return self._context

    def on_remark(self, text: str) -> None:
        """A line for people: the device that was chosen and why, files that were left out, what a donor gave."""

    def on_warning(self, step: int, text: str) -> None:
        """Something that people should know came up after a step: the held-out loss rises."""

    def on_plan(self, plan: Plan) -> None:
        """What the training will take, before its first step; the time is not known yet."""

    def on_expected_time(self, plan: Plan) -> None:
        """The same with the expected time, after the first seconds of steps; in a very short run never."""

    def on_start(self) -> None:
        """The first step is about to be trained."""

    def on_step(self, metrics: StepMetrics) -> None:
        """A step is done. On a GPU its metrics come up to sixteen steps later."""

    def on_evaluation(self, step: int, result: EvalResult) -> None:
        """The held-out data was scored."""

    def on_comparison(self, comparison: Comparison, baseline: str) -> None:
        """The run was compared with its baseline, the run of that id."""

    def on_sample(self, step: int, prompt: str, text: str) -> None:
        """The model continued a prompt."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint is on the disk."""

    def on_profile(self, lines: list[str]) -> None:
        """The report of `--profile`."""

    def on_end(self, reason: str) -> None:
        """Training is over: `completed`, `interrupted`, `aborted` or `errored`. The run can still be logged to."""


class Callbacks:
    """The callbacks of a run, called in their order; an exception of one names it."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._callbacks = tuple(callbacks)
        for callback in self._callbacks:
            if not isinstance(callback, Callback):
                raise LinnetError(f"callbacks= takes instances of linnet.Callback, found {callback!r}")

    def followed_by(self, callback: Callback) -> Callbacks:
        """These and one more."""
        return Callbacks((*self._callbacks, callback))

    def attach(self, context: TrainingContext) -> None:
        """Give each of them the run and the model."""
        for callback in self._callbacks:
            callback.attach(context)

    def call(self, method: Callable[Concatenate[Callback, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a method of each: `callbacks.call(Callback.on_step, metrics)`."""
        for callback in self._callbacks:
            try:
                getattr(callback, method.__name__)(*args, **kwargs)
            except Exception as error:
                last = (error_text(error).strip().splitlines() or [""])[-1]
                words = f"{type(error).__name__}: {last}" if last else type(error).__name__
                name = f"{type(callback).__name__}.{method.__name__}"
                raise CallbackError(f"the callback {name} failed: {words}") from error

    def end(self, reason: str) -> None:
        """Call `on_end` of each, whatever another one raises."""
        failures: list[CallbackError] = []
        for callback in self._callbacks:
            try:
                Callbacks([callback]).call(Callback.on_end, reason)
            except CallbackError as error:
                failures.append(error)
        if failures:
            raise failures[0]
