"""A run's numbers in bounded memory: however long it trains, a table is so many buckets.

A bucket stands for as many rows as there are in every other bucket of its table, a power of two. It keeps their least,
greatest, sum and count, so no spike is lost and every mean is that of all rows. When the buckets run out, each two
become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Curve, Floats, Stats
from linnet.runs.series import Table


@dataclass(frozen=True)
class FoldLimits:
    """How much of a run is held.

    - `exact_cells`: numbers up to which every row is held; beyond, they are folded into buckets.
    - `whole_cells`: numbers up to which a run is first read whole, so that its cache can be kept.
    - `most_buckets`: of a table; those of very many metrics get fewer, so that they have about `bucket_cells` numbers
      of one kind, but not fewer than `least_buckets`.
    """

    exact_cells: int = 1 << 18
    whole_cells: int = 24 << 20
    least_buckets: int = 1_024
    most_buckets: int = 8_192
    bucket_cells: int = 1 << 20

    def buckets(self, metrics: int) -> int:
        """Buckets of a table of so many metrics."""
        return max(self.least_buckets, min(self.bucket_cells // metrics, self.most_buckets))


class Fold:
    """Tables of a run, folded; `curve` puts a metric together again."""

    def __init__(self, limits: FoldLimits | None = None) -> None:
        self._limits = limits or FoldLimits()
        self._tables: dict[tuple[str, ...], _Folded] = {}

    def take(self, tables: Sequence[Table]) -> None:
        """Fold in the rows of tables that hand theirs over each time."""
        for table in tables:
            self._take(table, 0)

    def follow(self, tables: Sequence[Table]) -> None:
        """Fold in what tables that keep their rows have got since the last time."""
        for table in tables:
            self._take(table, self._tables[table.names].rows if table.names in self._tables else 0)

    def _take(self, table: Table, begin: int) -> None:
        if table.rows > begin:
            if table.names not in self._tables:
                self._tables[table.names] = _Folded(table.names, self._limits.buckets(len(table.names)))
            self._tables[table.names].take(table, begin)

    def names(self) -> list[str]:
        """Every metric, in order of appearance."""
        return list(dict.fromkeys(name for names in self._tables for name in names))

    def curve(self, name: str, lower_is_better: bool, has_direction: bool) -> Curve | None:
        """One metric, over all tables that hold it."""
        parts = [table for names, table in self._tables.items() if name in names]
        if not parts:
            return None
        columns = [part.columns(name) for part in parts]
        joined = {key: np.concatenate([part[key] for part in columns]) for key in columns[0]}
        if len(parts) > 1:
            order = np.argsort(joined["line"], kind="stable")
            joined = {key: column[order] for key, column in joined.items()}
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = joined["total"] / joined["count"]
        return Curve(
            name=name,
            x=joined["step"],
            step=joined["step"],
            t=joined["t"],
            epoch=joined["epoch"],
            low=joined["low"],
            high=joined["high"],
            mean=mean,
            stats=_stats([part.tally(name) for part in parts], lower_is_better, has_direction),
            exact=all(part.stride == 1 for part in parts),
            last_value=max((part.tally(name) for part in parts), key=lambda tally: tally.last_line).last[1],
            lower_is_better=lower_is_better,
        )


class _Tally:
    """What is known exactly of a metric's rows in one table, however they are folded."""

    def __init__(self) -> None:
        self.rows = 0
        self.count = 0
        self.total = 0.0
        self.low: tuple[int, float] | None = None
        self.high: tuple[int, float] | None = None
        self.last = (0, np.nan)
        self.last_line = -1

    def take(self, line: NDArray[np.int64], step: NDArray[np.int64], value: Floats) -> None:
        self.rows += len(value)
        self.last, self.last_line = (int(step[-1]), float(value[-1])), int(line[-1])
        at = np.flatnonzero(np.isfinite(value))
        if not len(at):
            return
        held = value[at]
        self.count += len(at)
        with np.errstate(over="ignore"):
            self.total += float(held.sum())
        low, high = at[int(np.argmin(held))], at[int(np.argmax(held))]
        if self.low is None or value[low] < self.low[1]:
            self.low = int(step[low]), float(value[low])
        if self.high is None or value[high] > self.high[1]:
            self.high = int(step[high]), float(value[high])


