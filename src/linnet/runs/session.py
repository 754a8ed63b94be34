"""`linnet.start`: the friendly front of a run being written, for anybody's training loop."""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from linnet.runs import ids
from linnet.runs.bundle import RunBundle
from linnet.runs.encode import encode_lines, spell_record

SYSTEM_SECONDS = 5.0
_now, _write = time.monotonic_ns, os.write
_LEAST, _GREATEST = -math.inf, math.inf
_OWN_FIELDS = 4  # kind, phase, t, step: what log() itself puts into a step event

log = logging.getLogger("linnet")


class Terminated(SystemExit):
    """SIGTERM, turned into an exit that lets the run end properly."""


class Session(RunBundle):
    """A run that looks after itself: it has started, records the machine's figures, and ends with the true reason.

    Made by `linnet.start`. Use it in a `with` block; without one it ends when the interpreter does.
    """

    _last: dict[str, Any] = {}  # noqa: RUF012 - what was logged last
    _last_loss: dict[str, Any] = {}  # noqa: RUF012 - and the last of it with a loss; both are replaced whole, never changed
    _gate: Mapping[str, Any] | None = None
    _own_model: Any = None
    _caught_signal = False
    _error_before: BaseException | None = None

    def log(self, step: int, metrics: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        """Log metrics of one step: `run.log(step, loss=…, lr=…)` or `run.log(step, {"train/acc": …})`.

        On the disk when it returns. With a `loss` it is the step's own event, else one of the user's scalars. Python
        numbers, numpy scalars and tensors are taken as they are.
        """
        try:
            if metrics is not None:
                values = {**metrics, **values}
            try:
                plain = _LEAST < sum(values.values()) < _GREATEST  # false for NaN too: one cheap test for all of them
            except Exception:  # a text, an array, a tensor on its way out: the careful spelling knows them all
                plain = False
            if plain and "loss" in values and not self._ended:
                sink = self._sink
                with sink.lock:  # Sink.append written out: the call would be a twentieth of the cost of a step
                    t = (_now() - sink.origin) / 1e9
                    record = {"kind": "step", "phase": "train", "t": t, "step": step, **values}
                    if len(record) == len(values) + _OWN_FIELDS:
                        line = encode_lines([record])
                        try:
                            written = _write(sink.out, line)
                        except OSError:
                            pass  # held or refused: the careful way knows what to do
                        else:
                            if written != len(line):
                                sink.tear(line, written)
                            self._last = self._last_loss = record
                            return
            self._log_with_care(step, values, plain)
        except Exception as error:
            self._complain("log()", error)

    def checkpoint(
        self, model: Any, /, step: int, loss: Any = None, *, tokenizer: Any = None, type: str = "f32", **more: Any
    ) -> Path | None:
        """Write `weights/step_<N>.gguf`, which llama.cpp runs, and let `latest` mean it; the file's path comes back.

        - `model`: one of `linnet.models`, or a Llama or GPT-2 of `transformers`. A path says that the file is there.
        - `tokenizer`: one of `tokenizers` or of `transformers`, or the path of a GGUF to take it from.
        - `type`: f32, f16, bf16 or q8_0.

        Whatever goes wrong is a warning, and None comes back: training goes on.
        """
        if isinstance(model, str | os.PathLike):
            return super().checkpoint(model, step, loss, **more)
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
            log.warning("run %s: checkpoint of step %s was not written: %s", self.run_id, step, error)
            return None
        return super().checkpoint(path, step, loss, **more)

    def _log_with_care(self, step: int, values: dict[str, Any], plain: bool) -> None:
        """Scalars without a loss, values that are not plain finite numbers, names that collide, a disk that refuses."""
        record: dict[str, Any]
        if "loss" in values:
            record = _without_collision(step, values)
            self._last_loss = record
        else:
            record = {"kind": "scalars", "t": 0.0, "step": step, "values": values}
            if "epoch" in values:
                record["epoch"] = values.pop("epoch")
        self._last = record
        self._append(record if plain else spell_record(record))

    def gate(self, metric: str, value: float, threshold: float, passed: bool) -> None:
        """Set the verdict that `run_end` will carry: did the run reach what was asked of it?"""
        self._gate = {"passed": bool(passed), "metric": metric, "value": value, "threshold": threshold}

    def finish(self, reason: str = "completed", error: str | None = None) -> None:
        """End the run. A `with` block does this by itself."""
        self.run_end(self._last.get("step"), self._last_loss.get("loss"), reason, quality_gate=self._gate, error=error)
        if self._caught_signal:
            self._caught_signal = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        atexit.unregister(self._at_exit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(*_why(error))

    def _watch_for_the_end(self) -> None:
        """Be told of SIGTERM, unless the program has a handler of its own, and of the interpreter's end."""
        self._error_before = getattr(sys, "last_value", None)
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
            self._caught_signal = True
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        """Nobody ended the run: say why the interpreter ends. Python does not tell of a plain `sys.exit`."""
        if os.getpid() != self._pid or self._ended:
            return
        error = getattr(sys, "last_value", None)
        if _terminated:
            self.finish("interrupted")
        else:
            self.finish(*_why(None if error is self._error_before else error))


def start(
    runs_root: str | os.PathLike[str] | None = None,
    *,
    arch: str = "run",
    run_id: str | None = None,
    template: str = ids.TEMPLATE,
    recipe: str | None = None,
    experiment: str | None = None,
    name: str | None = None,
    group: str | None = None,
    parent: str | None = None,
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
    resume: str | None = None,
    from_step: int | None = None,
    system_every: float = SYSTEM_SECONDS,
) -> Session:
    """Start a run and return it; its folder, `run.json` and `run_start` are there when this returns.

    - `runs_root`: the folder of runs; None: `$LINNET_RUNS`, else `./runs`.
    - `run_id`: a name for the folder; None: made from `template` (`{arch}-{date}-{seq}`).
    - `config`: hyper-parameters, as a mapping, a dataclass or argparse's result; `model`: the model's shape.
    - `goals`: which way is better, `{"accuracy": "max"}`; a metric not named is better low iff its name has
      `loss`, `error` or `ppl` in it.
    - `schedule` (`lr_max`, `lr_min`, `warmup`, `n_steps` …), `chosen` (what `auto` became: dtype, threads …),
      `cost` (`total_params`, `flops_per_token` …) and `compare_to` (a baseline's id) go into `run_start`; of a resumed
      run into `resume`.
    - `resume`: a run to go on with, from `from_step`; when there is none, a new one is started, with a warning.
    - `system_every`: seconds between two readings of the machine's figures; 0 for none.
    """
    arch = str(arch or "run")
    labels = {"arch": arch, "recipe": recipe or "", "experiment": experiment or ""}
    root, resumed = _resumed(ids.runs_root(runs_root), resume)
    session = Session(
        root,
        resumed or (None if run_id is None else str(run_id)),
        template=template,
        labels=labels,
        resume=resumed is not None,
        system_every=system_every,
        name=name,
        experiment=experiment,
        group=group,
        parent=parent,
        recipe=recipe,
        tags=[tags] if isinstance(tags, str) else [str(tag) for tag in tags],
        total_steps=total_steps,
        total_epochs=total_epochs,
        goals=_goals(goals or {}),
        model=_fields(model),
        config=_fields(config),
    )
    session._watch_for_the_end()
    details = {"schedule": schedule, "chosen": chosen, "cost": cost, "compare_to": compare_to}
    if session._started:
        session.resume(from_step, **details)
    else:
        session.run_start(arch, device=device, name=name, **details)
    return session


def _resumed(root: Path, reference: str | None) -> tuple[Path, str | None]:
    """The folder a run to be resumed lies in, and its name; a name that fits no run is warned about."""
    if reference is None:
        return root, None
    from linnet.runs.run import RunError
    from linnet.runs.store import RunStore

    try:
        found = RunStore(root).find(str(reference))
    except RunError as error:
        log.warning("%s; this is a new run", error)
        return root, None
    return found.path.parent, found.path.name


def _fields(given: object) -> dict[str, Any]:
    """Settings in whatever form a program has them: a mapping, a dataclass, the result of argparse."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if dataclasses.is_dataclass(given):
        return {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    try:
        return dict(vars(given))
    except TypeError:
        log.warning("a config of type %s is not understood and left out", type(given).__name__)
        return {}


def _goals(given: Mapping[str, str]) -> dict[str, str]:
    words = {"min": "min", "minimize": "min", "max": "max", "maximize": "max"}
    for name, goal in given.items():
        if goal not in words:
            log.warning("the goal %r of %s is not understood; say min or max", goal, name)
    return {str(name): words[goal] for name, goal in given.items() if goal in words}


def _without_collision(step: int, values: dict[str, Any]) -> dict[str, Any]:
    """A step's event; metrics whose names are those of its own fields go under `values`."""
    own = ("kind", "phase", "t", "step", "nonfinite")
    apart = {name: value for name, value in values.items() if name in own}
    rest = {name: value for name, value in values.items() if name not in own}
    record = {"kind": "step", "phase": "train", "t": 0.0, "step": step, **rest}
    return {**record, "values": apart} if apart else record


def _why(error: BaseException | None) -> tuple[str, str | None]:
    """The reason a block was left, and the last line of the exception if it was one."""
    if error is None:
        return "completed", None
    if isinstance(error, KeyboardInterrupt | Terminated):
        return "interrupted", None
    if isinstance(error, SystemExit) and not error.code:
        return "completed", None
    last = (str(error).strip().splitlines() or [""])[-1]
    return "errored", f"{type(error).__name__}: {last}" if last else type(error).__name__


_terminated = False


def _terminate(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    raise Terminated(128 + number)
