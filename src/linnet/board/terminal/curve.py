"""`Curve`: one metric of one run, as columns that can be drawn; and what can be said of it in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linnet.runs import Series

Floats = NDArray[np.float64]

AXES = ("step", "tokens", "epoch", "wall time", "relative time")
SMOOTHING = (("off", 1.0), ("light", 0.5), ("medium", 0.3), ("heavy", 0.15))
_CHUNK = 64  # rows that are smoothed by one product


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
    """Columns, all equally long: `step`, `t` and `epoch` of a row, the `low`, `high` and `mean` of what it stands for.

    In a curve that is `exact` a row is a row of the run and the three are the same; else a row may stand for many.
    What is not finite is NaN. `last_value` is the run's last, finite or not.
    """

    name: str
    step: Floats
    t: Floats
    epoch: Floats
    low: Floats
    high: Floats
    mean: Floats
    stats: Stats
    exact: bool = True
    last_value: float = np.nan
    lower_is_better: bool = True

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of(cls, series: Series, rows: slice = slice(None), stats: Stats | None = None) -> Curve:
        """Every row of a series, or some of its `rows`. `stats`: those of the whole, where they are known."""
        value = series.value[rows]
        finite = np.isfinite(value)
        shown = value if finite.all() else np.where(finite, value, np.nan)
        return cls(
            name=series.name,
            step=series.step[rows].astype(np.float64),
            t=series.t[rows],
            epoch=series.epoch[rows],
            low=shown,
            high=shown,
            mean=shown,
            stats=stats or stats_of(series, np.isfinite(series.value)),
            last_value=float(value[-1]) if len(value) else np.nan,
            lower_is_better=series.lower_is_better,
        )

    def x(self, axis: str, created_at: float = 0.0, tokens: Curve | None = None) -> Floats | None:
        """Where each row stands on an axis; None when the run does not tell. `tokens`: those of each step."""
        if axis == "step":
            return self.step
        if axis == "relative time":
            return self.t
        if axis == "wall time":
            return self.t + created_at
        if axis == "epoch":
            return self.epoch if np.isfinite(self.epoch).any() else None
        if tokens is None or not len(tokens):
            return None
        return np.asarray(np.interp(self.step, tokens.step, _counted(tokens)))


def _counted(tokens: Curve) -> Floats:
    """Tokens seen by the end of each row's step."""
    rows = np.nan_to_num(tokens.mean, nan=0.0)
    if tokens.exact:
        return np.asarray(np.cumsum(rows))
    before = np.cumsum(rows[:-1] * np.diff(tokens.step).clip(0.0))  # a row that stands for many lasts until the next
    return np.asarray(np.concatenate([[0.0], before]) + rows)


def stats_of(series: Series, finite: NDArray[np.bool_]) -> Stats:
    """The numbers of a series, over every row."""
    value, step = series.value, series.step
    at = np.flatnonzero(finite)
    if not len(at):
        return Stats(len(value), len(value), None, None, None, _point(step, value, -1), None)
    held = value[at]
    low, high = at[int(np.argmin(held))], at[int(np.argmax(held))]
    best = (low if series.lower_is_better else high) if series.has_direction else None
    with np.errstate(over="ignore"):
        mean = float(np.mean(held))
        mean = mean if np.isfinite(mean) else float(np.mean(held / len(held)) * len(held))
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


def smooth(values: Floats, alpha: float) -> Floats:
    """The exponential mean over every row, beginning with the first value; rows that are NaN are passed over."""
    finite = np.isfinite(values)
    held = values[finite]
    if alpha >= 1.0 or len(held) < 2:
        return values
    out = np.full(len(values), np.nan)
    out[finite] = _exponential(held, alpha)
    return out


def _exponential(x: Floats, alpha: float) -> Floats:
    """y₀ = x₀, yᵢ = α xᵢ + (1 - α) yᵢ₋₁, in products of whole chunks instead of a loop over rows."""
    keep = 1.0 - alpha
    rows = -(-len(x) // _CHUNK)
    padded = np.zeros(rows * _CHUNK)
    scale = float(np.max(np.abs(x))) or 1.0
    padded[: len(x)] = x / scale  # so that no sum can overflow
    lag = np.subtract.outer(np.arange(_CHUNK), np.arange(_CHUNK))
    inside = np.where(lag >= 0, alpha * keep ** np.maximum(lag, 0), 0.0)
    y = padded.reshape(rows, _CHUNK) @ inside.T
    decay = keep ** np.arange(1, _CHUNK + 1)
    before = padded[0]  # as if the first value had stood there for ever
    for row in range(rows):
        y[row] += decay * before
        before = y[row, -1]
    return np.asarray(y.ravel()[: len(x)] * scale)
