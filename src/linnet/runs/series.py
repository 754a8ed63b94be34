"""Columns of numbers that grow: one table for the metrics that are logged together, one series for each metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.display import Shown, one_line, sparkline
from linnet.runs.metric_names import Goal

if TYPE_CHECKING:
    from linnet.runs.cache import StoredRows

_T = TypeVar("_T")
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Point = tuple[float, int, int]  # value, step, line

_PIECE_ROWS = 1 << 17
_INTEGERS = ("line", "step")


class StoredRowsError(Exception):
    """Rows on disk are not those that were put there."""


class Extremes(msgspec.Struct, frozen=True):
    """Minimum and maximum of a metric's finite values, the first of equals, and its last value of all."""

    low: Point | None
    high: Point | None
    last: Point | None

    @staticmethod
    def of(lines: Integers, steps: Integers, values: Floats) -> Extremes:
        """From columns in the order of the stream."""

        def point(at: int) -> Point:
            return float(values[at]), int(steps[at]), int(lines[at])

        if not len(values):
            return Extremes(None, None, None)
        finite = np.isfinite(values)
        if not finite.any():
            return Extremes(None, None, point(-1))
        all_finite = bool(finite.all())
        low = int(np.argmin(values if all_finite else np.where(finite, values, np.inf)))
        high = int(np.argmax(values if all_finite else np.where(finite, values, -np.inf)))
        return Extremes(point(low), point(high), point(-1))

    @staticmethod
    def join(parts: Sequence[Extremes]) -> Extremes:
        """Those of several sets of rows."""
        return Extremes(
            min((part.low for part in parts if part.low), key=lambda point: (point[0], point[2]), default=None),
            min((part.high for part in parts if part.high), key=lambda point: (-point[0], point[2]), default=None),
            max((part.last for part in parts if part.last), key=lambda point: point[2], default=None),
        )


class Rows:
    """A snapshot of rows with the same metrics: those on disk, if any, and behind them those in memory.

    Columns: `line` (number in the stream), `step`, `t`, `epoch`, one a metric.
    """

    def __init__(self, names: tuple[str, ...], stored: StoredRows | None, columns: list[NDArray[Any]]) -> None:
        self.names = names
        self.stored = stored
        self._columns = columns
        self._index = {key: index for index, key in enumerate(self.column_names())}

    @staticmethod
    def keys(names: Sequence[str]) -> list[str]:
        """Names of all columns; a metric's is marked, so that one called `step` is no trouble."""
        return ["line", "step", "t", "epoch", *(f"={name}" for name in names)]

    @property
    def rows(self) -> int:
        """How many there are."""
        return (self.stored.rows if self.stored is not None else 0) + len(self.recent("line"))

    def column_names(self) -> list[str]:
        """Names of all columns, in order."""
        return self.keys(self.names)

    def recent(self, key: str) -> NDArray[Any]:
        """One column of the rows in memory, without a copy."""
        return self._columns[self._index[key]]

    def column(self, key: str) -> NDArray[Any]:
        """One column; without a copy where all rows are in one place."""
        recent = self.recent(key)
        if self.stored is None:
            return recent
        return np.concatenate([self.stored.column(key), recent]) if len(recent) else self.stored.column(key)

    def pick(self, key: str, rows: Integers) -> NDArray[Any]:
        """Some rows of a column; no more of it is loaded than is needed."""
        if self.stored is None or len(self.recent(key)):
            return self.column(key)[rows]
        return self.stored.pick(key, rows)

    def arrays(self, key: str) -> Iterator[NDArray[Any]]:
        """One column as the arrays it lies in, without a copy where that can be."""
        if self.stored is not None:
            yield from self.stored.arrays(key)
        if self.stored is None or len(self.recent(key)):
            yield self.recent(key)

    def extremes(self, name: str) -> Extremes:
        """Minimum, maximum and last value of a metric."""
        recent = Extremes.of(self.recent("line"), self.recent("step"), self.recent(f"={name}"))
        return recent if self.stored is None else Extremes.join([self.stored.extremes[name], recent])

    def pieces(self, begin: int = 0) -> Iterator[list[NDArray[Any]]]:
        """All columns from row `begin` on, so many rows at a time that the memory for them stays small."""
        stored = self.stored.rows if self.stored is not None else 0
        if self.stored is not None and begin < stored:
            columns = [self.stored.column(key) for key in self.column_names()]
            for at in range(begin, stored, _PIECE_ROWS):
                yield [column[at : at + _PIECE_ROWS] for column in columns]
        columns = [self.recent(key) for key in self.column_names()]
        for at in range(max(0, begin - stored), len(columns[0]), _PIECE_ROWS):
            yield [column[at : at + _PIECE_ROWS] for column in columns]


