"""`MetricFigures`: first, last, least and greatest value of a metric, and its value at a step, without its curve."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

from linnet.runs.metric_names import Goal

FigureRequest = Mapping[str, frozenset[int]]  # metrics, and the steps at which their values are wanted
Point = tuple[int, float]  # step, value


class MetricFigures(msgspec.Struct, array_like=True):
    """A metric in a few points, each step and value.

    - `low`, `high`: of the finite values, the first of equals.
    - `at`: by step, the last point at or before it.
    - `goal`: which way is better, where the stream itself declares it.
    """

    count: int = 0
    first: Point | None = None
    last: Point | None = None
    low: Point | None = None
    high: Point | None = None
    at: dict[int, Point | None] = {}
    goal: Goal | None = None

    def add(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Take points in the order of the stream."""
        if not values:
            return
        self.first = self.first or (steps[0], values[0])
        self.last = steps[-1], values[-1]
        self.count += len(values)
        if self.at:
            self._add_at(list(steps), values)
        if not math.isfinite(sum(values)):  # a NaN or an infinity, or a sum that is too large
            finite = [at for at, value in enumerate(values) if math.isfinite(value)]
            steps, values = [steps[at] for at in finite], [values[at] for at in finite]
        if values:
            low, high = min(values), max(values)
            if self.low is None or low < self.low[1]:
                self.low = steps[values.index(low)], low
            if self.high is None or high > self.high[1]:
                self.high = steps[values.index(high)], high

    def _add_at(self, steps: list[int], values: Sequence[float]) -> None:
        """The last points at or before the wanted steps; of equal steps the one logged last."""
        if steps != sorted(steps):
            order = sorted(range(len(steps)), key=steps.__getitem__)
            steps, values = [steps[at] for at in order], [values[at] for at in order]
        for step, known in self.at.items():
            at = bisect_right(steps, step) - 1
            if at >= 0 and (known is None or steps[at] >= known[0]):
                self.at[step] = steps[at], values[at]

    def add_sparse(self, steps: Sequence[int], values: Sequence[float | None]) -> None:
        """The same of points among which some are missing; where `at` is empty."""
        present = [value for value in values if value is not None]
        if not present:
            return
        if not math.isfinite(sum(present)):
            at = [index for index, value in enumerate(values) if value is not None]
            self.add([steps[index] for index in at], present)
            return
        low, high = min(present), max(present)
        self.count += len(present)
        self.first = self.first or next((steps[at], value) for at, value in enumerate(values) if value is not None)
        last = next(at for at in range(len(values) - 1, -1, -1) if values[at] is not None)
        self.last = steps[last], present[-1]
        if self.low is None or low < self.low[1]:
            self.low = steps[values.index(low)], low
        if self.high is None or high > self.high[1]:
            self.high = steps[values.index(high)], high
