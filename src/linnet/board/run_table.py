"""`RunTable`: all runs of a folder, looked at again only where something changed; and which of them a list shows.

How a run stands is read from the ends of its files, for all runs. Its best value and its curve need the whole stream:
those are read only of the runs that somebody looks at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from linnet.board.first_look import FirstLook, Stamp, stamp_of
from linnet.runs import STATUSES, Metrics, RunStore, RunSummary, Series
from linnet.runs.folder import EVENTS
from linnet.runs.summary import summarize

_SUMMARY_SECONDS = 5.0  # a run that is being written is summed up at most so often
_SPARK_POINTS = 48
_OPEN = 16  # runs whose numbers stay open, because they are being written


@dataclass
class RunRow:
    """A run in the table: `best` and `spark` come later than the rest, when its numbers have been read."""

    summary: RunSummary
    stamp: Stamp
    best: tuple[int, float] | None = None
    spark: list[float] = field(default_factory=list)
    summed: Stamp | None = None  # the stream that best and spark were taken from
    summed_at: float = 0.0

    @property
    def path(self) -> str:
        return self.summary.path


class RunTable:
    """The runs below a root. One thread calls `read`; `rows` is replaced, never changed, so others may show it.

    - `needed`: of all rows, those whose best value and curve are to be read.
    - `look_seconds`: between two looks for new and changed runs; after one that takes long, at thousands of runs, a
      pause `look_pause` times as long.
    - `first_look`: the runs, as another process finds them; taken up by the first look.
    """

    def __init__(
        self,
        store: RunStore,
        needed: Callable[[list[RunRow]], list[RunRow]] = lambda rows: rows,
        look_seconds: float = 1.0,
        look_pause: float = 10.0,
        first_look: FirstLook | None = None,
    ) -> None:
        self.store = store
        self._needed = needed
        self.look_seconds = look_seconds
        self.look_pause = look_pause
        self._first_look = first_look
        self.rows: list[RunRow] = []
        self.looked = False  # at least once
        self._known: dict[str, RunRow] = {}
        self._open: dict[str, Metrics] = {}
        self._looked_at, self._look_took = -math.inf, 0.0

    def read(self, seconds: float, largest: float = math.inf) -> bool:
        """Look for new and changed runs, then sum some up, for about so long; True when something is new.

        Runs with a stream of more than `largest` bytes are left for another time.
        """
        until = time.monotonic() + seconds
        changed = False
        if (began := time.monotonic()) - self._looked_at >= max(self.look_seconds, self.look_pause * self._look_took):
            changed = self._look()
            self._looked_at = time.monotonic()
            self._look_took = self._looked_at - began
        for row in self._waiting():
            if time.monotonic() >= until:
                break
            if row.stamp[1] <= largest:
                self._sum_up(row)
                changed = True
        return changed

    @property
    def busy(self) -> bool:
        """There are runs whose numbers are needed and were not read yet."""
        return bool(self._waiting())

    def newest(self) -> RunRow | None:
        return max(self.rows, key=lambda row: (row.summary.manifest.created_at, row.summary.run_id), default=None)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _look(self) -> bool:
        first_look, self._first_look = self._first_look, None
        if first_look is not None and (runs := first_look.result()) is not None:
            self._known = {summary.path: RunRow(summary, stamp) for stamp, summary in runs}
            self._list()
            return True
        known, changed = {}, not self.looked
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
                    row.summary, row.stamp, changed = summary, stamp, True
            known[key] = row
        changed |= known.keys() != self._known.keys()
        for path in self._open.keys() - known.keys():
            self._open.pop(path).close()
        self._known = known
        self._list()
        return changed

    def _list(self) -> None:
        self.rows, self.looked = [row for row in self._known.values() if not row.summary.manifest.archived], True

    def _waiting(self) -> list[RunRow]:
        now = time.monotonic()
        rows = self._needed(self.rows)
        return [r for r in rows if r.summed != r.stamp and (not r.summed or now - r.summed_at > _SUMMARY_SECONDS)]

    def _sum_up(self, row: RunRow) -> None:
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


@dataclass
class RunList:
    """What of the table is shown: order, filter, the row that is chosen, and those that are marked.

    `filter`: words that must all occur in a run's own; `status:live`, `tag:wide` are looked for in one field only.
    """

    sort: str = "age"
    reverse: bool = False
    filter: str = ""
    cursor: str = ""  # path of the run
    marks: list[str] = field(default_factory=list)
    offset: int = 0

    def select(self, rows: list[RunRow]) -> list[RunRow]:
        """The rows that match the filter, sorted; what a run does not have comes last, whichever way."""
        key = _SORT_KEYS[self.sort]
        keyed = [(key(row), row) for row in rows if not self.filter or self._matches(row)]
        known = [pair for pair in keyed if pair[0] is not None]
        known.sort(key=lambda pair: pair[1].summary.run_id)
        known.sort(key=lambda pair: pair[0], reverse=self.reverse)
        return [row for _, row in known] + [row for value, row in keyed if value is None]

    def window(self, rows: list[RunRow], height: int) -> tuple[int, int]:
        """Where in `rows` the cursor stands, and the first row of a screen of so many lines that shows it."""
        at = next((i for i, row in enumerate(rows) if row.summary.path == self.cursor), 0)
        return at, min(max(self.offset, at - height + 1), at, max(0, len(rows) - height))

    def _matches(self, row: RunRow) -> bool:
        summary, manifest = row.summary, row.summary.manifest
        texts = {
            "run": [summary.run_id, manifest.name or ""],
            "status": [summary.status],
            "recipe": [manifest.recipe or ""],
            "experiment": [manifest.experiment or ""],
            "tag": manifest.tags,
        }
        everything = [text for values in texts.values() for text in values]
        for word in self.filter.lower().split():
            name, _, wanted = word.partition(":")
            searched, wanted = (texts[name], wanted) if ":" in word and name in texts else (everything, word)
            if not any(wanted in text.lower() for text in searched):
                return False
        return True


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


_SORT_KEYS: dict[str, Callable[[RunRow], Any]] = {
    "age": lambda row: -row.summary.last_event,
    "run": lambda row: row.summary.run_id,
    "status": lambda row: STATUSES.index(row.summary.status),
    "recipe": lambda row: row.summary.manifest.recipe,
    "experiment": lambda row: row.summary.manifest.experiment,
    "tags": lambda row: " ".join(row.summary.manifest.tags) or None,
    "step": lambda row: row.summary.step,
    "last": lambda row: _finite(row.summary.value),
    "best": lambda row: None if row.best is None else _finite(row.best[1]),
}
SORTS = tuple(_SORT_KEYS)
