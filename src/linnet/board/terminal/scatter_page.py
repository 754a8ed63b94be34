"""`ScatterPage`: a metric of the runs of the list against one of their settings, read a little at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from linnet.board.figure.scatter import Scatter, build_scatter
from linnet.board.run_columns import differing_terms
from linnet.board.run_table import RunRow
from linnet.errors import LinnetError
from linnet.runs.columns import Column, Term
from linnet.runs.figure_reader import read_figures
from linnet.runs.figures import MetricFigures
from linnet.runs.metric_names import goal_of, main_metrics
from linnet.runs.selection import RunRecord, Selection

_MOST_RUNS = 2000  # that are drawn
_FIRST = ("lr", "learning_rate")  # of the settings that differ, the one that is asked for most


class ScatterPage:
    """What is drawn: `setting` and `metric` count up through those there are. One thread calls `read`.

    - `rows`: the runs, as they are listed at the moment.
    - `scatter`: as far as it was read; `trouble`: why there is none.
    """

    def __init__(self, root: Path, rows: Callable[[], Sequence[RunRow]]) -> None:
        self._root, self._rows = root, rows
        self.setting = self.metric = 0
        self.best = False
        self.log = False
        self.scatter: Scatter | None = None
        self.trouble = ""
        self.unread = 0
        self._figures: dict[tuple[str, object, str], MetricFigures | None] = {}
        self._drawn: object = None

    def next_setting(self) -> None:
        self.setting += 1

    def next_metric(self, by: int) -> None:
        self.metric += by

    def read(self, seconds: float) -> bool:
        """Read what is missing, for about so long, and put together what there is; True when something is new."""
        until = time.monotonic() + seconds
        rows = list(self._rows())[:_MOST_RUNS]
        records = [RunRecord(row.summary) for row in rows]
        settings, metrics = settings_of(records), metrics_of(records)
        if not settings or not metrics:
            before = self.trouble
            lacking = "settings that differ" if not settings else "a metric"
            self.scatter, self.trouble = None, f"these runs have not {lacking}: nothing to draw"
            return before != self.trouble
        metric = metrics[self.metric % len(metrics)]
        best = self.best and goal_of(metric, {}) is not None
        self.unread = 0
        for row, record in zip(rows, records, strict=True):
            if not best and metric in row.summary.latest:
                continue
            key = (row.path, row.stamp, metric)
            if key not in self._figures and time.monotonic() < until:
                foreign = row.summary.manifest.dialect not in ("linnet", "toy")
                self._figures[key] = read_figures(row.path, {metric: frozenset()}, foreign=foreign).get(metric)
            self.unread += key not in self._figures
            figures = self._figures.get(key)
            record.take_figures({metric: frozenset()}, {} if figures is None else {metric: figures})
        setting = settings[self.setting % len(settings)]
        drawn = (tuple((row.path, row.stamp) for row in rows), setting, metric, best, self.log, self.unread)
        if drawn == self._drawn:
            return False
        self._drawn = drawn
        column = Column(metric, "best" if best else None)
        try:
            selection = Selection(self._root, records)
            self.scatter = build_scatter(selection, [column], Column(setting.name), log=self.log)
            self.trouble = "" if self.scatter.series else f"no run has both {setting.label} and {metric} to draw"
        except LinnetError as error:
            self.scatter, self.trouble = None, str(error)
        return True


def settings_of(records: Sequence[RunRecord]) -> list[Term]:
    """The settings in which runs differ, the learning rate first."""
    terms = differing_terms(records)
    return sorted(terms, key=lambda term: term.label not in _FIRST)


def metrics_of(records: Sequence[RunRecord]) -> list[str]:
    """The metrics of the runs: held-out loss, loss, other results, the rest."""
    names = list(dict.fromkeys(name for record in records for name in record.summary.latest))
    names = [name for name in names if not name.startswith("sys/")]
    main = main_metrics(names)[::-1]
    return sorted(names, key=lambda name: (main.index(name) if name in main else len(main), goal_of(name, {}) is None))
