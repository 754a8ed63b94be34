"""`linnet.start`: the friendly front of a run being written, for anybody's training loop."""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Any, Self

from linnet.runs import ids
from linnet.runs.bundle import RunBundle
from linnet.runs.encode import spell_record

SYSTEM_SECONDS = 5.0
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
    _old_handler: Any = None

    def log(self, step: int, metrics: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        """Log metrics of one step: `run.log(step, loss=…, lr=…)` or `run.log(step, {"train/acc": …})`.

        On the disk when it returns. With a `loss` it is the step's own event, else one of the user's scalars. Python
        numbers, numpy scalars and tensors are taken as they are.
        """
        if metrics is not None:
            values = {**metrics, **values}
        try:
            plain = _LEAST < sum(values.values()) < _GREATEST  # false for NaN too: one cheap test for all of them
        except Exception:  # a text, an array, a tensor on its way out: the careful spelling knows them all
            plain = False
        record: dict[str, Any]
        if "loss" in values:
            record = {"kind": "step", "phase": "train", "t": 0.0, "step": step, **values}
            if len(record) != len(values) + _OWN_FIELDS:
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
        atexit.unregister(self._at_exit)
        self.run_end(self._last.get("step"), self._last_loss.get("loss"), reason, quality_gate=self._gate, error=error)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            old = signal.getsignal(signal.SIGTERM)
            if old is signal.SIG_DFL:  # a handler of the user's own stays
                signal.signal(signal.SIGTERM, _terminate)
                self._old_handler = old
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)
        self.finish(*_why(error))

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.finish(*_why(getattr(sys, "last_value", None)))


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
    tags: list[str] | tuple[str, ...] = (),
    config: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    total_steps: int | None = None,
    total_epochs: int | None = None,
    goals: Mapping[str, str] | None = None,
    device: str | None = None,
    resume: str | None = None,
    from_step: int | None = None,
    system_every: float = SYSTEM_SECONDS,
) -> Session:
    """Start a run and return it; its folder, `run.json` and `run_start` are there when this returns.

    - `runs_root`: the folder of runs; None: `$LINNET_RUNS`, else `./runs`.
    - `run_id`: a name for the folder; None: made from `template` (`{arch}-{date}-{seq}`).
    - `config`: hyper-parameters, any JSON; `model`: the model's shape.
    - `goals`: which way is better, `{"accuracy": "max"}`; a metric not named is better low iff its name has
      `loss`, `error` or `ppl` in it.
    - `resume`: id of a run to go on with, from `from_step`.
    - `system_every`: seconds between two readings of the machine's figures; 0 for none.
    """
    labels = {"arch": arch, "recipe": recipe or "", "experiment": experiment or ""}
    session = Session(
        ids.runs_root(runs_root),
        resume or run_id,
        template=template,
        labels=labels,
        resume=resume is not None,
        system_every=system_every,
        name=name,
        experiment=experiment,
        group=group,
        parent=parent,
        recipe=recipe,
        tags=[str(tag) for tag in tags],
        total_steps=total_steps,
        total_epochs=total_epochs,
        goals={k: v for k, v in (goals or {}).items() if v in ("min", "max")},
        model=dict(model or {}),
        config=dict(config or {}),
    )
    if resume is None:
        session.run_start(arch, device=device, name=name)
    else:
        session.resume(from_step or 0)
    atexit.register(session._at_exit)
    return session


def _without_collision(step: int, values: dict[str, Any]) -> dict[str, Any]:
    """Metrics whose names are those of the event's own fields go under `values`."""
    own = ("kind", "phase", "t", "step", "schema", "nonfinite", "values")
    apart = {name: value for name, value in values.items() if name in own}
    rest = {name: value for name, value in values.items() if name not in own}
    return {"kind": "step", "phase": "train", "t": 0.0, "step": step, **rest, "values": apart}


def _why(error: BaseException | None) -> tuple[str, str | None]:
    """The reason a block was left, and the last line of the exception if it was one."""
    if error is None:
        return "completed", None
    if isinstance(error, KeyboardInterrupt | Terminated):
        return "interrupted", None
    if isinstance(error, SystemExit) and not error.code:
        return "completed", None
    return "errored", traceback.format_exception_only(error)[-1].strip()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(128 + number)
