"""`RunTable`: all runs of a folder, looked at again only where something changed.

How a run stands is read from the ends of its files, for all runs. Its best value and its curve need the whole stream:
those are read only of the runs that somebody looks at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from linnet.board.initial_scan import InitialScan, Stamp, stamp_of
from linnet.runs import Metrics, RunStore, RunSummary, Series
from linnet.runs.columns import Term
from linnet.runs.folder import EVENTS
from linnet.runs.query import UNREAD
from linnet.runs.selection import RunRecord, read_values
from linnet.runs.summary import summarize

_SUMMARY_SECONDS = 5.0  # a run that is being written is summed up at most so often
_SPARK_POINTS = 48
_BATCH = 100  # runs whose columns are read at once
_OPEN = 16  # runs whose numbers stay open, because they are being written


class RunRow:
    """A run in the table: `best`, `spark` and the figures of its record come later, when its numbers have been read."""

    def __init__(self, summary: RunSummary, stamp: Stamp) -> None:
        self.record = RunRecord(summary)
        self.stamp = stamp
        self.best: tuple[int, float] | None = None
        self.spark: list[float] = []
        self.summed: Stamp | None = None  # the stream that best and spark were taken from
        self.summed_at = 0.0
        self.figures_of: Stamp | None = None  # the stream that the record's figures were taken from
        self.figures_at = 0.0

    @property
    def summary(self) -> RunSummary:
        """How the run stands."""
        return self.record.summary

    @property
    def path(self) -> str:
        """Its folder."""
        return self.summary.path

    def renew(self, summary: RunSummary, stamp: Stamp) -> None:
        """Take another summary; figures stay until they are read again."""
        figures, self.record = self.record.figures, RunRecord(summary)
        self.record.figures, self.stamp = figures, stamp


Figures = tuple[list[RunRow], list[Term]]  # runs, and columns of theirs that are to be read


class RunTable:
    """The runs below a root. One thread calls `read`; `rows` is replaced, never changed, so others may show it.

    - `needed`: of all rows, those whose best value and curve are to be read.
    - `figures`: of all rows, those of which some columns are to be read, and those columns.
    - `scan_seconds`: between two scans for new and changed runs; after one that takes long, at thousands of runs, a
      pause `scan_pause` times as long.
    - `initial_scan`: the runs, as another process finds them; taken up by the first scan.
    """

    def __init__(
        self,
        store: RunStore,
        needed: Callable[[list[RunRow]], list[RunRow]] = lambda rows: rows,
        scan_seconds: float = 1.0,
        scan_pause: float = 10.0,
        initial_scan: InitialScan | None = None,
        figures: Callable[[list[RunRow]], Figures] = lambda rows: ([], []),
    ) -> None:
        self.store = store
        self._needed = needed
        self._figures = figures
        self.scan_seconds = scan_seconds
        self.scan_pause = scan_pause
        self._initial_scan = initial_scan
        self.rows: list[RunRow] = []
        self.archived: list[RunRow] = []  # those that lists leave out
        self.scanned = False  # at least once
        self._known: dict[str, RunRow] = {}
        self._open: dict[str, Metrics] = {}
        self._scanned_at, self._scan_took = -math.inf, 0.0

    def read(self, seconds: float, largest: float = math.inf) -> bool:
        """Look for new and changed runs, then sum some up, for about so long; True when something is new.

        Runs with a stream of more than `largest` bytes are left for another time.
        """
        until = time.monotonic() + seconds
        changed = False
        if time.monotonic() - self._scanned_at >= max(self.scan_seconds, self.scan_pause * self._scan_took):
            changed = self.scan()
        for row in self._waiting():
            if time.monotonic() >= until:
                break
            if row.stamp[1] <= largest:
                self.sum_up(row)
                changed = True
        while (batch := self._without_figures(_BATCH)) and time.monotonic() < until:
            self._read_figures(batch)
            changed = True
        return changed

    @property
    def busy(self) -> bool:
        """There are runs whose numbers are needed and were not read yet."""
        return bool(self._waiting() or self._without_figures(1))

    def _without_figures(self, most: int) -> list[RunRow]:
        """Runs whose columns are needed and were not read yet, or changed since; `most`: no more of them."""
        rows, terms = self._figures(self.rows)
        now, waiting = time.monotonic(), []
        for row in rows if terms else ():
            stale = row.figures_of != row.stamp and now - row.figures_at > _SUMMARY_SECONDS
            if any(row.record.value(term) is UNREAD or (stale and term.kind == "metric") for term in terms):
                waiting.append(row)
                if len(waiting) == most:
                    break
        return waiting

    def _read_figures(self, rows: list[RunRow]) -> None:
        _, terms = self._figures(self.rows)
        records = [RunRecord(row.summary) for row in rows]
        read_values(self.store.root, records, terms)
        for row, record in zip(rows, records, strict=True):
            row.record.figures = {**row.record.figures, **record.figures}
            row.figures_of, row.figures_at = row.stamp, time.monotonic()

    def scan(self) -> bool:
        """Look for new and changed runs now, whenever the last look was; True when something is new."""
        began = time.monotonic()
        changed = self._scan()
        self._scanned_at = time.monotonic()
        self._scan_took = self._scanned_at - began
        return changed

    def scan_folders(self, folders: Iterable[str]) -> list[RunRow]:
        """Look at some of the runs that are known, before the next look at all of them; those that changed."""
        changed, archived = [], False
        for folder in folders:
            row, summary = self._known.get(folder), summarize(Path(folder))
            if row is None or summary is None:  # for the next look at all of them
                continue
            if row.summary != summary:
                archived |= row.summary.manifest.archived != summary.manifest.archived
                row.renew(summary, stamp_of(folder))
                changed.append(row)
        if archived:
            self._list()
        return changed

    def newest(self) -> RunRow | None:
        return max(self.rows, key=lambda row: (row.summary.manifest.created_at, row.summary.run_id), default=None)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _scan(self) -> bool:
        initial_scan, self._initial_scan = self._initial_scan, None
        if initial_scan is not None and (runs := initial_scan.result()) is not None:
            self._known = {summary.path: RunRow(summary, stamp) for stamp, summary in runs}
            self._list()
            return True
        known, changed = {}, not self.scanned
        for folder in self.store.folders():
            key = str(folder)
            stamp = stamp_of(key)
            row = self._known.get(key)
            if row is None or row.stamp != stamp or row.summary.status in ("live", "stalled"):
                summary = summarize(folder)
                if summary is None:
                    continue
                if row is None:
                    row, changed = RunRow(summary, stamp), True
                elif row.summary != summary:
                    row.renew(summary, stamp)
                    changed = True
            known[key] = row
        changed |= known.keys() != self._known.keys()
        for path in self._open.keys() - known.keys():
            self._open.pop(path).close()
        self._known = known
        self._list()
        return changed

    def _list(self) -> None:
        rows = [row for row in self._known.values() if not row.summary.manifest.archived]
        archived = [row for row in self._known.values() if row.summary.manifest.archived]
        self.rows = self.rows if rows == self.rows else rows  # the same list while it is the same
        self.archived, self.scanned = self.archived if archived == self.archived else archived, True

    def _waiting(self) -> list[RunRow]:
        now = time.monotonic()
        rows = self._needed(self.rows)
        return [r for r in rows if r.summed != r.stamp and (not r.summed or now - r.summed_at > _SUMMARY_SECONDS)]

    def sum_up(self, row: RunRow) -> None:
        """Read the best value and the curve of a run's main metric, unless it has not changed since."""
        if row.summed == row.stamp:
            return
        row.summed, row.summed_at = row.stamp, time.monotonic()
        metrics = self._open.pop(row.path, None)
        if metrics is None:
            manifest = row.summary.manifest
            metrics = Metrics(Path(row.path) / EVENTS, goals=manifest.goals, origin=manifest.origin)
        else:
            metrics.refresh()
        series = metrics.main
        if series is not None:
            row.best = series.best
            row.spark = _spark(series)
        if row.summary.status == "live" and len(self._open) < _OPEN and (series is None or len(series) < 200_000):
            self._open[row.path] = metrics
        else:
            metrics.close()


def _spark(series: Series) -> list[float]:
    value = series.value[np.isfinite(series.value)]
    if len(value) <= _SPARK_POINTS:
        return [float(v) for v in value]
    starts = np.linspace(0, len(value), _SPARK_POINTS + 1).astype(np.int64)[:-1]
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(value, starts)
    return [float(v) for v in sums / np.diff(np.append(starts, len(value)))]
