"""`Curve`: one metric of one run, as columns that can be drawn; and what can be said of it in numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from linnet.runs import Series
from linnet.runs.metric_names import Goal

Floats = NDArray[np.float64]

AXES = ("step", "tokens", "epoch", "wall time", "relative time")
SMOOTHING = (("off", 1.0), ("light", 0.5), ("medium", 0.3), ("heavy", 0.15))
_WINDOWS = 5  # stretches of rows over which the mean goes that a curve has at least to be smoothed
_CHUNK = 32  # rows that are smoothed by one row of a matmul
_WHOLE = 40.0  # windows of the mean after which what is missing of its weights is less than 1e-17


@dataclass(frozen=True)
class Stats:
    """A metric in numbers. `best`: step and value, where one way is better; `empty`: rows that are not finite."""

    count: int
    empty: int
    low: tuple[int, float] | None
    high: tuple[int, float] | None
    mean: float | None
    last: tuple[int, float] | None
    best: tuple[int, float] | None


@dataclass
class Curve:
    """One metric of one run, reduced or not: the one form in which it goes to a chart, in a terminal or elsewhere.

    Columns, all equally long: `x` (where a row stands on the axis that is shown: its step, unless `on_axis` says
    otherwise), `step`, `t` and `epoch` of a row, the `low`, `high` and `mean` of what it stands for. In a curve that is
    `exact` a row is a row of the run and the three are the same; else a row may stand for many. What is not finite is
    NaN. `last_value` is the run's last, finite or not.
    """

    name: str
    x: Floats
    step: Floats
    t: Floats
    epoch: Floats
    low: Floats
    high: Floats
    mean: Floats
    stats: Stats
    exact: bool = True
    last_value: float = np.nan
    goal: Goal | None = None

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of(cls, series: Series, rows: slice = slice(None), stats: Stats | None = None) -> Curve:
        """Every row of a series, or some of its `rows`. `stats`: those of the whole, where they are known."""
        value = series.value[rows]
        finite = np.isfinite(value)
        shown = value if finite.all() else np.where(finite, value, np.nan)
        step = series.step[rows].astype(np.float64)
        return cls(
            name=series.name,
            x=step,
            step=step,
            t=series.t[rows],
            epoch=series.epoch[rows],
            low=shown,
            high=shown,
            mean=shown,
            stats=stats or stats_of(series, np.isfinite(series.value)),
            last_value=float(value[-1]) if len(value) else np.nan,
            goal=series.goal,
        )

    @classmethod
    def through(cls, x: Floats, y: Floats, name: str = "") -> Curve:
        """A line through points that are no rows of a run, such as a smoothed or a downsampled one."""
        shown, unknown = np.where(np.isfinite(y), y, np.nan), np.full(len(x), np.nan)
        stats = Stats(len(x), 0, None, None, None, None, None)
        return cls(
            name, x, x, unknown, unknown, shown, shown, shown, stats, last_value=float(y[-1]) if len(y) else np.nan
        )

    def on_axis(
        self, axis: str, created_at: float = 0.0, tokens: Curve | None = None, epochs: Curve | None = None
    ) -> Curve | None:
        """The same with `x` on an axis; None when the run does not tell it.

        - `tokens`: those of each step.
        - `epochs`: a curve whose rows tell their epoch, for one whose own do not, such as an evaluation.
        """
        if axis == "step":
            return replace(self, x=self.step)
        if axis == "relative time":
            return replace(self, x=self.t)
        if axis == "wall time":
            return replace(self, x=self.t + created_at)
        if axis == "epoch":
            if np.isfinite(self.epoch).any():
                return replace(self, x=self.epoch)
            known = np.isfinite(epochs.epoch) if epochs is not None else np.zeros(0, dtype=bool)
            if epochs is None or not known.any():
                return None
            return replace(self, x=np.asarray(np.interp(self.step, epochs.step[known], epochs.epoch[known])))
        if tokens is None or not len(tokens):
            return None
        if np.array_equal(self.step, tokens.step):  # logged together
            return replace(self, x=_counted(tokens))
        return replace(self, x=np.asarray(np.interp(self.step, tokens.step, _counted(tokens))))

    def nearest(self, x: float) -> int | None:
        """The row closest to `x` that has a value."""
        at = np.flatnonzero(np.isfinite(self.mean) & np.isfinite(self.x))
        return int(at[int(np.argmin(np.abs(self.x[at] - x)))]) if len(at) else None

    def best(self) -> tuple[float, float] | None:
        """x and value of the best row; None where no way is better, or it is not among these rows."""
        if self.stats.best is None:
            return None
        step, value = self.stats.best
        at = np.flatnonzero((self.low if self.goal == "min" else self.high) == value)
        if not len(at):
            return None
        return float(self.x[at[int(np.argmin(np.abs(self.step[at] - step)))]]), value


def _counted(tokens: Curve) -> Floats:
    """Tokens seen by the end of each row's step."""
    rows = np.nan_to_num(tokens.mean, nan=0.0)
    if tokens.exact:
        return np.asarray(np.cumsum(rows))
    before = np.cumsum(rows[:-1] * np.diff(tokens.step).clip(0.0))  # a row that stands for many lasts until the next
    return np.asarray(np.concatenate([[0.0], before]) + rows)


