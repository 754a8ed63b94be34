"""The one loop. It drives any recipe: it owns data order, schedule, logging, evaluation, samples and checkpoints."""

from __future__ import annotations

import gc
import math
import signal
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from linnet import gguf
from linnet.errors import LinnetError
from linnet.runs import Session
from linnet.train.checkpointer import Checkpointer
from linnet.train.gate import Gate
from linnet.train.hardware import Hardware
from linnet.train.late import Figures, Late
from linnet.train.profile import Profile
from linnet.train.schedule import learning_rate
from linnet.train.settings import TrainSettings
from linnet.train.state import State
from linnet.train.task import Held, Task
from linnet.train.watch import StepReport, Watch

_TIMED = 25  # steps whose median is the speed that is shown
_EXPLODED = 3.0  # times the loss of the first step; a fresh model cannot do that much worse than chance


class Recipe(Protocol):
    """What the loop keeps: a model that is realised and built, and its optimiser."""

    name: str

    @property
    def config(self) -> Any:
        """The model's shape, as `gguf.write` takes it."""

    def parameters(self) -> dict[str, Tensor]:
        """What a checkpoint holds, by the names of `gguf.names`."""

    def moments(self) -> dict[str, Tensor]:
        """The optimiser's tensors."""

    @property
    def origin(self) -> Mapping[str, Any]:
        """Fields of `gguf.Provenance` that only this recipe knows."""

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint back, to the bit."""


@dataclass
class Progress:
    """Where the loop stands; kept with every checkpoint."""

    step: int = 0
    seen: int = 0  # tokens or images trained on
    loss: float = math.nan
    validation: Held | None = None
    first_loss: float | None = None
    best_validation: float | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How the loop ended."""

    reason: str
    error: str | None
    progress: Progress
    gate: dict[str, object] | None
    seconds: float