class Table(Rows):
    """Rows that grow. Those in memory can be moved to disk, where they stay in the order in which they came."""

    def __init__(self, names: tuple[str, ...], stored: StoredRows | None = None) -> None:
        super().__init__(names, stored, [np.empty(0, dtype=column_type(key)) for key in Rows.keys(names)])
        self._used = 0  # rows in memory; the columns have room for some to come
        self._in_order = True

    def recent(self, key: str) -> NDArray[Any]:
        """One column of the rows in memory, as they stand."""
        return super().recent(key)[: self._used]

    @property
    def memory(self) -> int:
        """Bytes of the rows in memory."""
        return self._used * 8 * len(self._columns)

    def now(self) -> Rows:
        """The rows as they stand; what is done to the table later does not change them."""
        return Rows(self.names, self.stored, [column[: self._used] for column in self._columns])

    def extend(self, columns: Sequence[NDArray[Any] | Sequence[float]]) -> None:
        """Add rows, given as columns in the order of `column_names`."""
        count = len(columns[0])
        self._reserve(self._used + count)
        for mine, theirs in zip(self._columns, columns, strict=True):
            mine[self._used : self._used + count] = theirs
        fresh = self._columns[0][max(0, self._used - 1) : self._used + count]
        self._in_order = self._in_order and bool(np.all(fresh[1:] > fresh[:-1]))
        self._used += count

    def settle(self) -> None:
        """Put the rows into the order of the stream, where they came otherwise."""
        if not self._in_order:
            order = np.argsort(self._columns[0][: self._used], kind="stable")
            self._columns = [column[: self._used][order] for column in self._columns]
            self._in_order = True

    def keep_to(self, step: int) -> None:
        """Drop the rows beyond `step`."""
        if self.stored is not None and np.any(self.stored.column("step") > step):
            rows = self.now()
            self._columns, self._used = [rows.column(key) for key in rows.column_names()], rows.rows
            self.stored = None
        stay = self._columns[1][: self._used] <= step
        if not stay.all():
            self._columns = [column[: self._used][stay] for column in self._columns]
            self._used = len(self._columns[0])

    def move_older(self, put: Callable[[Rows], StoredRows]) -> None:
        """Have the older rows of those in memory `put` behind those on disk; a resume mostly undoes recent ones."""
        moved = self._used * 3 // 4
        if not moved:
            return
        self.stored = put(Rows(self.names, self.stored, [column[:moved] for column in self._columns]))
        self._grow(moved, len(self._columns[0]))  # as much room again

    def _reserve(self, rows: int) -> None:
        """Room for `rows`, growing by half each time, so that adding stays cheap however long the run."""
        if rows <= len(self._columns[0]):
            return
        self._grow(0, max(rows, len(self._columns[0]) * 3 // 2, 64))

    def _grow(self, begin: int, room: int) -> None:
        """Copy the rows from `begin` on to columns with so much room; in place somebody may hold them as they stood."""
        rows = self._used - begin
        for index, old in enumerate(self._columns):
            new = np.empty(room, dtype=old.dtype)
            new[:rows] = old[begin : self._used]
            self._columns[index] = new
        self._used = rows


def column_type(key: str) -> np.dtype[Any]:
    """The dtype of a column; eight bytes a row in any case."""
    return np.dtype(np.int64 if key in _INTEGERS else np.float64)


class Series(Shown):
    """One metric through time: `step`, `t` (seconds), `value`, `epoch` (NaN where there is none), all equally long.

    - `goal`: `min` or `max`, as it was declared or as the name says; None where no way is known to be better.
    - `renew`: gives the rows read anew, for when those on disk turn out to be damaged.

    Columns are loaded when they are first asked for.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[Rows],
        goal: Goal | None,
        renew: Callable[[], Sequence[Rows]] | None = None,
    ) -> None:
        self.name = name
        self.goal = goal
        self._parts = parts
        self._renew = renew

    def __len__(self) -> int:
        return sum(part.rows for part in self._parts)

    @property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """The metrics of the tables it is in. Two metrics of a run with the same have the same steps and times."""
        return tuple(part.names for part in self._parts)

    @cached_property
    def step(self) -> Integers:
        """The step of each row."""
        return self._load("step")

    @cached_property
    def t(self) -> Floats:
        """Seconds of each row since the run began."""
        return self._load("t")

    @cached_property
    def value(self) -> Floats:
        """The metric's value in each row."""
        return self._load(f"={self.name}")

    @cached_property
    def epoch(self) -> Floats:
        """The epoch of each row; NaN where there is none."""
        return self._load("epoch")

    def __repr__(self) -> str:
        return one_line("Series", self.name, self._facts())

    def _facts(self) -> list[str]:
        latest = [f"latest {self.latest[1]:.6g} at step {self.latest[0]}"] if self.latest else []
        best = [f"best {self.best[1]:.6g} at step {self.best[0]}"] if self.best else []
        return [f"{len(self)} point{'' if len(self) == 1 else 's'}", *latest, *best]

    def _shown(self) -> tuple[str, dict[str, object]]:
        return self.name, {"points": len(self), "latest": self.latest, "best": self.best}

    def _figure(self) -> str:
        steps, values = self.downsample(240)
        return sparkline(steps.tolist(), values.tolist(), self.name)

    def html_cells(self) -> tuple[object, ...]:
        """Name, last and best value, the best one's step, and the number of points, as a row of a table."""
        last, best = self.latest, self.best
        return (
            self.name,
            "" if last is None else f"{last[1]:.6g}",
            "" if best is None else f"{best[1]:.6g}",
            "" if best is None else best[0],
            f"{len(self):,}",
        )

    @property
    def latest(self) -> tuple[int, float] | None:
        """Step and value of the last row."""
        last = self._extremes.last
        return (last[1], last[0]) if last is not None else None

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and value of the best finite row, the first of equals; None where no way is known to be better."""
        return None if self.goal is None else self.best_by(self.goal)

    def best_by(self, goal: Goal) -> tuple[int, float] | None:
        """Step and value of the minimum or maximum of the finite rows, the first of equals."""
        best = self._extremes.low if goal == "min" else self._extremes.high
        return (best[1], best[0]) if best is not None else None

    @cached_property
    def _extremes(self) -> Extremes:
        return Extremes.join([part.extremes(self.name) for part in self._parts])

    @cached_property
    def _order(self) -> Integers:
        """Of a metric logged beside different companions: its rows in the order of the stream."""
        return np.argsort(np.concatenate([part.column("line") for part in self._parts]), kind="stable")

    def _load(self, key: str) -> NDArray[Any]:
        return self._sound(lambda: self._column(key))

    def _column(self, key: str) -> NDArray[Any]:
        if len(self._parts) == 1:
            return self._parts[0].column(key)
        if not self._parts:  # read anew, and gone
            return np.empty(0, dtype=column_type(key))
        return np.concatenate([part.column(key) for part in self._parts])[self._order]

    def _sound(self, read: Callable[[], _T]) -> _T:
        """What `read` gives; when rows on disk turn out to be damaged, that of the rows read anew."""
        try:
            return read()
        except StoredRowsError:
            if self._renew is None:
                raise
            self._parts, self._renew = self._renew(), None
            for name in ("step", "t", "value", "epoch", "_order", "_extremes"):
                self.__dict__.pop(name, None)  # all columns from the same rows
            return read()

    def since(self, row: int) -> tuple[Integers, Floats, Floats, Floats]:
        """`step`, `t`, `epoch` and `value` of the rows from `row` on; of a long run nothing before them is loaded."""
        keys = ("step", "t", "epoch", f"={self.name}")
        if len(self._parts) == 1 and self._parts[0].stored is not None and row >= self._parts[0].stored.rows:
            (rows,) = self._parts
            begin = row - self._parts[0].stored.rows
            step, t, epoch, value = (rows.recent(key)[begin:] for key in keys)
        else:
            step, t, epoch, value = self.step[row:], self.t[row:], self.epoch[row:], self.value[row:]
        return step, t, epoch, value

    def downsample(self, points: int) -> tuple[Integers, Floats]:
        """Min-max downsampling: at most about `points` finite rows, the minimum and the maximum of each interval.

        A spike of a single step is therefore never smoothed away. Of a long run no column is put together for it.
        """
        return self._sound(lambda: self._downsample(points))

    def _downsample(self, points: int) -> tuple[Integers, Floats]:
        key = f"={self.name}"
        if len(self._parts) != 1:
            at = _min_max(self.value, points)
            return self.step[at], self.value[at]
        (rows,) = self._parts
        chosen, begin = [np.empty(0, np.int64)], 0
        for values in rows.arrays(key):
            chosen.append(_min_max(values, points * len(values) // max(1, rows.rows)) + begin)
            begin += len(values)
        at = np.concatenate(chosen)
        return rows.pick("step", at), rows.pick(key, at)


def _min_max(values: Floats, points: int) -> Integers:
    """Indices of at most `points` finite values, or four: the first, the last, minimum and maximum of each interval."""
    finite = np.isfinite(values)
    all_finite = bool(finite.all())
    values = values if all_finite else values[finite]
    points = max(4, points // 2 * 2)
    if len(values) <= points:
        chosen = np.arange(len(values), dtype=np.int64)
    else:
        from tsdownsample import MinMaxDownsampler

        extremes = MinMaxDownsampler().downsample(np.ascontiguousarray(values), n_out=points - 2)
        ends = np.array([0, len(values) - 1], dtype=np.int64)
        chosen = np.sort(np.concatenate([extremes.astype(np.int64), ends]))
        chosen = chosen[np.diff(chosen, prepend=-1) > 0]  # each once; np.unique would load 15 ms of numpy.ma
    return chosen if all_finite else np.flatnonzero(finite)[chosen]
