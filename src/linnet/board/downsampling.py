"""Downsampling: a run's numbers in bounded memory. However long it trains, a table is so many buckets.

A bucket stands for as many rows as there are in every other bucket of its table, a power of two. It keeps their least,
greatest, sum and count, so no spike is lost and every mean is that of all rows. When the buckets run out, each two
become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Curve, Floats, Stats
from linnet.runs.metric_names import Goal
from linnet.runs.series import Table


@dataclass(frozen=True)
class DownsamplingLimits:
    """How much of a run is held.

    - `exact_cells`: numbers up to which every row is held; beyond, they are downsampled into buckets.
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
        return max(self.least_buckets, min(self.bucket_cells // metrics, self.most_buckets))


class Downsampler:
    """Tables of a run, downsampled as they grow; `curve` puts a metric together again."""

    def __init__(self, limits: DownsamplingLimits | None = None) -> None:
        self._limits = limits or DownsamplingLimits()
        self._tables: dict[tuple[str, ...], _Buckets] = {}

    def take(self, tables: Sequence[Table]) -> None:
        """Add the rows of tables that hand theirs over each time."""
        for table in tables:
            self._take(table, 0)

    def follow(self, tables: Sequence[Table]) -> None:
        """Add what tables that keep their rows have got since the last time."""
        for table in tables:
            self._take(table, self._tables[table.names].rows if table.names in self._tables else 0)

    def _take(self, table: Table, begin: int) -> None:
        if table.rows > begin:
            if table.names not in self._tables:
                self._tables[table.names] = _Buckets(table.names, self._limits.buckets(len(table.names)))
            self._tables[table.names].take(table, begin)

    @property
    def nbytes(self) -> int:
        return sum(table.own_4B.nbytes + table.parts_4MB.nbytes for table in self._tables.values())

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for names in self._tables for name in names))

    def curve(self, name: str, goal: Goal | None) -> Curve | None:
        parts = [table for names, table in self._tables.items() if name in names]
        if not parts:
            return None
        columns_8B = np.concatenate([part.columns(name) for part in parts], axis=1)
        if len(parts) > 1:
            columns_8B = columns_8B[:, np.argsort(columns_8B[0], kind="stable")]
        _, step, t, epoch, low, high, total, count = columns_8B
        tallies = [part.tally(name) for part in parts]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = total / count
        return Curve(
            name=name,
            x=step,
            step=step,
            t=t,
            epoch=epoch,
            low=low,
            high=high,
            mean=mean,
            stats=_stats(tallies, goal),
            exact=all(part.stride == 1 for part in parts),
            last_value=max(tallies, key=lambda tally: tally.last_line).last[1],
            goal=goal,
        )


class _Tally:
    """What is known exactly of a metric's rows in one table, however they are downsampled."""

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


_JOINS = (np.fmin, np.fmax, np.add, np.add)  # how two buckets' least, greatest, sum and count become one's


class _Buckets:
    """The buckets of one table. `stride`: rows that each stands for; the last may not be full yet. `rows`: of all.

    Shapes: M metrics, B buckets, R rows.
    """

    def __init__(self, names: tuple[str, ...], most: int) -> None:
        self.names = names
        self.stride = 1
        self.rows = 0
        self._most = most
        self._tallies = [_Tally() for _ in names]
        self.own_4B = np.empty((4, 64))  # line, step, t, epoch of a bucket's first row
        self._last = np.empty(4)  # the same of the last row of all
        self.parts_4MB = np.empty((4, len(names), 64))  # least, greatest, sum and count, as in `_JOINS`

    @property
    def _buckets(self) -> int:
        return -(-self.rows // self.stride)

    def tally(self, name: str) -> _Tally:
        return self._tallies[self.names.index(name)]

    def columns(self, name: str) -> Floats:
        """[8, B]: line, step, t, epoch, least, greatest, sum, count; copies, since buckets change in place."""
        used = self._buckets
        own_4B = self.own_4B[:, :used].copy()
        own_4B[1:, -1] = self._last[1:]  # a curve ends where the run is
        return np.concatenate([own_4B, self.parts_4MB[:, self.names.index(name), :used]])

    def take(self, table: Table, begin: int) -> None:
        """Add a table's rows from `begin` on, as many at a time as the buckets left can hold."""
        for line, step, t, epoch, *values in table.now().pieces(begin):
            for tally, column in zip(self._tallies, values, strict=True):
                tally.take(line, step, column)
            own = [line, step, t, epoch]
            self._last[:] = [column[-1] for column in own]
            at = 0
            while at < len(line):
                if self.rows >= self._most * self.stride:
                    self._halve()
                end = min(len(line), at + self._most * self.stride - self.rows)
                self._add(np.stack([c[at:end] for c in own]), np.stack([c[at:end] for c in values]))
                at = end

    def _add(self, own_4R: Floats, values_MR: Floats) -> None:
        count = values_MR.shape[1]
        into = self.rows % self.stride  # rows that the first of these buckets holds already
        starts = np.arange(-into, count, self.stride).clip(0)
        first, new = self.rows // self.stride, 1 if into else 0
        last = first + len(starts)
        finite = np.isfinite(values_MR)
        shown = np.where(finite, values_MR, np.nan)
        columns = (shown, shown, np.where(finite, values_MR, 0.0), finite.astype(np.float64))
        self._reserve(last)
        for part_MB, column, join in zip(self.parts_4MB, columns, _JOINS, strict=True):
            with np.errstate(over="ignore"):
                added = join.reduceat(column, starts, axis=1)
            if into:
                part_MB[:, first] = join(part_MB[:, first], added[:, 0])
            part_MB[:, first + new : last] = added[:, new:]
        self.own_4B[:, first + new : last] = own_4R[:, starts[new:]]
        self.rows += count

    def _halve(self) -> None:
        """Each two buckets become one."""
        used = self._buckets
        even = used // 2 * 2
        for part_MB, join in zip(self.parts_4MB, _JOINS, strict=True):
            part_MB[:, : even // 2] = join(part_MB[:, 0:even:2], part_MB[:, 1:even:2])
            if used > even:
                part_MB[:, even // 2] = part_MB[:, even]
        self.own_4B[:, : -(-used // 2)] = self.own_4B[:, 0:used:2].copy()
        self.stride *= 2

    def _reserve(self, buckets: int) -> None:
        room = self.own_4B.shape[1]
        if buckets > room:
            room = min(max(buckets, room * 2), self._most)
            self.own_4B, self.parts_4MB = _wider(self.own_4B, room), _wider(self.parts_4MB, room)


def _wider(old: Floats, room: int) -> Floats:
    new = np.empty((*old.shape[:-1], room))
    new[..., : old.shape[-1]] = old
    return new


def _stats(tallies: list[_Tally], goal: Goal | None) -> Stats:
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
        best=None if goal is None else low if goal == "min" else high,
    )