class _Folded:
    """One table. `stride`: rows that a bucket stands for; the last may not be full yet. `rows`: of all buckets."""

    def __init__(self, names: tuple[str, ...], most: int) -> None:
        self.names = names
        self.stride = 1
        self.rows = 0
        self._most = most
        self._tallies = [_Tally() for _ in names]
        metrics, room = len(names), 64
        self._own = np.empty((4, room))  # line, step, t, epoch of a bucket's first row
        self._last = np.empty(4)  # the same of the last row of all
        self._low = np.empty((metrics, room))
        self._high = np.empty((metrics, room))
        self._total = np.empty((metrics, room))
        self._count = np.empty((metrics, room), dtype=np.int64)

    @property
    def _buckets(self) -> int:
        return -(-self.rows // self.stride)

    def tally(self, name: str) -> _Tally:
        return self._tallies[self.names.index(name)]

    def columns(self, name: str) -> dict[str, Floats]:
        """Copies, since buckets change in place."""
        at, used = self.names.index(name), self._buckets
        line, step, t, epoch = own = self._own[:, :used].copy()
        own[1:, -1] = self._last[1:]  # a curve ends where the run is
        return {
            "line": line,
            "step": step,
            "t": t,
            "epoch": epoch,
            "low": self._low[at, :used].copy(),
            "high": self._high[at, :used].copy(),
            "total": self._total[at, :used].copy(),
            "count": self._count[at, :used].astype(np.float64),
        }

    def take(self, table: Table, begin: int) -> None:
        """Add a table's rows from `begin` on, as many at a time as the buckets left can hold."""
        for line, step, t, epoch, *values in table.now().pieces(begin):
            self._take_piece([line, step, t, epoch], values)

    def _take_piece(self, own: list[NDArray[Any]], values: list[NDArray[Any]]) -> None:
        line, step, *_ = own
        for tally, column in zip(self._tallies, values, strict=True):
            tally.take(line, step, column)
        self._last[:] = [column[-1] for column in own]
        at = 0
        while at < len(line):
            if self.rows >= self._most * self.stride:
                self._halve()
            end = min(len(line), at + self._most * self.stride - self.rows)
            self._add([c[at:end] for c in own], np.stack([c[at:end] for c in values]))
            at = end

    def _add(self, own: list[NDArray[np.float64]], values_MR: Floats) -> None:
        count = values_MR.shape[1]
        first = self.rows // self.stride
        into = self.rows % self.stride  # rows that the first of these buckets holds already
        starts = np.concatenate([[0], np.arange(self.stride - into, count, self.stride)]) if into else None
        starts = np.arange(0, count, self.stride) if starts is None else starts
        finite = np.isfinite(values_MR)
        shown = np.where(finite, values_MR, np.nan)
        with np.errstate(over="ignore"):
            low = np.fmin.reduceat(shown, starts, axis=1)
            high = np.fmax.reduceat(shown, starts, axis=1)
            total = np.add.reduceat(np.where(finite, values_MR, 0.0), starts, axis=1)
        filled = np.add.reduceat(finite, starts, axis=1, dtype=np.int64)
        last = first + len(starts)
        self._reserve(last)
        if into:
            self._low[:, first] = np.fmin(self._low[:, first], low[:, 0])
            self._high[:, first] = np.fmax(self._high[:, first], high[:, 0])
            self._total[:, first] += total[:, 0]
            self._count[:, first] += filled[:, 0]
        new = 1 if into else 0
        for mine, theirs in zip(self._parts(), (low, high, total, filled), strict=True):
            mine[:, first + new : last] = theirs[:, new:]
        self._own[:, first + new : last] = np.stack([column[starts[new:]] for column in own])
        self.rows += count

    def _halve(self) -> None:
        """Each two buckets become one."""
        used = self._buckets
        even = used // 2 * 2
        for part, join in zip(self._parts(), (np.fmin, np.fmax, np.add, np.add), strict=True):
            joined = join(part[:, 0:even:2], part[:, 1:even:2])
            part[:, : even // 2] = joined
            if used > even:
                part[:, even // 2] = part[:, even]
        self._own[:, : -(-used // 2)] = self._own[:, 0:used:2].copy()
        self.stride *= 2

    def _parts(self) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
        return self._low, self._high, self._total, self._count

    def _reserve(self, buckets: int) -> None:
        room = self._own.shape[1]
        if buckets <= room:
            return
        room = min(max(buckets, room * 2), self._most)
        self._own = _wider(self._own, room)
        self._low, self._high = _wider(self._low, room), _wider(self._high, room)
        self._total, self._count = _wider(self._total, room), _wider(self._count, room)


def _wider(old: NDArray[Any], room: int) -> NDArray[Any]:
    new = np.empty((old.shape[0], room), dtype=old.dtype)
    new[:, : old.shape[1]] = old
    return new


def _stats(tallies: list[_Tally], lower_is_better: bool, has_direction: bool) -> Stats:
    rows, count = sum(t.rows for t in tallies), sum(t.count for t in tallies)
    low = min((t.low for t in tallies if t.low), key=lambda point: point[1], default=None)
    high = max((t.high for t in tallies if t.high), key=lambda point: point[1], default=None)
    return Stats(
        count=rows,
        empty=rows - count,
        low=low,
        high=high,
        mean=sum(t.total for t in tallies) / count if count else None,
        last=max(tallies, key=lambda t: t.last_line).last,
        best=(low if lower_is_better else high) if has_direction else None,
    )
