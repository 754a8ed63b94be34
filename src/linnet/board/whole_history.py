"""`WholeHistory`: every row of a run's metrics, for who draws any part of it at any width; kept on disk where long."""

from __future__ import annotations

import numpy as np

from linnet.board.curve import Curve, Floats, Stats
from linnet.board.journal import Journal
from linnet.runs import Metrics, Run, Series


class WholeHistory:
    """The metrics of one run, none downsampled. `read` and what is asked for meanwhile are for one thread at a time.

    - `journal`: told how far the stream was read, so that it reads as far.
    - `superseded`: with the steps that a resumed run trained again.
    - `caught_up`: everything that was in the stream at the last look has been read.
    """

    downsampled = False

    def __init__(self, run: Run, journal: Journal | None = None, superseded: bool = False) -> None:
        self.caught_up = False
        self._journal = journal
        self._generation = 0
        self._curves: dict[str, Curve] = {}
        self._shared: dict[tuple[tuple[str, ...], ...], tuple[Floats, Floats, Floats]] = {}  # step, t, epoch by table
        goals = run.manifest.goals
        self.metrics = Metrics(run.events_path, goals=goals, origin=run.origin, superseded=superseded, read=False)
        self.changes = 0  # goes up with every read that brought something

    def read(self, seconds: float = 0.0) -> bool:
        """Take in all that is new, however long it takes; True when there was something."""
        changed = self.metrics.refresh()
        if self.metrics.generation != self._generation and self._journal is not None:
            self._journal.begin_anew()
        self._generation = self.metrics.generation
        if changed:
            self.changes += 1
            self._curves.clear()
            self._shared.clear()
        at_first = not self.caught_up  # what a cache held is no change, but the journal has to read it
        if self._journal is not None and (changed or at_first):
            position = self.metrics.position
            self._journal.take(b"", position, position, ())
        self.caught_up = True
        return changed

    def names(self) -> list[str]:
        return self.metrics.names()

    def series(self, name: str) -> Series | None:
        """One metric; None when there is none of that name."""
        return self.metrics.get(name)

    def curve(self, name: str) -> Curve | None:
        """One metric, every row of it; its minimum and maximum are those that its table keeps."""
        if name not in self._curves:
            series = self.metrics.get(name)
            if series is None:
                return None
            self._curves[name] = self._make(series)
        return self._curves[name]

    def _make(self, series: Series) -> Curve:
        """Like `Curve.of`; metrics of one table share its columns, and no row is looked at for the stats."""
        if series.tables not in self._shared:
            self._shared[series.tables] = series.step.astype(np.float64), series.t, series.epoch
        step, t, epoch = self._shared[series.tables]
        value = series.value
        finite = np.isfinite(value)
        shown = value if finite.all() else np.where(finite, value, np.nan)
        stats, last = _stats(series), float(value[-1]) if len(value) else np.nan
        return Curve(series.name, step, step, t, epoch, shown, shown, shown, stats, last_value=last, goal=series.goal)

    def last(self, name: str) -> float | None:
        series = self.metrics.get(name)
        latest = None if series is None else series.latest
        return None if latest is None or latest[1] != latest[1] else latest[1]

    @property
    def cells(self) -> int:
        """Numbers that it holds."""
        return sum(table.rows * (4 + len(table.names)) for table in self.metrics.tables())

    @property
    def generation(self) -> int:
        """How often the stream was cut or replaced."""
        return self.metrics.generation

    @property
    def damaged(self) -> int:
        return self.metrics.damaged

    @property
    def trouble(self) -> str:
        return self.metrics.trouble

    @property
    def last_step(self) -> int | None:
        return self.metrics.last_step

    @property
    def last_epoch(self) -> float | None:
        return self.metrics.last_epoch

    def close(self) -> None:
        self.metrics.close()


def _stats(series: Series) -> Stats:
    """Without a look at every row: how many are empty and the mean are not known."""
    low, high = series.best_by("min"), series.best_by("max")
    return Stats(len(series), 0, low, high, None, series.latest, series.best)
