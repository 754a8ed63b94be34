"""Axes: from values to a share of the axis, linear, logarithmic or by category; with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from linnet.board.curve import Floats
from linnet.board.plot import Range, ticks
from linnet.board.words import compact, duration, moment, number

Tick = tuple[float, str]  # where on the axis, as the scale counts, and what stands there
_CLOCK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_DIGITS = (4, 6, 9, 12, 17)  # of numbers at ticks: as few as tell them apart
_COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))


@dataclass(frozen=True)
class Scale:
    """A stretch of an axis. `low`, `high` are as the scale counts: of a log scale the common logarithms.

    - `kind`: of the numbers: `number`, `count` (shown as 20k), `time` (seconds), `clock` (Unix times), `category`.
    - `categories`: the texts that the numbers 0, 1, 2 … stand for.
    """

    low: float
    high: float
    log: bool = False
    kind: str = "number"
    categories: tuple[str, ...] = ()

    def share(self, values: Floats) -> Floats:
        """Where on the axis values lie that are given as the scale counts: 0 at its beginning, 1 at its end."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((values / 2 - self.low / 2) / (self.high / 2 - self.low / 2))

    def counted(self, values: Floats) -> Floats:
        """Values as the scale counts them; NaN where it has no place for one."""
        if not self.log:
            return values
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log10(np.where(values > 0, values, np.nan)))

    def ticks(self, count: int) -> list[Tick]:
        """About `count` ticks, at round numbers."""
        count = max(2, count)
        if self.kind == "category":
            every = max(1, math.ceil(len(self.categories) / max(1, count)))
            return [(float(at), text) for at, text in enumerate(self.categories) if at % every == 0]
        if self.kind == "clock":
            return _clock_ticks(self.low, self.high, count)
        if self.log:
            return _log_ticks(self.low, self.high, count)
        unit = time_unit(self.high)[1] if self.kind == "time" else 1.0
        values = ticks(self.low / unit, self.high / unit, count)
        if len(values) < 3:
            values = ticks(self.low / unit, self.high / unit, count * 2)
        if self.kind == "time":
            return [(value * unit, text) for value, text in zip(values, tick_texts(values), strict=True)]
        return list(zip(values, tick_texts(values, self.kind), strict=True))


def with_room(span: Range, share: float = 0.04) -> Range:
    """A stretch with some room at either end."""
    low, high = span
    room = (high / 2 - low / 2) * 2 * share
    wider = low - room, high + room
    return wider if all(map(math.isfinite, wider)) else span


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which a stretch of time is told, and its seconds."""
    return next(unit for unit in reversed(_UNITS) if seconds >= 2 * unit[1] or unit[0] == "s")


def tick_texts(values: Sequence[float], kind: str = "number") -> list[str]:
    """Numbers beside each other, all with as many decimals as tell them apart."""
    if len(values) < 2:
        return [number(float(value)) for value in values]
    step, most = abs(values[1] - values[0]), max(abs(value) for value in values)
    if kind == "count" and most >= 10_000 and step >= 1:
        unit, letter = next((size, letter) for size, letter in _COUNTS if most >= size)
        in_units = tick_texts([value / unit for value in values])
        return [f"{text}{letter}" if value else "0" for text, value in zip(in_units, values, strict=True)]
    if step <= 0 or most >= 1e9 or step < 1e-5:
        texts = [[number(float(value) + 0.0, digits) for value in values] for digits in _DIGITS]
        return next((distinct for distinct in texts if len(set(distinct)) == len(distinct)), texts[-1])
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value + 0.0:,.{decimals}f}" if abs(value) > step / 1000 else f"{0:.{decimals}f}" for value in values]


def _log_ticks(low: float, high: float, count: int) -> list[Tick]:
    """Decades; with fewer than two in sight also 2 and 5, and in less than one, round numbers."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    decades = list(range(first, last + 1, max(1, math.ceil((last - first + 1) / (count + 1)))))
    crowded = 3 * (high - low) > 2 * count  # 1, 2 and 5 of each decade
    if len(decades) >= 3 or (crowded and len(decades) == 2):
        plain = decades[0] >= -3 and decades[-1] <= 4
        return [(float(power), number(10.0**power) if plain else f"1e{power}") for power in decades]
    inside = [
        (math.log10(factor) + power, factor * 10.0**power)
        for power in range(math.floor(low), math.ceil(high) + 1)
        for factor in (1, 2, 5)
        if abs(power) < 300
    ]
    inside = [(at, value) for at, value in inside if low - 1e-9 <= at <= high + 1e-9]
    if len(inside) < 3 and -300 < low <= high < 300:
        inside = [(math.log10(value), value) for value in ticks(10.0**low, 10.0**high, count) if value > 0]
    return [(at, number(float(value))) for at, value in inside]


def _clock_ticks(low: float, high: float, count: int) -> list[Tick]:
    rough = (high - low) / count
    step = next((step for step in _CLOCK_STEPS if step >= rough), math.ceil(rough / 86400) * 86400)
    layout = "%m-%d" if step >= 86400 else "%m-%d %H:%M" if high - low > 86400 else "%H:%M:%S" if step < 60 else "%H:%M"
    first = math.ceil(low / step)
    return [
        (float(at * step), moment(at * step, layout)) for at in range(first, first + count + 2) if at * step <= high
    ]


def x_text(value: float, axis: str, across: float) -> str:
    """A value of an x axis of runs, as one says it. `across`: how much of the axis is shown."""
    if axis == "relative time":
        return duration(value)
    if axis == "wall time":
        return moment(value, "%m-%d %H:%M" if across > 86_400 else "%H:%M:%S")
    if axis == "epoch":
        return number(float(value), 3)
    return compact(value) if axis == "tokens" or not abs(value) < 1e7 else number(round(value))
