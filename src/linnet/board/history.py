"""`History`: the numbers of a run that is being watched, kept up to date a little at a time."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from linnet.board.curve import Curve
from linnet.board.downsampling import Downsampler, DownsamplingLimits
from linnet.runs import Metrics, Run
from linnet.runs.metric_names import goal_of
from linnet.runs.metrics import BlockListener

_CURVES = 256  # curves held ready; a run may have thousands of metrics, of which a screen shows some


class RunHistory(Protocol):
    """The metrics of one run, as whoever follows it needs them; `History` folds long ones, `WholeHistory` does not."""

    caught_up: bool

    @property
    def downsampled(self) -> bool: ...
    @property
    def damaged(self) -> int: ...
    @property
    def trouble(self) -> str: ...
    @property
    def last_step(self) -> int | None: ...
    @property
    def last_epoch(self) -> float | None: ...
    def read(self, seconds: float) -> bool: ...
    def names(self) -> list[str]: ...
    def curve(self, name: str) -> Curve | None: ...
    def last(self, name: str) -> float | None: ...
    def close(self) -> None: ...


class History:
    """The metrics of one run. One thread calls `read`, others may ask for curves meanwhile.

    - `limits`: how many rows are held, and in how many buckets those of a longer run.
    - `listener`: gets every block of the stream that is read.
    - `caught_up`: everything that was in the stream at the last look has been read.
    """

    def __init__(
        self, run: Run, limits: DownsamplingLimits | None = None, listener: BlockListener | None = None
    ) -> None:
        self.caught_up = False
        self._run = run
        self._limits = limits or DownsamplingLimits()
        self._listener = listener
        self._lock = threading.Lock()
        self._metrics = self._open()
        self._downsampler: Downsampler | None = None
        self._drained = False  # the rows are held in buckets only
        self._resumes = 0
        self._generation = 0
        self._curves: dict[str, Curve] = {}
        self._names: list[str] = self._metrics.names()

    @property
    def downsampled(self) -> bool:
        return self._downsampler is not None

    def read(self, seconds: float) -> bool:
        """Take in what is new, for about so long; True when there was something."""
        until = time.monotonic() + seconds
        changed = False
        while True:
            with self._lock:
                new = self._metrics.refresh(blocks=1)
                if new:
                    self._settle()
            changed |= new
            if not new or time.monotonic() >= until:
                break
        self.caught_up = not new
        if self.caught_up and not self._drained:
            self._metrics.keep()  # only this thread changes the rows, so the lock can wait
            with self._lock:
                self._settle_cached()
        return changed

    def names(self) -> list[str]:
        return self._names

    def curve(self, name: str) -> Curve | None:
        """One metric as it stands; None when there is none of that name."""
        with self._lock:
            if name not in self._curves:
                curve = self._make(name)
                if curve is None:
                    return None
                if len(self._curves) >= _CURVES:
                    self._curves.clear()
                self._curves[name] = curve
            return self._curves[name]

    def last(self, name: str) -> float | None:
        """The last value of a metric that is a number."""
        curve = self.curve(name)
        return None if curve is None or curve.last_value != curve.last_value else curve.last_value

    @property
    def damaged(self) -> int:
        """Lines that could not be read."""
        return self._metrics.damaged

    @property
    def trouble(self) -> str:
        """Why the stream cannot be read now; empty when it can, or is not there yet."""
        return self._metrics.trouble

    @property
    def last_step(self) -> int | None:
        return self._metrics.last_step

    @property
    def last_epoch(self) -> float | None:
        return self._metrics.last_epoch

    def close(self) -> None:
        self._metrics.close()

    def _open(self) -> Metrics:
        run = self._run
        goals, listener = run.manifest.goals, self._listener
        metrics = Metrics(run.events_path, goals=goals, origin=run.origin, read=False, listener=listener)
        metrics.verify()
        return metrics

    def _settle(self) -> None:
        """Bring what was just read to where curves are made from; called with the lock held."""
        self._curves.clear()
        if self._metrics.generation != self._generation:  # the stream is another one: nothing read before stands
            self._generation = self._metrics.generation
            self._downsampler, self._resumes = (Downsampler(self._limits) if self._drained else None), 0
        if self._metrics.resumes != self._resumes:  # steps that were downsampled already are void
            self._resumes = self._metrics.resumes
            self._downsampler = None
            if self._drained:  # the rows are gone: begin again, from the cache
                self._metrics, self._drained = self._open(), False
                self._generation = self._resumes = 0
        if self._drained:
            assert self._downsampler is not None
            self._downsampler.take(self._metrics.drain())
        elif self._downsample() and self._cells() > self._limits.whole_cells:
            self._drain()
        self._names = self._downsampler.names() if self._drained and self._downsampler else self._metrics.names()

    def _settle_cached(self) -> None:
        """Once everything is read: long runs go on in buckets. (What a cache held was never read block by block.)"""
        if self._downsample():
            self._curves.clear()
            self._names = self._metrics.names()
            self._drain()

    def _downsample(self) -> bool:
        """Bring a run that is too long to be held row by row into buckets; False where it is not."""
        if self._cells() <= self._limits.exact_cells:
            return False
        self._downsampler = self._downsampler or Downsampler(self._limits)
        self._downsampler.follow(self._metrics.tables())
        return True

    def _drain(self) -> None:
        """From here on the rows are held in buckets only."""
        self._metrics.drain()
        self._drained, self._resumes = True, 0

    def _cells(self) -> int:
        return sum(table.rows * (4 + len(table.names)) for table in self._metrics.tables())

    def _make(self, name: str) -> Curve | None:
        if self._downsampler is not None:
            return self._downsampler.curve(name, goal_of(name, self._metrics.goals))
        series = self._metrics.get(name)
        return None if series is None else Curve.of(series)
