"""The one loop. It drives any recipe: it owns data order, schedule, logging, evaluation, samples and checkpoints."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from linnet import gguf
from linnet.errors import error_text, is_out_of_memory
from linnet.files import step_path
from linnet.runs import Session
from linnet.train.callback import Callback, Callbacks, TrainingContext
from linnet.train.checkpoint import Checkpointer, SilentCheckpointer
from linnet.train.hardware import Hardware
from linnet.train.inspection.inspector import Inspector
from linnet.train.metrics import Gate, MetricQueue, StepMetrics, StepWork
from linnet.train.moment_stream import MomentStream
from linnet.train.overfitting import compared_loss, has_risen, margin_of_best, rise_sentence
from linnet.train.plan import WARM_STEPS, Plan, is_trusted
from linnet.train.process import StopSignals
from linnet.train.profile import Profile
from linnet.train.progress import Outcome, Progress
from linnet.train.protocols import DataEndedError, Recipe, RunData
from linnet.train.rank_monitor import RankMonitor, watched
from linnet.train.ranks import RankError
from linnet.train.run_warnings import RunWarnings, TrainingWarning
from linnet.train.settings import Periodic, TrainSettings
from linnet.train.step import Batch
from linnet.train.time_budget import TimeBudget

_COMPARE_EVERY = 1000  # steps after which ranks compare their weights, if nothing else made them pause
_EXPLODED = 3.0  # times the loss of the first step; a fresh model cannot do that much worse than chance


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
        plan: Plan | None = None,
        inspector: Inspector | None = None,
    ) -> None:
        self._recipe, self._data, self._settings, self._run = recipe, data, settings, run
        self._ranks, self._shards_weights = hardware.ranks, hardware.shards_weights
        self._monitor: RankMonitor | None = None
        self._rank_signals: Mapping[str, float] = {}  # what the ranks told each other with the last step
        self._time_budget = None if settings.minutes is None else TimeBudget(settings.minutes)
        self._time_measured = False
        self._warm_at = 0.0  # seconds after which the first steps were done
        self.plan = plan
        self.unit = data.unit
        self._inspector = inspector
        self._callbacks = callbacks if isinstance(callbacks, Callbacks) else Callbacks(callbacks)
        self._callbacks.attach(TrainingContext(run, recipe.model, self._ask_to_stop, self._ask_to_abort))
        self._stop_reason: str | None = None  # why a callback wants the run to end
        self._aborts = False  # and that it is not completed then
        self.progress = progress or Progress()
        self._warnings = RunWarnings(self._warn, self.progress.warned, self.progress.first_loss)
        self._looked_at: set[int] = set()  # steps that were looked at, whose metrics have not come
        if inspector is not None:
            inspector.on_events = self._warnings.looked
        work = StepWork(data.unit, data.per_step, data.flops(recipe.model), settings.steps)
        peak = None if hardware.peak_flops is None else hardware.peak_flops * self._ranks.count
        self._metrics = MetricQueue(hardware.device, work, peak, run.run_id, together=not self._ranks.alone)
        self._gate = Gate.parse(settings.gate) if settings.gate else None
        self._checkpointer = (Checkpointer if self._ranks.is_first else SilentCheckpointer)(
            run,
            recipe.weights_format,
            data.tokenizer,
            keep=settings.keep,
            file_type=settings.file_type,
            best=self.progress.best,
        )
        self._ranks.open_background()
        self._stop = StopSignals()
        self._saved_at = self._began_at = self.progress.step
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
        reason, error, failed_code = "errored", None, 1
        speaks = self._ranks.is_first
        if self.progress.step and step_path(self._run.weights_dir, self.progress.step).is_file():  # a fork has none yet
            self._checkpointer.repair(self.progress.step, self.progress.loss, self._validation_loss)
        try:
            for remark in remarks:
                self._callbacks.call(Callback.on_remark, remark)
            if self.plan is not None:
                self._callbacks.call(Callback.on_plan, self.plan)
            with _without_pauses(), self._watched_ranks():
                self._callbacks.call(Callback.on_start)
                reason, error = self._train()
                if self._profile is not None:
                    self._profile.report(self.progress.step)
        except RankError as problem:
            error, failed_code = str(problem), problem.exit_code
            speaks = getattr(problem, "speaks", speaks)
        except RuntimeError as problem:
            if not is_out_of_memory(problem):
                raise
            first_line = error_text(problem).splitlines()[0][:160]
            error = f"out of memory: lower {self._data.memory_settings}; {first_line}"
        finally:
            if self._profile is not None:
                self._profile.stop()
            if self._inspector is not None:
                with suppress(RuntimeError):  # a device that has failed has told so already
                    self._inspector.write(wait=True)
            ended_in_order = reason in ("completed", "interrupted") or (
                reason == "aborted" and self._aborts and error == self._stop_reason
            )
            if ended_in_order and self._saved_at < self.progress.step:
                self._save(last=True)
            self._checkpointer.close()
            if reason == "completed" and (failure := self._checkpointer.failure):
                reason, error, failed_code = "errored", str(failure), failure.exit_code
                speaks = getattr(failure, "speaks", speaks)
            try:
                self._announce_checkpoints()
            finally:
                self._callbacks.end(reason)
        gate = self._gate_result()
        missed = gate is not None and not gate["passed"]
        codes = {"completed": int(missed), "interrupted": stop.exit_code, "errored": failed_code}
        early = self._stop_reason if reason == "completed" and self.progress.step < self._settings.steps else None
        latest = self._checkpointer.latest
        seconds, code = self._seconds_so_far, codes.get(reason, 1)
        best = self._checkpointer.best_file
        return Outcome(
            reason, error, early, self.progress, gate, seconds, latest, code, speaks, best, self._held_out_rise()
        )

    def _train(self) -> tuple[str, str | None]:
        offset = self._settings.data_offset or 0
        self._metrics.begin()
        step = self.progress.step
        while step < self._settings.steps:
            step += 1
            lr = self._learning_rate(step - 1)
            try:
                batch = self._data.batch(step - 1 - offset)
            except DataEndedError:
                self._ask_to_stop(f"the data ended after step {step - 1} of {self._settings.steps}")
                return self._end_early()
            self._signal_ranks()
            self._train_on(batch, lr, step)
            if self._profile is not None:
                self._profile.after(step)
                self._metrics.begin()
            if problem := self._log_steps(self._metrics.ready()):
                return "aborted", problem
            self._announce_checkpoints()
            self._update_schedule(step)
            evaluating, sampling, saving = (self._due(kind, step) for kind in ("eval", "sample", "checkpoint"))
            if evaluating or saving or step % _COMPARE_EVERY == 0:
                self._compare_weights(step)
            if not (evaluating or saving or sampling or self._stopping):
                continue
            if problem := self._log_steps(self._metrics.ready(wait=True)):
                return "aborted", problem
            with self._pause():  # also before a stop: else a resumed run would lack what was due at this step
                better = evaluating and self._evaluate(step)
                if sampling:
                    self._sample(step)
                ends = step == self._settings.steps or self._stopping  # the last checkpoint needs no copy
                if (saving or better) and not ends:
                    self._save()
            interrupted, ended_early = self._agree_to_stop()
            if interrupted and step < self._settings.steps:
                return "interrupted", None
            if ended_early and step < self._settings.steps:
                return self._end_early()
        return "completed", None

    def _train_on(self, batch: Batch, lr: float, step: int) -> None:
        """One step; where it is due, with a look inside. What is looked at beside the step is no part of its time."""
        inspector = self._inspector
        groups = frozenset[str]() if inspector is None else self._inspected(step)
        if inspector is not None:
            inspector.count(batch)
        if inspector is None or not groups:
            result = self._recipe.train_on(batch, lr, step - 1)
            self._metrics.add(step, lr, result.metrics, result.signals)
            return
        self._looked_at.add(step)
        with self._monitor.paused() if self._monitor is not None else nullcontext():
            inspector.before(groups, step, batch)
            self._metrics.begin()
            profiling = self._profile is not None and self._profile.is_on
            train_on = partial(self._recipe.train_on, batch, lr, step - 1)
            result = inspector.during(groups, step, train_on, profiling=profiling)
            self._metrics.add(step, lr, result.metrics, result.signals)
            inspector.after(groups, step)
            self._metrics.begin()

    def _inspected(self, step: int) -> frozenset[str]:
        """What of the inside is looked at in a step."""
        schedule, settings = self._settings.inspected, self._settings
        return frozenset() if schedule is None else schedule.due(step, first=settings.first, last=settings.steps)

    def _compare_weights(self, step: int) -> None:
        """End the run where a rank's weights have become others; of weights that are shared out each has its own."""
        if not self._ranks.alone and not self._shards_weights:
            self._ranks.require_equal_weights(self._recipe.parameters().values(), step)

    def _signal_ranks(self) -> None:
        """Say with the next step whether this rank is to stop; rank 0 also what time it is, in a run by the clock."""
        if self._ranks.alone:
            return
        signals = self._ranks.signals
        signals["stop"] = float(self._stop.caught is not None or self._stop_reason is not None)
        if self._time_budget is not None and self._ranks.is_first:
            signals["seconds"], signals["step_seconds"] = self._seconds_so_far, self._metrics.step_seconds

    @property
    def _stopping(self) -> bool:
        """Is this the step to stop after? Of several ranks all see it at the same one."""
        if self._ranks.alone:
            return self._stop.caught is not None or self._stop_reason is not None
        return self._rank_signals.get("stop", 0.0) > 0

    def _agree_to_stop(self) -> tuple[bool, bool]:
        """Does the run end now, by a signal, or since it is enough? One rank that is to stop is enough for all."""
        own_answer = (self._stop.caught, self._stop_reason, self._aborts)
        signals, reasons, aborts = zip(*self._ranks.gather(own_answer), strict=True)
        caught = next((number for number in signals if number is not None), None)
        reason = next((why for why in reasons if why is not None), None)
        if caught is not None and self._stop.caught is None:
            self._stop.caught = caught
        self._stop_reason, self._aborts = reason, any(aborts)
        return caught is not None, reason is not None

    def _clock(self) -> tuple[float, float]:
        """Seconds so far and of a step; in a run by the clock of several ranks those of rank 0, as all have heard."""
        if self._ranks.alone or self._time_budget is None:
            return self._seconds_so_far, self._metrics.step_seconds
        return self._rank_signals.get("seconds") or self.progress.seconds, self._rank_signals.get("step_seconds", 0.0)

    def _learning_rate(self, step: int) -> float:
        if self._time_budget is None:
            return self._settings.learning_rate(step)
        return self._time_budget.learning_rate(self._settings, step, self._clock()[0])

    def _due(self, kind: Periodic, step: int) -> bool:
        """Nothing is due before a run by the clock knows how many steps it will have."""
        is_new = self._began_at == self._settings.first
        if self._time_budget is not None and is_new and not self._time_measured and step < self._settings.steps:
            return False
        return self._settings.due(kind, step)

    def _update_schedule(self, step: int) -> None:
        """Tell the expected time once the speed is known; of a run by the clock, how many steps there will be."""
        budget, plan = self._time_budget, self.plan
        if budget is None and (plan is None or plan.seconds is not None):
            return
        seconds, step_seconds = self._clock()
        done, spent = step - self._began_at, seconds - self.progress.seconds
        if budget is not None and step_seconds:
            known = budget.is_measured(done, spent)
            steps = budget.steps(step, seconds, step_seconds)
            if budget.is_over(seconds, step_seconds):
                self._set_steps(step)
            elif known and (not self._time_measured or step >= self._settings.steps):
                self._set_steps(steps)
            else:
                self._metrics.set_last(steps)
            self._time_measured = self._time_measured or known
        if plan is None or plan.seconds is not None or step >= self._settings.steps:
            return
        if budget is not None and self._time_measured:
            self._announce_time(60 * (plan.minutes or 0) - self.progress.seconds, step_seconds)
        if done <= WARM_STEPS:
            self._warm_at = spent
        elif budget is None and is_trusted(done, spent - self._warm_at, plan.steps):
            self._announce_time(spent + plan.rest(done, step_seconds), step_seconds)

    def _announce_time(self, seconds: float, step_seconds: float) -> None:
        """Say, and write into the run, how long this session is expected to take."""
        assert self.plan is not None
        steps = self._settings.steps - self._began_at
        self.plan = replace(self.plan, seconds=seconds, step_seconds=step_seconds, steps=steps)
        self._run.plan(self.progress.step, self.plan.fields())
        self._callbacks.call(Callback.on_expected_time, self.plan)

    def _set_steps(self, steps: int) -> None:
        """The run will have so many steps."""
        self._settings = self._data.settings = replace(self._settings, steps=steps)
        self._metrics.set_last(steps)
        self._run.manifest.total_steps = steps
        self._run.config["steps"] = steps

    def _ask_to_stop(self, why: str) -> None:
        self._stop_reason = self._stop_reason or why

    def _ask_to_abort(self, why: str) -> None:
        self._stop_reason, self._aborts = why, True

    def _end_early(self) -> tuple[str, str | None]:
        """A callback has seen enough, or the data ended: the run is completed, and says why it is short.

        One that a callback aborts has that as its error.
        """
        if problem := self._log_steps(self._metrics.ready(wait=True)):
            return "aborted", problem
        if self._aborts:
            return "aborted", self._stop_reason
        self._run.note(f"ended early: {self._stop_reason}", step=self.progress.step)
        return "completed", None

    @contextmanager
    def _watched_ranks(self) -> Iterator[None]:
        """Several ranks watch each other while they train, and rank 0 logs the figures of all."""
        if self._ranks.alone:
            yield
            return
        with watched(self._ranks, self._run, self._data, self._settings) as self._monitor:
            yield

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """What is done here is no step's time."""
        if self._profile is not None:
            self._profile.pause()
        with self._monitor.paused() if self._monitor is not None else nullcontext():
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
            self._rank_signals = metrics.signals
            if self._monitor is not None:
                self._monitor.stepped(metrics.step, metrics.values["wall_us"] / 1e6)
            if self._inspector is not None:  # before the step's own event, which readers look for at the end
                self._inspector.write()
            self._run.log(metrics.step, metrics.values)
            self._callbacks.call(Callback.on_step, metrics)
            self._warnings.stepped(metrics, looked=metrics.step in self._looked_at)
            self._looked_at.discard(metrics.step)
            if self._settings.on_nan == "stop" and (problem := self._divergence(metrics)):
                return problem
        return None

    def _divergence(self, metrics: StepMetrics) -> str | None:
        if self.progress.first_loss is None:
            self.progress.first_loss = metrics.loss
        first, advice = self.progress.first_loss, f"lower `lr` (now {self._settings.top_lr:g})"
        for name, value in (("loss", metrics.loss), ("gradient", metrics.grad_norm)):
            if not math.isfinite(value):
                return f"the {name} of step {metrics.step} is not finite; {advice}"
        if metrics.loss > _EXPLODED * max(first, 1.0) and not self._data.loss_may_rise:
            return f"the loss exploded from {first:.3g} to {metrics.loss:.3g} at step {metrics.step}; {advice}"
        return None

    def _evaluate(self, step: int) -> bool:
        """Score the held-out data. True where this is the best so far and a model that may overfit: keep it."""
        result = self._ranks.first(self._data.evaluate(self._recipe.model, step))
        if result is None:
            return False
        progress, patience = self.progress, self._settings.patience
        progress.validation = result
        if self._ranks.is_first:
            self._data.report(self._run, step, result)
        self._callbacks.call(Callback.on_evaluation, step, result)
        loss = compared_loss(result)
        progress.last_evaluation, progress.evaluated_at = loss, step
        better = progress.best_evaluation is None or loss < progress.best_evaluation
        if better:
            progress.best_evaluation, progress.best_step, progress.not_better = loss, step, 0
        else:
            progress.not_better += 1
        if patience is not None and progress.not_better >= patience:
            best = f"{progress.best_evaluation:.4g}"
            count = progress.not_better
            times = f"{count} evaluation{'' if count == 1 else 's'}"
            self._ask_to_stop(f"no held-out loss better than {best} in {times} (`patience`)")
        else:
            self._warn_of_rise(step)
        return better and (patience is not None or self._repeats)

    @property
    def _repeats(self) -> bool:
        """Have the data been passed through more than once? From then on a model may overfit: the best is kept."""
        return self._data.per_epoch is not None and self.progress.seen > self._data.per_epoch

    def _held_out_rise(self, evaluations: int = 1) -> str | None:
        """What to say of a held-out loss that has clearly risen; `evaluations` that must not have been better."""
        progress = self.progress
        best, best_step, last = progress.best_evaluation, progress.best_step, progress.last_evaluation
        if best is None or best_step is None or last is None:  # states of earlier versions have no step
            return None
        scored = self._data.scored(progress.evaluated_at or progress.step)
        if progress.not_better < evaluations or not has_risen(best, last, scored, repeats=self._repeats):
            return None
        return rise_sentence(best, best_step, last, repeats=self._repeats, unit=self._data.unit)

    def _warn_of_rise(self, step: int) -> None:
        """Tell once, where it happens, that the held-out loss has clearly risen from its best."""
        if "held_out_rise" not in self.progress.warned and (text := self._held_out_rise(evaluations=2)) is not None:
            self._warn(step, TrainingWarning("held_out_rise", text, "validation/loss"))

    def _warn(self, step: int, found: TrainingWarning) -> None:
        """Tell what has come up: once, in the run and to callbacks."""
        self.progress.warned.append(found.record)
        self._run.note(found.text, step=step, level="warning", metric=found.metric)
        self._callbacks.call(Callback.on_warning, step, found.text)

    def _sample(self, step: int) -> None:
        if not self._ranks.is_first or self._shards_weights:
            return
        for prompt, text in self._data.samples(self._recipe.model):
            self._run.sample(step, prompt, text)
            self._callbacks.call(Callback.on_sample, step, prompt, text)

    def _save(self, *, last: bool = False) -> None:
        progress, recipe = self.progress, self._recipe
        own: dict[str, Any] = {f"{self._data.unit}_seen": progress.seen, **recipe.origin}
        origin = gguf.Provenance(
            recipe=recipe.name,
            seed=self._settings.seed,
            train_loss=progress.loss,
            validation_loss=self._validation_loss,
            config_fingerprint=progress.fingerprints.get("config"),
            data_fingerprint=progress.fingerprints.get("data"),
            git_sha=self._run.git_sha or None,
            **own,
        )
        is_evaluated = progress.evaluated_at == progress.step  # else the loss is an earlier step's
        compared = progress.last_evaluation if is_evaluated else None
        facts = {"run_id": self._run.run_id, "compared_loss": compared, **progress.facts(self._seconds_so_far)}
        if compared is not None:
            facts["loss_margin"] = margin_of_best(self._data.scored(progress.step), self._data.unit)
        layouts = recipe.moment_layouts()
        stream = MomentStream(layouts, self._ranks) if layouts else None
        moments = recipe.moments() | ({} if self._inspector is None else self._inspector.kept())
        tensors = recipe.kept_parameters(), moments
        self._checkpointer.save(progress.step, *tensors, facts, origin, stream, last=last)
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

    def _gate_result(self) -> dict[str, object] | None:
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
