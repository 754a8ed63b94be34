"""`linnet.start`: the friendly front of a run being written, for anybody's training loop."""

from __future__ import annotations

import atexit
import importlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, SupportsIndex

from linnet.runs import provenance
from linnet.runs.bundle import INTERRUPTED_EXIT_CODE, join_fields, never_raises
from linnet.runs.encode import encode_lines, flat_names, jsonable, jsonable_record, safe_text, whole_number
from linnet.runs.folder import ID_TEMPLATE, runs_folder
from linnet.runs.manifest import LiveFields, LiveTags, clean_tags, fields_of
from linnet.runs.media_bundle import MediaBundle

SYSTEM_SECONDS = 5.0
_now, _write = time.monotonic_ns, os.write
_LEAST, _GREATEST = -math.inf, math.inf
_MANIFEST_SECONDS = 1.0  # between two writings of run.json that changes of config and summary cause
_OWN_FIELDS = 4  # kind, phase, t, step: what log() itself puts into a step event

log = logging.getLogger("linnet")


class Terminated(SystemExit):
    """SIGTERM or SIGHUP, turned into an exit that lets the run end properly."""


class Session(MediaBundle):
    """A run that looks after itself: it has started, records the machine's figures, and ends with the true reason.

    Made by `linnet.start`. Use it in a `with` block; without one it ends when the interpreter does.
    """

    _gate: Mapping[str, Any] | None = None
    _own_model: Any = None
    _caught_signals: tuple[int, ...] = ()
    _error_before: BaseException | None = None
    _warned_of_values = False
    _manifest_written = -math.inf  # when a change of config or summary was last written

    @property
    def config(self) -> LiveFields:
        """The run's settings, as `run.json` has them: `run.config.update(lr=3e-4)`. Secrets are masked."""
        return LiveFields(lambda: self.manifest.config, self._put_config)

    @property
    def summary(self) -> LiveFields:
        """Figures that stand for the whole run: `run.summary["best_accuracy"] = 0.97`; `linnet show` has them."""
        return LiveFields(lambda: self.manifest.summary, self._put_summary)

    @property
    def name(self) -> str | None:
        """What the run is called; `run.name = "wide"` calls it so from now on."""
        return self.manifest.name

    @name.setter
    def name(self, name: str | None) -> None:
        self._put_name(name)

    @property
    def tags(self) -> LiveTags:
        """The run's tags: `run.tags += ["good"]`."""
        return LiveTags(lambda: self.manifest.tags, self._put_tags)

    @tags.setter
    def tags(self, tags: str | Iterable[str]) -> None:
        self._put_tags(tags)

    @never_raises
    def _put_name(self, name: str | None) -> None:
        self.manifest.name = provenance.mask_labels(["" if name is None else safe_text(name).strip()])[0] or None
        self._manifest_changed()

    @never_raises
    def _put_tags(self, tags: str | Iterable[str]) -> None:
        self.manifest.tags = clean_tags(tags)
        self._manifest_changed()

    @never_raises
    def _put_config(self, fields: dict[str, Any]) -> None:
        self.manifest.config = provenance.mask_config(fields, self._folder.exact)
        self._manifest_changed()

    @never_raises
    def _put_summary(self, fields: dict[str, Any]) -> None:
        summary, _ = jsonable(fields)
        assert isinstance(summary, dict)
        self.manifest.summary = dict(summary)
        self._manifest_changed()

    def _manifest_changed(self) -> None:
        """Write `run.json` now, or leave it to the background thread where that was done a moment ago."""
        if os.getpid() != self._pid:
            return
        now = time.monotonic()
        if not self._ended and now - self._manifest_written < _MANIFEST_SECONDS:
            self._folder.manifest_due = True
        else:
            self._manifest_written = now
            self._folder.write_manifest()

    def log(
        self,
        step: SupportsIndex | Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | SupportsIndex | None = None,
        /,
        *rest: Any,
        **values: Any,
    ) -> None:
        """Log metrics of one step: `run.log(step, loss=…, lr=…)`, `run.log(step, {"train/acc": …})` or `run.log({…})`.

        On the disk when it returns. With a `loss` it is the step's own event, else one of the user's scalars.

        - The step comes first, or as `step=`, or as a `step` among the metrics; without one the next is taken.
        - Python numbers, numpy scalars and tensors are taken as they are. `{"val": {"acc": …}}` is `val/acc`. A value
          that is no number is kept in the event, with one warning.
        """
        try:
            try:
                if metrics is not None:
                    values = {**metrics, **values}  # type: ignore[dict-item] # a step in its place is told apart below
                plain = _LEAST < sum(values.values()) < _GREATEST  # false for NaN too: one cheap test for all of them
            except Exception:  # a text, an array, a tensor on its way out: the careful way knows them all
                plain = False
            if plain and "loss" in values and type(step) is int and self._open and not rest:
                sink = self._sink
                with sink.lock:  # Sink.append written out: the call would be a twentieth of the cost of a step
                    t = (_now() - sink.origin) / 1e9
                    record = {"kind": "step", "phase": "train", "t": t, "step": step, **values}
                    if len(record) == len(values) + _OWN_FIELDS:
                        try:
                            line = encode_lines([record])
                            written = _write(sink.out, line)
                        except Exception:
                            pass  # no JSON for a value, or the disk refused: the careful way knows what to do
                        else:
                            if written != len(line):
                                sink.hold_rest(line, written)
                            self._last = self._last_loss = record
                            return
            if plain and "loss" not in values and type(step) is int and self._open and not rest:
                self._last = record = _scalars_event(step, values)
                self._append(record)
            else:
                self._log_with_care((step, metrics, *rest), values)
        except Exception as error:
            self._complain("log", error)

    @never_raises
    def checkpoint(
        self, model: Any, /, step: int, loss: Any = None, *, tokenizer: Any = None, type: str = "f32", **fields: Any
    ) -> Path | None:
        """Write `weights/step_<N>.gguf`, which llama.cpp runs, and let `latest` mean it; the file's path comes back.

        - `model`: one of `linnet.models`, or a Llama or GPT-2 of `transformers`. A path says that the file is there.
        - `tokenizer`: one of `tokenizers` or of `transformers`, or the path of a GGUF to take it from.
        - `type`: f32, f16, bf16 or q8_0.

        Whatever goes wrong is a warning, and None comes back: training goes on.
        """
        if isinstance(model, str | os.PathLike):
            return super().checkpoint(model, step, loss, **fields)
        try:
            if self._own_model is None:
                # By its name, at run time: this room imports no other, and the one that knows models loads torch.
                self._own_model = importlib.import_module("linnet.train.own_model").OwnModel(self)
            train_loss = self._last_loss.get("loss") if loss is None else loss
            path = self._own_model.write(model, step, train_loss=train_loss, tokenizer=tokenizer, type=type)
        except ImportError as missing:
            log.warning(
                "run %s: a model cannot be written without the training tools: pip install 'linnet[train]' (%s)",
                self.run_id,
                missing,
            )
            return None
        except Exception as error:
            text, why = safe_text(step), safe_text(error)
            log.warning("run %s: checkpoint of step %s was not written: %s", self.run_id, text, why)
            return None
        return super().checkpoint(path, step, loss, **fields)

    def _log_with_care(self, arguments: tuple[Any, ...], values: dict[str, Any]) -> None:
        """Another order of arguments, no step, nested metrics, values that are no plain finite numbers, a full disk."""
        mappings = [argument for argument in arguments if isinstance(argument, Mapping)]
        steps = [argument for argument in arguments if argument is not None and not isinstance(argument, Mapping)]
        if len(steps) > 1:
            raise TypeError(f"log() takes a step and metrics; unexpected: {', '.join(map(safe_text, steps[1:]))}")
        stays = False
        if isinstance(arguments[0], Mapping):  # as W&B has it: `log(metrics, step=…, commit=…)`
            stays = values.pop("commit", None) is False
        if not steps and values.get("step") is not None:
            steps = [values.pop("step")]
        metrics = flat_names({**{name: value for mapping in mappings for name, value in mapping.items()}, **values})
        if not self._started:
            self._imply_run_start()
        with self._sink.lock:
            step = self._step_of(steps, metrics)
            own = {"kind": "step", "phase": "train", "t": 0.0, "step": step}
            record = join_fields(own, metrics) if "loss" in metrics else _scalars_event(step, metrics)
            if not _are_finite_numbers(metrics):
                record = jsonable_record(record)
                self._warn_of_values(record, metrics)
            self._append(record)
            if not stays:
                self._last = record
            if isinstance(record.get("loss"), int | float) or "loss" in record.get("nonfinite", ()):
                self._last_loss = record

    def _step_of(self, steps: list[Any], metrics: dict[str, Any]) -> int:
        """The step that was given; else a whole number called `step` among the metrics; else the next one."""
        if steps and (step := whole_number(steps[0])) is not None:
            return step
        if not steps and (step := whole_number(metrics.get("step"))) is not None:
            del metrics["step"]
            return step
        following = (whole_number(self._last.get("step")) or 0) + 1
        if steps:
            shown = safe_text(steps[0])[:40]
            if not metrics:
                raise TypeError(f"log() was given {shown!r} and no metrics")
            if "step" not in self._complaints:
                self._complaints.add("step")
                log.warning("run %s: the step %r is no whole number; %d is taken", self.run_id, shown, following)
        return following

    def _warn_of_values(self, record: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Say, once, which metrics are no numbers: they are in the event, and on no chart."""
        if self._warned_of_values:
            return
        values, nonfinite = record.get("values"), record.get("nonfinite", {})
        odd = []
        for name, value in metrics.items():
            key = safe_text(name)
            apart = isinstance(values, dict) and key in values
            converted = values[key] if isinstance(values, dict) and apart else record.get(key)
            if not isinstance(converted, int | float) and (f"values.{key}" if apart else key) not in nonfinite:
                odd.append(f"{key[:60]!r} ({type(value).__name__})")
        if odd:
            self._warned_of_values = True
            shown = ", ".join(odd[:4]) + (f" and {len(odd) - 4} more" if len(odd) > 4 else "")
            log.warning("run %s: not a number: %s; kept in the event, and shown on no chart", self.run_id, shown)

    @never_raises
    def plan(self, step: int | None, fields: Mapping[str, Any]) -> None:
        """What the run is expected to take, in `run.json` and in the stream."""
        self.manifest.plan = dict(fields)
        self._manifest_changed()
        self._event("plan", step, fields)

    @never_raises
    def gate(self, metric: str, value: float, threshold: float, passed: bool) -> None:
        """Set the verdict that `run_end` will carry: did the run reach what was asked of it?"""
        self._gate = {"passed": bool(passed), "metric": metric, "value": value, "threshold": threshold}

    @never_raises
    def finish(self, reason: str = "completed", error: str | None = None, exit_code: int | None = None) -> None:
        """End the run. A `with` block does this by itself."""
        self.run_end(None, None, reason, quality_gate=self._gate, error=error, exit_code=exit_code)
        if threading.current_thread() is threading.main_thread():
            for number in self._caught_signals:
                if signal.getsignal(number) is _terminate:  # else the program has put another in its place
                    signal.signal(number, signal.SIG_DFL)
            self._caught_signals = ()
        atexit.unregister(self._at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(*_exit_reason(error))

    def _watch_for_the_end(self) -> None:
        """Be told of SIGTERM and SIGHUP, unless the program has handlers of its own, and of the interpreter's end."""
        self._error_before = getattr(sys, "last_value", None)
        if threading.current_thread() is threading.main_thread():
            signals = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))  # Windows has no SIGHUP
            self._caught_signals = tuple(n for n in signals if n and signal.getsignal(n) is signal.SIG_DFL)
            for number in self._caught_signals:
                signal.signal(number, _terminate)
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        """Nobody ended the run: say why the interpreter ends. Python does not tell of a plain `sys.exit`."""
        if os.getpid() != self._pid or self._ended:
            return
        error = getattr(sys, "last_value", None)
        if _terminated is not None:
            self.finish(*_exit_reason(_terminated))
        else:
            self.finish(*_exit_reason(None if error is self._error_before else error))


