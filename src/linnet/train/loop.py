"""The one loop. It drives any recipe: it owns data order, schedule, logging, evaluation, samples and checkpoints."""

from __future__ import annotations

import gc
import logging
import math
import statistics
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from linnet import gguf
from linnet.errors import is_out_of_memory
from linnet.runs import Session
from linnet.train.checkpointer import BestCheckpoint, Checkpointer
from linnet.train.gate import Gate
from linnet.train.hardware import Hardware
from linnet.train.late import Figures, Late
from linnet.train.profile import Profile
from linnet.train.schedule import learning_rate
from linnet.train.settings import CHECKPOINTS, EVALUATIONS, SAMPLES, TrainSettings
from linnet.train.state import State
from linnet.train.stop_signals import StopSignals
from linnet.train.task import Held, Task
from linnet.train.watch import StepReport, Watch

log = logging.getLogger("linnet")

_TIMED = 25  # steps whose median is the speed that is shown
_EXPLODED = 3.0  # times the loss of the first step; a fresh model cannot do that much worse than chance


class Recipe(Protocol):
    """What the loop keeps: a model that is realised and built, and its optimiser."""

    name: str

    @property
    def config(self) -> Any:
        """The model's shape, as `gguf.write` takes it."""

    def parameters(self) -> dict[str, Tensor]:
        """What a checkpoint holds, by the names of `linnet.architectures`."""

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
    seconds: float = 0.0  # that all sessions took until the newest checkpoint
    loss: float = math.nan
    accuracy: float | None = None
    validation: Held | None = None
    first_loss: float | None = None
    best: BestCheckpoint | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How the loop ended.

    - `seconds`: of the whole run, the sessions before this one included, as `progress.seen` counts its tokens.
    - `model`: the newest checkpoint; `exit_code`: what the process tells its caller.
    """

    reason: str
    error: str | None
    progress: Progress
    gate: dict[str, object] | None
    seconds: float
    model: Path | None
    exit_code: int


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
            best=self.progress.best,
        )
        self._stop = StopSignals()
        self._peak_flops = hardware.peak_flops
        self._saved_at = self.progress.step
        self._began = time.monotonic()
        self._profile: Profile | None = None
        if settings.profile:
            n_params = sum(tensor.numel() for tensor in recipe.parameters().values())
            self._profile = Profile(
                run, task, hardware, self._watch, done=self.progress.step, last=settings.steps, n_params=n_params
            )
        self._seconds: deque[float] = deque(maxlen=_TIMED)

    def run(self, stop: StopSignals | None = None) -> Outcome:
        """Train. What was reached is kept, unless a step broke off in the middle: then the last checkpoint stands.

        `stop`: listens for signals already; else they are listened for until this returns.
        """
        if stop is None:
            with StopSignals() as stop:
                return self.run(stop)
        self._stop, self._began = stop, time.monotonic()
        reason, error = "errored", None
        if self.progress.step:
            self._checkpointer.mend(self.progress.step, self.progress.loss, self._validation_loss)
        try:
            with _without_pauses():
                reason, error = self._train()
                if self._profile is not None:
                    self._profile.finish(self.progress.step)
        except RuntimeError as problem:
            if not is_out_of_memory(problem):
                raise
            error = _out_of_memory(problem, self._task.to_lower)
        finally:
            if self._profile is not None:
                self._profile.stop()
            if reason in ("completed", "interrupted") and self._saved_at < self.progress.step:
                self._save()
            self._checkpointer.finish()
            self._tell_of_checkpoints()
            self._watch.on_end()
        if reason == "completed" and self._checkpointer.failure:
            reason, error = "errored", self._checkpointer.failure
        gate = self._verdict()
        missed = gate is not None and not gate["passed"]
        exit_code = stop.exit_code if reason == "interrupted" else int(reason != "completed" or missed)
        return Outcome(reason, error, self.progress, gate, self._seconds_so_far, self._checkpointer.latest, exit_code)

    def _train(self) -> tuple[str, str | None]:
        settings, last = self._settings, self._settings.steps
        self._late.begin()
        for step in range(self.progress.step + 1, last + 1):
            lr = learning_rate(settings, step - 1)
            result = self._task.step(step - 1, lr)
            self._late.add(step, lr, result)
            if self._profile is not None:
                self._profile.after(step)
                self._late.begin()
            if problem := self._take_in(self._late.ready()):
                return "aborted", problem
            self._tell_of_checkpoints()
            scoring = settings.eval_every != 0 and (
                settings.due(step, settings.eval_every, EVALUATIONS) or step == last
            )
            saving = settings.due(step, settings.checkpoint_every, CHECKPOINTS) or step == last
            sampling = settings.sample_every != 0 and (
                settings.due(step, settings.sample_every, SAMPLES) or step == last
            )
            if not (scoring or saving or sampling or self._stop.caught):
                continue
            if problem := self._take_in(self._late.ready(wait=True)):
                return "aborted", problem
            with self._pause():  # also before a stop: else a resumed run would lack what was due at this step
                if scoring:
                    self._evaluate(step)
                if sampling:
                    self._sample(step)
                if saving:
                    self._save()
            if self._stop.caught and step < last:
                return "interrupted", None
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
            self.progress.loss, self.progress.accuracy = figures.loss, figures.accuracy
            accuracy = {} if figures.accuracy is None else {"accuracy": figures.accuracy}
            utilization = self._utilization(figures.seconds)
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
                    **({} if utilization is None else {"mfu": utilization}),
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
                    self._utilization(usual),
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

    def _utilization(self, seconds: float) -> float | None:
        """The share of the device's peak that a step reached (MFU); None without a peak that can be trusted.

        A step that beats the peak shows that it was measured while others were busy: from then on there is none.
        """
        if self._peak_flops is None:
            return None
        share = self._task.flops / seconds / self._peak_flops
        if share > 1:
            self._peak_flops = None
            log.info("run %s: a step beat the measured peak; no MFU from here on", self._run.run_id)
            return None
        return share

    def _evaluate(self, step: int) -> None:
        found = self._task.evaluate()
        if found is None:
            return
        self.progress.validation = found
        self._task.report(self._run, step, found, step == self._settings.steps)
        self._watch.on_evaluation(step, found)

    def _sample(self, step: int) -> None:
        for prompt, text in self._task.samples():
            self._run.sample(step, prompt, text)
            self._watch.on_sample(step, prompt, text)

    def _save(self) -> None:
        progress = self.progress
        facts = {
            "run_id": self._run.run_id,
            "step": progress.step,
            "seen": progress.seen,
            "seconds": self._seconds_so_far,
            "loss": progress.loss,
            "accuracy": progress.accuracy,
            "validation": None if progress.validation is None else progress.validation.figures,
            "first_loss": progress.first_loss,
            "fingerprints": progress.fingerprints,
        }
        more: dict[str, Any] = {f"{self._task.unit}_seen": progress.seen, **self._recipe.origin}
        origin = gguf.Provenance(
            recipe=self._recipe.name,
            seed=self._settings.seed,
            train_loss=progress.loss,
            validation_loss=self._validation_loss,
            config_fingerprint=progress.fingerprints.get("config"),
            data_fingerprint=progress.fingerprints.get("data"),
            git_sha=str((self._run.manifest.provenance.get("git") or {}).get("sha", "")) or None,
            **more,
        )
        self._checkpointer.save(progress.step, self._recipe.parameters(), self._recipe.moments(), facts, origin)
        self._saved_at = progress.step

    def _tell_of_checkpoints(self) -> None:
        """Announce what has reached the disk since the last step."""
        for step, path in self._checkpointer.written():
            self._watch.on_checkpoint(step, path)

    @property
    def _validation_loss(self) -> float | None:
        return None if self.progress.validation is None else self.progress.validation.loss

    @property
    def _seconds_so_far(self) -> float:
        return self.progress.seconds + time.monotonic() - self._began

    def _verdict(self) -> dict[str, object] | None:
        """The gate's; none where its metric was not measured, because the run ended before its first evaluation."""
        if self._gate is None:
            return None
        measured: dict[str, float | None] = {"loss": self.progress.loss, "accuracy": self.progress.accuracy}
        if self.progress.validation is not None:
            measured |= {f"validation/{name}": value for name, value in self.progress.validation.figures.items()}
        value = measured.get(self._gate.metric)
        return None if value is None else self._gate.verdict(value)


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


def _out_of_memory(problem: RuntimeError, to_lower: str) -> str:
    first = str(problem).splitlines()[0][:160]
    return f"out of memory: lower {to_lower}; {first}"
