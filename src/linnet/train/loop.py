"""The one loop. It drives any recipe: it owns data order, schedule, logging, evaluation, samples and checkpoints."""

from __future__ import annotations

import gc
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet import gguf
from linnet.errors import is_out_of_memory
from linnet.runs import Session
from linnet.train.callback import Callback, Callbacks, TrainingContext
from linnet.train.checkpoint import BestCheckpoint, Checkpointer
from linnet.train.hardware import Hardware
from linnet.train.metrics import Gate, MetricQueue, StepMetrics, StepWork
from linnet.train.process import StopSignals
from linnet.train.profile import Profile
from linnet.train.protocols import DataEndedError, EvalResult, KeptEvaluation, Recipe, RunData
from linnet.train.settings import TrainSettings

log = logging.getLogger("linnet")

_EXPLODED = 3.0  # times the loss of the first step; a fresh model cannot do that much worse than chance


@dataclass
class Progress:
    """Where the loop stands; kept with every checkpoint."""

    step: int = 0
    seen: int = 0  # tokens or images trained on
    seconds: float = 0.0  # that all sessions took until the newest checkpoint
    loss: float = math.nan
    accuracy: float | None = None
    validation: EvalResult | None = None
    first_loss: float | None = None
    fingerprints: dict[str, str] = field(default_factory=dict)
    best: BestCheckpoint | None = None

    def facts(self, seconds: float) -> dict[str, Any]:
        """The progress as a checkpoint's state keeps it, after so many `seconds`; the checkpointer adds the `best`."""
        validation = None if self.validation is None else self.validation.figures
        return {**vars(self), "seconds": seconds, "validation": validation}

    @classmethod
    def from_facts(cls, step: int, facts: Mapping[str, Any]) -> Progress:
        """Where the loop stood at the checkpoint of a step. States of earlier versions have fewer facts."""
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        best, validation = facts.get("best"), facts.get("validation")
        if best is None and facts.get("best_validation") is not None:
            best = {"step": 0, "loss": facts["best_validation"]}
        known["validation"] = KeptEvaluation(validation) if validation else None
        known["best"] = BestCheckpoint(**best) if best else None
        return cls(**{**known, "step": step})


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
        data: RunData,
        settings: TrainSettings,
        hardware: Hardware,
        run: Session,
        *,
        progress: Progress | None = None,
        callbacks: Callbacks | Iterable[Callback] = (),
    ) -> None:
        self._recipe, self._data, self._settings, self._run = recipe, data, settings, run
        self.unit = data.unit
        self._callbacks = callbacks if isinstance(callbacks, Callbacks) else Callbacks(callbacks)
        self._callbacks.attach(TrainingContext(run, recipe.model, self._ask_to_stop))
        self._stop_reason: str | None = None  # why a callback wants the run to end
        self.progress = progress or Progress()
        work = StepWork(data.unit, data.per_step, data.flops(recipe.model), settings.steps)
        self._metrics = MetricQueue(hardware.device, work, hardware.peak_flops, run.run_id)
        self._gate = Gate.parse(settings.gate) if settings.gate else None
        self._checkpointer = Checkpointer(
            run,
            recipe.config,
            data.tokenizer,
            keep=settings.keep,
            file_type=settings.file_type,
            best=self.progress.best,
        )
        self._stop = StopSignals()
        self._saved_at = self.progress.step
        self._began = time.monotonic()
        self._profile: Profile | None = None
        if settings.profile:
            n_params = sum(tensor.numel() for tensor in recipe.parameters().values())
            self._profile = Profile(run, work, hardware, self._callbacks, done=self.progress.step, n_params=n_params)

    def run(self, stop: StopSignals | None = None, remarks: Iterable[str] = ()) -> Outcome:
        """Train. What was reached is kept, unless a step broke off in the middle: then the last checkpoint stands.

        `stop`: listens for signals already; else they are listened for until this returns. `remarks`: for callbacks.
        """
        if stop is None:
            with StopSignals() as stop:
                return self.run(stop, remarks)
        self._stop, self._began = stop, time.monotonic()
        reason, error = "errored", None
        if self.progress.step:
            self._checkpointer.repair(self.progress.step, self.progress.loss, self._validation_loss)
        try:
            for remark in remarks:
                self._callbacks.call(Callback.on_remark, remark)
            with _without_pauses():
                self._callbacks.call(Callback.on_start)
                reason, error = self._train()
                if self._profile is not None:
                    self._profile.report(self.progress.step)
        except RuntimeError as problem:
            if not is_out_of_memory(problem):
                raise
            first_line = str(problem).splitlines()[0][:160]
            error = f"out of memory: lower {self._data.memory_settings}; {first_line}"
        finally:
            if self._profile is not None:
                self._profile.stop()
            if reason in ("completed", "interrupted") and self._saved_at < self.progress.step:
                self._save()
            self._checkpointer.close()
            if reason == "completed" and self._checkpointer.failure:
                reason, error = "errored", self._checkpointer.failure
            try:
                self._announce_checkpoints()
            finally:
                self._callbacks.end(reason)
        gate = self._verdict()
        missed = gate is not None and not gate["passed"]
        exit_code = stop.exit_code if reason == "interrupted" else int(reason != "completed" or missed)
        return Outcome(reason, error, self.progress, gate, self._seconds_so_far, self._checkpointer.latest, exit_code)

    def _train(self) -> tuple[str, str | None]:
        settings, last = self._settings, self._settings.steps
        self._metrics.begin()
        for step in range(self.progress.step + 1, last + 1):
            lr = settings.learning_rate(step - 1)
            try:
                batch = self._data.batch(step - 1)
            except DataEndedError:
                self._ask_to_stop(f"the data ended after step {step - 1} of {last}")
                return self._end_early()
            result = self._recipe.train_on(batch, lr, step - 1)
            self._metrics.add(step, lr, result.metrics)
            if self._profile is not None:
                self._profile.after(step)
                self._metrics.begin()
            if problem := self._log_steps(self._metrics.ready()):
                return "aborted", problem
            self._announce_checkpoints()
            evaluating, sampling = settings.due("eval", step), settings.due("sample", step)
            saving = settings.due("checkpoint", step)
            if not (evaluating or saving or sampling or self._stop.caught or self._stop_reason):
                continue
            if problem := self._log_steps(self._metrics.ready(wait=True)):
                return "aborted", problem
            with self._pause():  # also before a stop: else a resumed run would lack what was due at this step
                if evaluating:
                    self._evaluate(step)
                if sampling:
                    self._sample(step)
                if saving:
                    self._save()
            if self._stop.caught and step < last:
                return "interrupted", None
            if self._stop_reason and step < last:
                return self._end_early()
        return "completed", None

    def _ask_to_stop(self, why: str) -> None:
        self._stop_reason = self._stop_reason or why

    def _end_early(self) -> tuple[str, str | None]:
        """A callback has seen enough, or the data ended: the run is completed, and says why it is short."""
        if problem := self._log_steps(self._metrics.ready(wait=True)):
            return "aborted", problem
        self._run.note(f"ended early: {self._stop_reason}", step=self.progress.step)
        return "completed", None

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """What is done here is no step's time."""
        if self._profile is not None:
            self._profile.pause()
        yield
        self._metrics.begin()
        if self._profile is not None:
            self._profile.resume()

    def _log_steps(self, arrived: list[StepMetrics]) -> str | None:
        """Log the steps whose metrics have come; the reason to stop, if one of them has no loss to go on from."""
        for metrics in arrived:
            self.progress.step = metrics.step
            self.progress.seen += self._data.per_step
            self.progress.loss, self.progress.accuracy = metrics.loss, metrics.get("accuracy")
            self._run.log(metrics.step, metrics.values)
            self._callbacks.call(Callback.on_step, metrics)
            if self._settings.on_nan == "stop" and (problem := self._cannot_go_on(metrics)):
                return problem
        return None

    def _cannot_go_on(self, metrics: StepMetrics) -> str | None:
        if self.progress.first_loss is None:
            self.progress.first_loss = metrics.loss
        first, advice = self.progress.first_loss, f"lower `lr` (now {self._settings.lr:g})"
        for name, value in (("loss", metrics.loss), ("gradient", metrics.grad_norm)):
            if not math.isfinite(value):
                return f"the {name} of step {metrics.step} is not finite; {advice}"
        if metrics.loss > _EXPLODED * max(first, 1.0):
            return f"the loss exploded from {first:.3g} to {metrics.loss:.3g} at step {metrics.step}; {advice}"
        return None

    def _evaluate(self, step: int) -> None:
        result = self._data.evaluate(self._recipe.model, step)
        if result is None:
            return
        self.progress.validation = result
        self._data.report(self._run, step, result)
        self._callbacks.call(Callback.on_evaluation, step, result)

    def _sample(self, step: int) -> None:
        for prompt, text in self._data.samples(self._recipe.model):
            self._run.sample(step, prompt, text)
            self._callbacks.call(Callback.on_sample, step, prompt, text)

    def _save(self) -> None:
        progress, recipe = self.progress, self._recipe
        own: dict[str, Any] = {f"{self._data.unit}_seen": progress.seen, **recipe.origin}
        origin = gguf.Provenance(
            recipe=recipe.name,
            seed=self._settings.seed,
            train_loss=progress.loss,
            validation_loss=self._validation_loss,
            config_fingerprint=progress.fingerprints.get("config"),
            data_fingerprint=progress.fingerprints.get("data"),
            git_sha=str((self._run.manifest.provenance.get("git") or {}).get("sha", "")) or None,
            **own,
        )
        facts = {"run_id": self._run.run_id, **progress.facts(self._seconds_so_far)}
        self._checkpointer.save(progress.step, recipe.parameters(), recipe.moments(), facts, origin)
        self._saved_at = progress.step

    def _announce_checkpoints(self) -> None:
        """Call back for what has reached the disk since the last step."""
        for step, path in self._checkpointer.written():
            self._callbacks.call(Callback.on_checkpoint, step, path)

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
