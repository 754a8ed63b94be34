"""`WatchedRun`: one run that is followed: how it stands, its numbers, and what it said."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from linnet.board.baseline import BaselineLines
from linnet.board.curve import Curve
from linnet.board.downsampling import DownsamplingLimits
from linnet.board.history import History, RunHistory
from linnet.board.inherited import inherited_curves
from linnet.board.inside import RunInside
from linnet.board.journal import Journal
from linnet.runs import Metrics, Run, RunSummary
from linnet.runs.metric_names import main_metric
from linnet.runs.summary import summarize

_ROWS_BEFORE = 256  # of a value so far back the heaviest smoothing holds 1e-18
_MOST_ROWS = 1 << 16
_PACE_ROWS = 256  # rows by which the present speed is judged
_STATUS_ENTRIES = {
    "gone": ("error", "the run's folder is gone; what was read of it is still shown"),
    "crashed": ("error", "the writer died without a run_end; every event it logged is here"),
    "stalled": ("warning", "nothing was written for a while, though the run has not ended"),
}


class WatchedRun:
    """A run folder under observation. One thread calls `read`; the rest is for whoever draws.

    - `limits`: how much of a long run is held.
    - `history`: makes what holds its numbers; by default they are downsampled when they are many.
    - `inherits`: a fork has the lines of the runs it came from, and a run those of its baseline.
    """

    def __init__(
        self,
        run: Run,
        limits: DownsamplingLimits | None = None,
        history: Callable[[Run, Journal], RunHistory] | None = None,
        inherits: bool = True,
    ) -> None:
        self.run = run
        self.scan_seconds = 1.0  # between two reads of how the run stands; new events are read at every `read`
        self.summary = RunSummary(run_id=run.id, path=str(run.path), status="", manifest=run.manifest)
        self.journal = Journal(run)
        self.history: RunHistory = History(run, limits, self.journal) if history is None else history(run, self.journal)
        self.inside = RunInside(run)  # read by whoever shows it
        self.gone = False
        self.close_up: Metrics | None = None  # every row, while somebody looks closely at a downsampled run
        self.inherited: dict[str, Curve] = {}  # of a fork: the lines of its ancestors, up to where it began
        self.baseline: BaselineLines | None = None  # of the run that it is compared with
        self._limits, self._wants_baseline = limits, inherits
        self._inherits = inherits and run.manifest.parent is not None
        self._close_lock = threading.Lock()
        self._want_close_up = False
        self._looked = -math.inf
        self._status = ""
        self._trouble = ""

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def title(self) -> str:
        """The run's name, else its id."""
        return self.summary.manifest.name or self.id

    @property
    def status(self) -> str:
        return "gone" if self.gone else self.summary.status

    def read(self, seconds: float) -> bool:
        """Look again, for about so long; True when something is new."""
        changed = self._scan()
        if self.gone:
            return changed
        changed |= self.history.read(seconds)
        if self.history.caught_up:
            changed |= self.journal.catch_up(seconds)
            changed |= self._log_trouble()
            changed |= self._read_close_up()
            changed |= self._read_ancestors()
            changed |= self._read_baseline(seconds)
        return changed

    @property
    def caught_up(self) -> bool:
        """Everything that was in the folder at the last look has been read; of one that is gone there is no more."""
        return self.gone or (self.history.caught_up and self.journal.caught_up)

    def want_every_row(self, wanted: bool) -> None:
        """Ask for every row of a downsampled run (or say that they are not needed any more)."""
        self._want_close_up = wanted
        if not wanted:
            with self._close_lock:
                self.close_up = None

    def rows(self, curve: Curve, first: float, last: float) -> Curve | None:
        """Every row of a downsampled curve between two steps, and some before them, by which a smoothed line begins.

        None while they are not there (see `want_every_row`), and where they are so many that buckets show as much.
        """
        with self._close_lock:
            series = None if self.close_up is None else self.close_up.get(curve.name)
            if series is None:
                return None
            begin = max(0, int(np.searchsorted(series.step, first)) - _ROWS_BEFORE)
            end = int(np.searchsorted(series.step, last, "right"))
            if end - begin > _MOST_ROWS:
                return None
            return replace(Curve.of(series, slice(begin, end), curve.stats), last_value=curve.last_value)

    def main(self) -> Curve | None:
        """The metric to show when there is room for one."""
        name = main_metric(self.history.names())
        return None if name is None else self.history.curve(name)

    def step(self) -> int | None:
        return self.history.last_step if self.history.last_step is not None else self.summary.step

    def elapsed(self) -> float:
        """Seconds of training; of a live run, up to this moment."""
        since = time.time() - self.summary.last_event
        return self.summary.t + (max(0.0, min(since, 60.0)) if self.summary.status == "live" else 0.0)

    def remaining(self) -> float | None:
        """Seconds until the last step, at the present speed; None where there is no knowing."""
        total, curve = self.summary.manifest.total_steps, self.main()
        if self.summary.status != "live" or not total or curve is None or len(curve) < 2:
            return None
        step, t = curve.step[-_PACE_ROWS:], curve.t[-_PACE_ROWS:]
        steps, seconds = float(step[-1] - step[0]), float(t[-1] - t[0])
        if steps <= 0 or seconds <= 0:
            return None
        return max(0.0, (total - (self.step() or 0)) * seconds / steps)

    def tokens_per_second(self) -> float | None:
        """As logged; else from the tokens and microseconds of the last step."""
        if (logged := self.history.last("tokens_per_s")) is not None:
            return logged
        tokens, wall = self.history.last("tokens"), self.history.last("wall_us")
        return tokens / wall * 1e6 if tokens and wall and np.isfinite(tokens / wall) else None

    def close(self) -> None:
        self.history.close()
        self.journal.close()
        if self.baseline is not None:
            self.baseline.close()
        self.want_every_row(False)

    def _scan(self) -> bool:
        if time.monotonic() - self._looked < self.scan_seconds:
            return False
        self._looked = time.monotonic()
        summary = summarize(self.run.path)
        changed = self.gone or summary != self.summary
        self.gone = summary is None
        if summary is not None:
            self.summary, self.run.manifest = summary, summary.manifest
        self._log_status(self.status)
        return changed

    def _log_status(self, status: str) -> None:
        """Put a change of status into the log, where the stream itself does not tell it."""
        before, self._status = self._status, status
        if before == status:
            return
        if status in _STATUS_ENTRIES and (before or status != "gone"):
            self._log(*_STATUS_ENTRIES[status])
        elif before == "gone":
            self._log("info", "the run's folder is back")

    def _log_trouble(self) -> bool:
        """Put into the log that the stream cannot be read any more, and that it can again."""
        before, self._trouble = self._trouble, self.history.trouble
        if before == self._trouble:
            return False
        if self._trouble:
            self._log("error", f"events.jsonl cannot be read ({self._trouble}); what was read of it is still shown")
        else:
            self._log("info", "events.jsonl can be read again")
        return True

    def _log(self, level: str, text: str) -> None:
        self.journal.log(f"{time.strftime('%H:%M:%S')}: {text}", level, self.summary.t)

    def _read_ancestors(self) -> bool:
        """Read the lines of the runs that this one was forked from, once: what is behind a fork changes no more."""
        inherits, self._inherits = self._inherits, False
        if inherits:
            self.inherited = inherited_curves(self.run)
        return bool(inherits and self.inherited)

    def _read_baseline(self, seconds: float) -> bool:
        """Open the run that this one is compared with, once, and read on in it."""
        is_wanted, self._wants_baseline = self._wants_baseline, False
        if is_wanted:
            self.baseline = BaselineLines.of(self.run, self._limits)
        return self.baseline is not None and self.baseline.read(seconds)

    def _read_close_up(self) -> bool:
        if not self._want_close_up or not self.history.downsampled:
            return False
        if self.close_up is None:
            metrics = self.run.metrics()
            with self._close_lock:
                self.close_up = metrics if self._want_close_up else None
            return True
        with self._close_lock:
            return self.close_up is not None and self.close_up.refresh()