def start(
    runs_root: str | os.PathLike[str] | None = None,
    *,
    arch: str = "run",
    run_id: str | None = None,
    template: str = ID_TEMPLATE,
    recipe: str | None = None,
    experiment: str | None = None,
    name: str | None = None,
    group: str | None = None,
    parent: str | None = None,
    parent_step: int | None = None,
    tags: str | list[str] | tuple[str, ...] = (),
    config: object = None,
    model: object = None,
    total_steps: int | None = None,
    total_epochs: int | None = None,
    goals: Mapping[str, str] | None = None,
    device: str | None = None,
    schedule: Mapping[str, Any] | None = None,
    chosen: Mapping[str, Any] | None = None,
    cost: Mapping[str, Any] | None = None,
    compare_to: str | None = None,
    plan: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    resume: str | None = None,
    from_step: int | None = None,
    strict: bool = False,
    exact: Collection[str] = (),
    system_every: float = SYSTEM_SECONDS,
    mode: str | None = None,
) -> Session:
    """Start a run and return it; its folder, `run.json` and `run_start` are there when this returns.

    - `runs_root`: the folder of runs; None: `$LINNET_RUNS`, else `./runs`.
    - `run_id`: a name for the folder; None: made from `template` (`{arch}-{date}-{seq}`).
    - `config`: hyper-parameters, as a mapping, a dataclass or argparse's result; `model`: the model's shape.
    - `goals`: which way is better, `{"cost": "min"}`; of a metric not named here its name tells, if it is a usual one
      (`loss`, `val_acc`, `bits_per_byte`); else it has no best.
    - `schedule` (`lr_max`, `lr_min`, `warmup`, `n_steps`), `chosen` (what `auto` became: dtype, threads …), `cost`
      (`total_params`, `flops_per_token`) and `compare_to` (a baseline's id) go into `run_start`, or into `resume`.
    - `plan`: what the run is expected to take (`steps`, `seconds`, `memory` …), for `run.json`; `flags`: what the
      program was asked for with, so that it can be told later whether it is asked for the same again.
    - `resume`: a run to go on with, from `from_step`; when there is none, or it is not free to be
      written, a new one is started, with a warning. With `strict` one that is not free is a LinnetError.
    - `exact`: fields of `config` that your program reads back to resume: kept to the letter, never masked as a secret.
    - `system_every`: seconds between two readings of the machine's figures; 0 for none.
    - `mode`: `disabled`: nothing is written and every method works; None: as `$LINNET_MODE` says, else `enabled`.
    """
    from linnet.runs.disabled import DisabledSession, is_disabled

    arch = str(arch or "run")
    labels = {"arch": arch, "recipe": recipe or "", "experiment": provenance.mask_labels([experiment or ""])[0]}
    fields: dict[str, Any] = {
        "name": name,
        "experiment": experiment,
        "group": group,
        "parent": parent,
        "parent_step": parent_step,
        "recipe": recipe,
        "compare_to": compare_to,
        "tags": [tags] if isinstance(tags, str) else [str(tag) for tag in tags],
        "total_steps": total_steps,
        "total_epochs": total_epochs,
        "goals": _goals(goals or {}),
        "model": fields_of(model),
        "config": fields_of(config),
        "plan": fields_of(plan),
        "flags": None if flags is None else dict(flags),
    }
    if is_disabled(mode):
        return DisabledSession(run_id, **fields)
    root, resumed = _resumed(runs_folder(runs_root), resume)
    session = Session(
        root,
        resumed or (None if run_id is None else str(run_id)),
        template=template,
        labels=labels,
        resume=resumed is not None,
        strict=strict,
        system_every=system_every,
        exact=exact,
        **fields,
    )
    session._watch_for_the_end()
    details: dict[str, Any] = {"schedule": schedule, "chosen": chosen, "cost": cost, "compare_to": compare_to}
    if session._started:
        session.resume(from_step, **details)
    else:
        session.run_start(arch, device=device, name=session.manifest.name, **details)
        session._last = {} if (step := whole_number(from_step)) is None else {"step": step}
    return session