class Loop:
    """Trains until the last step, an interruption, or a loss that cannot be gone on from."""

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        settings: TrainSettings,
        hardware: Hardware,
        run: Session,
        *,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._recipe, self._task, self._settings = recipe, task, settings
        self._hardware, self._run = hardware, run
        self.unit = task.unit
        self._watch = watch or Watch()
        self.progress = progress or Progress()
        self._late = Late(hardware.device)
        self._gate = Gate.parse(settings.gate) if settings.gate else None
        self._checkpointer = Checkpointer(
            run,
            recipe.config,
            task.tokenizer,
            keep=settings.keep,
            file_type=settings.file_type,
            best=self.progress.best_validation,
        )
        self._stop_reason: str | None = None
        self._saved_at = self.progress.step
        self._profile: Profile | None = None
        if settings.profile:
            n_params = sum(tensor.numel() for tensor in recipe.parameters().values())
            self._profile = Profile(run, task, hardware, self._watch, done=self.progress.step, n_params=n_params)
        self._seconds: deque[float] = deque(maxlen=_TIMED)

    def run(self) -> Outcome:
        """Train. What was reached is kept, unless a step broke off in the middle: then the last checkpoint stands."""
        began = time.monotonic()
        reason, error = "errored", None
        try:
            with _without_pauses(), self._listening():
                reason, error = self._train()
        except RuntimeError as problem:
            if not is_of_memory(problem):
                raise
            error = _out_of_memory(problem, self._task.to_lower)
        finally:
            if reason in ("completed", "interrupted") and self._saved_at < self.progress.step:
                self._save()
            self._checkpointer.finish()
            self._watch.on_end()
        if reason == "completed" and self._checkpointer.failure:
            reason, error = "errored", self._checkpointer.failure
        return Outcome(reason, error, self.progress, self._verdict(), time.monotonic() - began)

    def _train(self) -> tuple[str, str | None]:
        settings, last = self._settings, self._settings.steps
        self._late.begin()
        for step in range(self.progress.step + 1, last + 1):
            lr = learning_rate(settings, step - 1)
            result = self._task.step(step - 1, lr)
            self._late.add(step, lr, result)
            if self._profile is not None:
                self._profile.after(step)
            if problem := self._take_in(self._late.ready()):
                return "aborted", problem
            scoring = settings.eval_every != 0 and (settings.due(step, settings.eval_every, 10) or step == last)
            saving = settings.due(step, settings.checkpoint_every, 5) or step == last
            sampling = settings.sample_every != 0 and (settings.due(step, settings.sample_every, 10) or step == last)
            if not (scoring or saving or sampling or self._stop_reason):
                continue
            if problem := self._take_in(self._late.ready(wait=True)):
                return "aborted", problem
            if self._stop_reason:
                return "interrupted", None
            with self._pause():
                if scoring:
                    self._evaluate(step)
                if sampling:
                    self._sample(step)
                if saving:
                    self._save()
        return "completed", None

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """What is done here is no step's time."""
        if self._profile is not None:
            self._profile.pause()
        yield
        self._late.begin()
        if self._profile is not None:
            self._profile.go_on()

    def _take_in(self, found: list[Figures]) -> str | None:
        """Log the steps whose figures have come; the reason to stop, if one of them is no loss to go on from."""
        task = self._task
        for figures in found:
            self.progress.step = figures.step
            self.progress.seen += task.per_step
            self.progress.loss = figures.loss
            accuracy = {} if figures.accuracy is None else {"accuracy": figures.accuracy}
            self._run.log(
                figures.step,
                {
                    "loss": figures.loss,
                    **accuracy,
                    "lr": figures.lr,
                    "grad_norm": figures.grad_norm,
                    task.unit: task.per_step,
                    "wall_us": round(figures.seconds * 1e6),
                    f"{task.unit}_per_s": task.per_step / figures.seconds,
                    "mfu": task.flops / figures.seconds / self._hardware.peak_flops,
                },
            )
            self._seconds.append(figures.seconds)
            usual = statistics.median(self._seconds)  # a step in which something is compiled tells nothing
            self._watch.on_step(
                StepReport(
                    figures.step,
                    self._settings.steps,
                    figures.loss,
                    figures.lr,
                    figures.grad_norm,
                    task.unit,
                    task.per_step,
                    task.per_step / usual,
                    task.flops / usual / self._hardware.peak_flops,
                    (self._settings.steps - figures.step) * usual,
                    figures.accuracy,
                )
            )
            if self._settings.on_nan == "stop" and (problem := self._cannot_go_on(figures)):
                return problem
        return None

    def _cannot_go_on(self, figures: Figures) -> str | None:
        if self.progress.first_loss is None:
            self.progress.first_loss = figures.loss
        if not math.isfinite(figures.loss) or not math.isfinite(figures.grad_norm):
            what = "loss" if not math.isfinite(figures.loss) else "gradient"
            return f"the {what} of step {figures.step} is not finite; lower --lr (now {self._settings.lr:g})"
        if figures.loss > _EXPLODED * max(self.progress.first_loss, 1.0):
            return (
                f"the loss exploded from {self.progress.first_loss:.3g} to {figures.loss:.3g} at step {figures.step}; "
                f"lower --lr (now {self._settings.lr:g})"
            )
        return None

    def _evaluate(self, step: int) -> None:
        found = self._task.evaluate()
        if found is None:
            return
        self.progress.validation = found
        if math.isfinite(found.loss):
            self.progress.best_validation = min(found.loss, self.progress.best_validation or math.inf)
        self._task.report(self._run, step, found, step == self._settings.steps)
        self._watch.on_evaluation(step, found)

    def _sample(self, step: int) -> None:
        for prompt, text in self._task.samples():
            self._run.sample(step, prompt, text)
            self._watch.on_sample(step, prompt, text)

    def _save(self) -> None:
        progress = self.progress
        loss = progress.validation.loss if progress.validation is not None else None
        facts = {
            "step": progress.step,
            "seen": progress.seen,
            "first_loss": progress.first_loss,
            "best_validation": progress.best_validation,
            "fingerprints": progress.fingerprints,
        }
        more: dict[str, Any] = {f"{self._task.unit}_seen": progress.seen, **self._recipe.origin}
        origin = gguf.Provenance(
            recipe=self._recipe.name,
            seed=self._settings.seed,
            train_loss=progress.loss,
            validation_loss=loss,
            config_fingerprint=progress.fingerprints.get("config"),
            data_fingerprint=progress.fingerprints.get("data"),
            git_sha=str((self._run.manifest.provenance.get("git") or {}).get("sha", "")) or None,
            **more,
        )
        parameters, moments = self._recipe.parameters(), self._recipe.moments()
        self._checkpointer.save(progress.step, parameters, moments, facts, origin, loss)
        self._saved_at = progress.step
        self._watch.on_checkpoint(progress.step, self._run.run_dir)

    def _verdict(self) -> dict[str, object] | None:
        if self._gate is None:
            return None
        found: dict[str, float] = {"loss": self.progress.loss}
        if self.progress.validation is not None:
            found |= {f"validation/{name}": value for name, value in self.progress.validation.figures.items()}
        if self._gate.metric not in found:
            raise LinnetError(f"--gate: there is no metric {self._gate.metric!r}; choose from {', '.join(found)}")
        return self._gate.verdict(found[self._gate.metric])

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM let the step end first; a second Ctrl-C does not wait."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: object) -> None:
            if self._stop_reason and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stop_reason = signal.Signals(number).name

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _without_pauses() -> Iterator[None]:
    """Python's collector pauses for half a second now and then; a training step makes no cycles worth it."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def is_of_memory(problem: RuntimeError) -> bool:
    """Torch has an error of its own for it, but not on the CPU."""
    return isinstance(problem, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(problem)


def _out_of_memory(problem: RuntimeError, to_lower: str) -> str:
    first = str(problem).splitlines()[0][:160]
    return f"out of memory: lower {to_lower}; {first}"