def logarithms(curve: Curve) -> Curve:
    """The same on a log scale: y is the common logarithm, and what is not above 0 is NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, mean = (np.log10(np.where(v > 0, v, np.nan)) for v in (curve.low, curve.high, curve.mean))
    return replace(curve, low=np.where(np.isnan(low), mean, low), high=high, mean=mean)


def stats_of(series: Series, finite: NDArray[np.bool_]) -> Stats:
    """The numbers of a series, over every row."""
    value, step = series.value, series.step
    at = np.flatnonzero(finite)
    if not len(at):
        return Stats(len(value), len(value), None, None, None, _point(step, value, -1), None)
    known = value[at]
    low, high = at[int(np.argmin(known))], at[int(np.argmax(known))]
    best = None if series.goal is None else low if series.goal == "min" else high
    with np.errstate(over="ignore"):
        mean = float(np.mean(known))
        mean = mean if np.isfinite(mean) else float(np.mean(known / len(known)) * len(known))
    return Stats(
        count=len(value),
        empty=len(value) - len(at),
        low=_point(step, value, low),
        high=_point(step, value, high),
        mean=mean,
        last=_point(step, value, -1),
        best=None if best is None else _point(step, value, best),
    )


def _point(step: NDArray[np.int64], value: Floats, at: int) -> tuple[int, float] | None:
    return (int(step[at]), float(value[at])) if len(value) else None


def is_smoothed(rows: int, alpha: float) -> bool:
    """Is a smoothed line drawn of so many rows? Of the few points of an evaluation it would only lag behind them."""
    return alpha < 1.0 and rows >= _WINDOWS * (2.0 - alpha) / alpha


def smooth(values: Floats, alpha: float) -> Floats:
    """The exponential moving average over every row, without bias to the first; rows that are NaN are passed over."""
    finite = np.isfinite(values)
    known = values if finite.all() else values[finite]
    if alpha >= 1.0 or len(known) < 2:
        return values
    if known is values:
        return _exponential(known, alpha)
    smoothed = np.full(len(values), np.nan)
    smoothed[finite] = _exponential(known, alpha)
    return smoothed


def smoothing_weights(rows: int, alpha: float) -> Floats:
    """The sum of the weights that the average of the first n rows has, for every n: what it is divided by."""
    return np.asarray(-np.expm1(np.arange(1, rows + 1) * np.log1p(-alpha)))


def _exponential(x: Floats, alpha: float) -> Floats:
    """yᵢ = Σⱼ (1 - α)ʲ xᵢ₋ⱼ / Σⱼ (1 - α)ʲ."""
    scale = float(np.max(np.abs(x))) or 1.0
    y = _decayed_sums(x / scale * alpha, 1.0 - alpha)  # divided, so that no sum can overflow
    biased = min(len(x), math.ceil(_WHOLE / alpha))  # beyond, the weights sum to 1 as far as a float can tell
    y[:biased] /= smoothing_weights(biased, alpha)
    return np.asarray(np.clip(y, -1.0, 1.0, out=y) * scale)


def _decayed_sums(x: Floats, keep: float) -> Floats:
    """yᵢ = xᵢ + keep · yᵢ₋₁, by a matmul over chunks; the ends of chunks are such sums themselves."""
    rows = -(-len(x) // _CHUNK)
    padded = np.zeros(rows * _CHUNK)
    padded[: len(x)] = x
    lag = np.subtract.outer(np.arange(_CHUNK), np.arange(_CHUNK))
    inside = np.where(lag >= 0, keep ** np.maximum(lag, 0), 0.0)
    y = padded.reshape(rows, _CHUNK) @ inside.T
    if rows > 1:
        ends = _decayed_sums(y[:, -1].copy(), keep**_CHUNK)
        y[1:] += ends[:-1, None] * keep ** np.arange(1, _CHUNK + 1)
    return y.ravel()[: len(x)]
