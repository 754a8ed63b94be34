"""`LossHistory`: the loss of a run by the tokens or images it was trained on, so that runs of other batches compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from linnet.errors import LinnetError
from linnet.runs.family import ancestors
from linnet.runs.metric_names import LOSSES

if TYPE_CHECKING:
    from linnet.runs.metrics import Metrics
    from linnet.runs.run import Run

UNITS = ("tokens", "images")  # metrics of a step that say how much it was trained on
_HELD_OUT = ("validation/loss", "validation/samples")
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LossHistory:
    """The training loss of each step and the held-out loss of each evaluation, on the axis `work`.

    - `unit`: what work is counted in: `tokens`, `images`, or `steps` of a run that logs neither.
    - `begin`: the work before the first step; `work`, `loss`: after each step, and its mean loss, or NaN.
    - `evaluations`: rows of step, work, held-out loss, and how much was scored (NaN: not known).
    """

    unit: str
    begin: float
    step: NDArray[np.int64]
    work: _Floats
    loss: _Floats
    evaluations: _Floats

    @classmethod
    def of(cls, run: Run, metrics: Metrics | None = None) -> LossHistory:
        """That of a run as it stands; a fork's begins with its ancestors', as far as they are still there.

        `metrics`: those of the run, where they are read already.
        """
        metrics = run.metrics() if metrics is None else metrics
        parts = [part for part in _parts(run, metrics) if _loss_name(part[0]) is not None]
        unit = next((unit for unit in UNITS if any(unit in part[0] for part in parts)), "steps")
        pieces = [_steps(*part, unit) for part in parts]
        step = np.concatenate([np.empty(0, np.int64), *(piece[0] for piece in pieces)])
        loss, amount = (np.concatenate([np.empty(0), *(piece[column] for piece in pieces)]) for column in (1, 2))
        if not len(step):
            return cls(unit, 0.0, step, loss, loss, np.empty((0, 4)))
        first = int(step[0]) - 1
        begin = float(amount[0]) * first  # steps before the first known one were probably like it
        work = begin + np.cumsum(amount * np.diff(step, prepend=first))
        history = cls(unit, begin, step, work, loss, np.empty((0, 4)))
        return replace(history, evaluations=np.concatenate([_evaluations(*part, history) for part in parts]))

    def __len__(self) -> int:
        return len(self.step)

    @property
    def end(self) -> float:
        """The work after the last step."""
        return float(self.work[-1]) if len(self.work) else self.begin

    def in_steps(self) -> LossHistory:
        """The same with steps as its work, for a comparison with a run that logs nothing else."""
        evaluations = self.evaluations.copy()
        evaluations[:, 1] = evaluations[:, 0]
        work = self.step.astype(np.float64)
        return replace(self, unit="steps", begin=self.begin_step, work=work, evaluations=evaluations)

    @property
    def begin_step(self) -> float:
        """The step before the first one."""
        return float(self.step[0] - 1) if len(self.step) else 0.0

    def window(self, end: float, steps: int) -> float | None:
        """Where the last `steps` steps up to `end` begin; None where there is no step yet."""
        at = int(np.searchsorted(self.work, end * (1 + 1e-12), "right"))
        if at == 0:
            return None
        return float(self._edges[max(0, at - steps)])

    def mean(self, begin: float, end: float) -> float | None:
        """The mean training loss between two amounts of work, by the token; None where that was not trained, or NaN.

        A step that lies in it in part counts for that part.
        """
        slack = 1e-9 * max(1.0, end)
        if not len(self.work) or begin < self.begin - slack or end > self.end + slack or end <= begin:
            return None
        ends = np.array([begin, end])
        total, counted = (np.diff(np.interp(ends, self._edges, area))[0] for area in self._areas)
        return float(total / counted) if counted > 0.5 * (end - begin) else None

    def held_out(self, at: float, samples: float | None) -> float | None:
        """The held-out loss at an amount of work, between the evaluations before and after it if need be.

        `samples`: only of evaluations that scored as much, since of another part of the text it is another loss.
        """
        rows = self.evaluations
        if samples is not None:
            rows = rows[rows[:, 3] == samples]
        work, loss = rows[:, 1], rows[:, 2]
        slack = 1e-9 * max(1.0, at)
        if not len(rows) or work[0] <= 0 or at < work[0] - slack or at > work[-1] + slack:
            return None
        return float(np.interp(math.log(at), np.log(work), loss))  # losses fall about evenly by the log of tokens

    @cached_property
    def _edges(self) -> _Floats:
        return np.concatenate([[self.begin], self.work])

    @cached_property
    def _areas(self) -> tuple[_Floats, _Floats]:
        """The integral of the loss over the work, and of the work that has one."""
        amount, finite = np.diff(self._edges), np.isfinite(self.loss)
        total = np.cumsum(np.where(finite, self.loss, 0.0) * amount)
        return np.concatenate([[0.0], total]), np.concatenate([[0.0], np.cumsum(finite * amount)])


def _parts(run: Run, metrics: Metrics) -> Iterator[tuple[Metrics, int, float]]:
    """The metrics of a run's ancestors and its own, the oldest first, each with the steps that it has of the whole."""
    line = ancestors(run)
    begins = [*(ancestor.until for ancestor in line[1:]), -1][: len(line)]
    for ancestor, begin in reversed(list(zip(line, begins, strict=True))):
        try:
            yield ancestor.run.metrics(), begin, ancestor.until
        except (LinnetError, OSError):  # it went away meanwhile
            continue
    yield metrics, line[0].until if line else -1, math.inf


def _loss_name(metrics: Metrics) -> str | None:
    return next((name for name in LOSSES if name in metrics), None)


def _steps(metrics: Metrics, begin: int, until: float, unit: str) -> tuple[NDArray[np.int64], _Floats, _Floats]:
    """Number and loss of the steps after `begin`, and how much work each is."""
    series = metrics[_loss_name(metrics) or "loss"]
    own = np.flatnonzero((series.step > begin) & (series.step <= until))
    own = own[np.argsort(series.step[own], kind="stable")]
    last = np.diff(series.step[own], append=np.iinfo(np.int64).max) > 0  # a step that was logged twice counts once
    step, loss = series.step[own[last]], series.value[own[last]]
    amounts = metrics.get(unit)
    if amounts is None or not len(amounts):
        return step, loss, np.ones(len(step))
    at = np.clip(np.searchsorted(amounts.step, step), 0, len(amounts) - 1)
    return step, loss, np.nan_to_num(amounts.value[at])


def _evaluations(metrics: Metrics, begin: int, until: float, history: LossHistory) -> _Floats:
    """Rows of step, work, held-out loss and how much was scored."""
    series, scored = metrics.get(_HELD_OUT[0]), metrics.get(_HELD_OUT[1])
    if series is None or not len(history):
        return np.empty((0, 4))
    own = (series.step > begin) & (series.step <= until) & np.isfinite(series.value)
    step, loss = series.step[own], series.value[own]
    work = np.interp(step, [history.begin_step, *history.step.tolist()], history._edges)
    samples = np.full(len(step), np.nan)
    if scored is not None and len(scored):
        at = np.clip(np.searchsorted(scored.step, step), 0, len(scored) - 1)
        samples = np.where(scored.step[at] == step, scored.value[at], np.nan)
    return np.stack([step, work, loss, samples], axis=1)