def _resumed(root: Path, reference: str | None) -> tuple[Path, str | None]:
    """The folder a run to be resumed lies in, and its name; a name that fits no run is warned about."""
    if reference is None:
        return root, None
    from linnet.runs.run import RunError
    from linnet.runs.store import RunStore

    try:
        path = RunStore(root).find(str(reference)).path
    except RunError as error:
        log.warning("%s; this is a new run", error)
        return root, None
    return path.parent, path.name


def _goals(goals: Mapping[str, str]) -> dict[str, str]:
    words = {"min": "min", "minimize": "min", "max": "max", "maximize": "max"}
    for name, goal in goals.items():
        if goal not in words:
            log.warning("the goal %r of %s is not understood; say min or max", goal, name)
    return {str(name): words[goal] for name, goal in goals.items() if goal in words}


def _scalars_event(step: int, metrics: dict[str, Any]) -> dict[str, Any]:
    record = {"kind": "scalars", "t": 0.0, "step": step, "values": metrics}
    if "epoch" in metrics:
        record["epoch"] = metrics["epoch"]
        record["values"] = {name: value for name, value in metrics.items() if name != "epoch"}
    return record


def _are_finite_numbers(metrics: Mapping[str, Any]) -> bool:
    try:
        return bool(_LEAST < sum(metrics.values()) < _GREATEST)
    except Exception:
        return False


def _exit_reason(error: BaseException | None) -> tuple[str, str | None, int | None]:
    """Reason, error and exit code of a run by the exception that ended it: the last line of its message."""
    if error is None:
        return "completed", None, None
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", None, INTERRUPTED_EXIT_CODE
    code = whole_number(error.code) if isinstance(error, SystemExit) else None
    if isinstance(error, Terminated):
        return "interrupted", None, code
    if isinstance(error, SystemExit) and not error.code:
        return "completed", None, None
    last = (safe_text(error).strip().splitlines() or [""])[-1]
    return "errored", f"{type(error).__name__}: {last}" if last else type(error).__name__, code or 1


_terminated: Terminated | None = None


def _terminate(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = Terminated(128 + number)
    raise _terminated
