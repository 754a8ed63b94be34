"""Columns of numbers that grow: one table for the metrics that are logged together, one series for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linnet.runs.metric_names import Goal

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Table:
    """Rows that carry the same metrics. Columns: `line` (place in the stream), `step`, `t`, `epoch`, one a metric."""

    def __init__(self, names: tuple[str, ...], columns: Mapping[str, NDArray[Any]] | None = None) -> None:
        self.names = names
        self._places = {key: place for place, key in enumerate(self.column_names())}
        self._columns: list[NDArray[Any]] = (
            [columns[key] for key in self.column_names()]
            if columns is not None
            else [np.empty(0, dtype=np.int64 if key in _INTEGERS else np.float64) for key in self.column_names()]
        )
        self.rows = len(self._columns[0])
        self._in_order = True

    def column_names(self) -> list[str]:
        """Names of all columns; a metric's is marked, so that one called `step` is no trouble."""
        return ["line", "step", "t", "epoch", *(f"={name}" for name in self.names)]

    def extend(self, columns: Sequence[NDArray[Any] | Sequence[float]]) -> None:
        """Add rows, given as columns in the order of `column_names`."""
        count = len(columns[0])
        self._reserve(self.rows + count)
        for mine, theirs in zip(self._columns, columns, strict=True):
            mine[self.rows : self.rows + count] = theirs
        fresh = self._columns[0][max(0, self.rows - 1) : self.rows + count]
        self._in_order = self._in_order and bool(np.all(fresh[1:] > fresh[:-1]))
        self.rows += count

    def column(self, key: str) -> NDArray[Any]:
        """One column, without a copy."""
        return self._columns[self._places[key]][: self.rows]

    def settle(self) -> None:
        """Put the rows into the order of the stream, where they came otherwise."""
        if not self._in_order:
            order = np.argsort(self.column("line"), kind="stable")
            self._columns = [column[: self.rows][order] for column in self._columns]
            self._in_order = True

    def keep_to(self, step: int) -> int:
        """Drop the rows beyond `step`; how many there were."""
        stay = self.column("step") <= step
        dropped = self.rows - int(np.count_nonzero(stay))
        if dropped:
            self._columns = [column[: self.rows][stay] for column in self._columns]
            self.rows -= dropped
        return dropped

    def _reserve(self, rows: int) -> None:
        """Room for `rows`, growing by half each time, so that adding stays cheap however long the run."""
        if rows <= len(self._columns[0]):
            return
        room = max(rows, len(self._columns[0]) * 3 // 2, 64)
        for index, old in enumerate(self._columns):
            new = np.empty(room, dtype=old.dtype)
            new[: self.rows] = old[: self.rows]
            self._columns[index] = new


_INTEGERS = ("line", "step")


class Series:
    """One metric through time: `step`, `t` (seconds), `value`, `epoch` (NaN where there is none), all equally long.

    `goal`: `min` or `max`, as it was declared or as the name says; None where no way is known to be better.
    """

    def __init__(self, name: str, parts: Sequence[Table], goal: Goal | None) -> None:
        self.name = name
        self.goal = goal
        keys = ("step", "t", f"={name}", "epoch")
        if len(parts) == 1:
            step, t, value, epoch = (parts[0].column(key) for key in keys)
        else:  # logged beside different companions: put back into the order of the stream
            order = np.argsort(np.concatenate([part.column("line") for part in parts]), kind="stable")
            step, t, value, epoch = (np.concatenate([part.column(key) for part in parts])[order] for key in keys)
        self.step: Integers = step
        self.t: Floats = t
        self.value: Floats = value
        self.epoch: Floats = epoch

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        latest = f", latest {self.latest[1]:.6g} at step {self.latest[0]}" if self.latest else ""
        return f"<Series {self.name}: {len(self)} point{'' if len(self) == 1 else 's'}{latest}>"

    @property
    def latest(self) -> tuple[int, float] | None:
        """Step and value of the last row."""
        return (int(self.step[-1]), float(self.value[-1])) if len(self) else None

    @property
    def lower_is_better(self) -> bool:
        """The goal is the least value."""
        return self.goal == "min"

    @property
    def has_direction(self) -> bool:
        """One way is known to be better."""
        return self.goal is not None

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and value of the best finite row, the first of equals; None where no way is known to be better."""
        return None if self.goal is None else self.best_by(self.goal)

    def best_by(self, goal: Goal) -> tuple[int, float] | None:
        """Step and value of the least (`min`) or greatest (`max`) finite row, the first of equals."""
        finite = np.flatnonzero(np.isfinite(self.value))
        if not len(finite):
            return None
        values = self.value[finite]
        at = finite[int(np.argmin(values) if goal == "min" else np.argmax(values))]
        return int(self.step[at]), float(self.value[at])

    def downsample(self, points: int) -> tuple[Integers, Floats]:
        """At most about `points` finite rows that show the same curve: the least and the greatest of each stretch.

        A spike of a single step is therefore never smoothed away.
        """
        at = self.downsample_rows(points)
        return self.step[at], self.value[at]

    def downsample_rows(self, points: int) -> Integers:
        """Row numbers of the same choice."""
        finite = np.isfinite(self.value)
        whole = bool(finite.all())
        values = self.value if whole else self.value[finite]
        points = max(4, points // 2 * 2)
        if len(values) <= points:
            chosen = np.arange(len(values), dtype=np.int64)
        else:
            from tsdownsample import MinMaxDownsampler

            found = MinMaxDownsampler().downsample(np.ascontiguousarray(values), n_out=points - 2)
            ends = np.array([0, len(values) - 1], dtype=np.int64)
            chosen = np.unique(np.concatenate([found.astype(np.int64), ends]))
        return chosen if whole else np.flatnonzero(finite)[chosen]
