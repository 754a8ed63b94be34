"""`OpenRuns`: the runs that were asked for lately, with every row of theirs at hand; a bounded number of them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linnet.board.journal import Journal
from linnet.board.watched_run import WatchedRun
from linnet.board.web.answers import RequestError
from linnet.board.web.marks import MarkFinder
from linnet.board.web.row_columns import BlockedColumns, PlacedColumns, SmoothedColumns
from linnet.board.whole_history import WholeHistory
from linnet.runs import Event, Run, RunError
from linnet.runs.scan import events_of_kinds

_MOST_RUNS = 256
_MOST_CELLS = 48 << 20  # numbers of all open runs; those of long runs are on disk, mapped
_COUNT_SECONDS = 1.0  # between two looks at how much is held
_SLICE = 0.02  # seconds for which what a run said is read at a time
_TURN = 0.001  # seconds between two slices: a lock that is taken again at once is never had by who waits for it
_LEISURE = 0.5  # seconds after an answer
_LONG_STREAM = 16 << 20  # bytes; what else is in a longer one is looked for when nobody waits


class OpenRun:
    """A run that is read again whenever somebody asks. What it has is used under its `lock`."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self.run = Run.load(path)
        self.smoothed = SmoothedColumns()
        self._whole: WholeHistory | None = None
        self.watched = WatchedRun(self.run, history=self._open_history, inherits=False)
        self.placed = PlacedColumns()
        self.blocks = BlockedColumns()
        self.inside = self.watched.inside
        self._marks: dict[str, MarkFinder] = {}
        self._marks_generation = 0
        self._superseded: WholeHistory | None = None
        self._turns: tuple[int, list[Event]] = (-1, [])
        self._turning = False

    def _open_history(self, run: Run, journal: Journal) -> WholeHistory:
        self._whole = WholeHistory(run, journal)
        return self._whole

    @property
    def history(self) -> WholeHistory:
        """Every row of it."""
        assert self._whole is not None
        return self._whole

    @property
    def journal(self) -> Journal:
        """What it tells besides numbers, as far as `read` has got."""
        return self.watched.journal

    def read_numbers(self) -> None:
        """Take in the numbers that are new."""
        self.history.read()

    def read(self, seconds: float = 60.0) -> bool:
        """Take in what is new, for about so long; True when that is all of it."""
        self.watched.read(seconds)
        return self.watched.caught_up

    def superseded(self) -> WholeHistory:
        """Its numbers with those that a resumed run trained again."""
        if self._superseded is None:
            self._superseded = WholeHistory(self.run, superseded=True)
        self._superseded.read()
        return self._superseded

    def marks_of(self, name: str) -> MarkFinder:
        """What went wrong with a metric, as far as was looked."""
        if self._marks_generation != self.history.generation:
            self._marks, self._marks_generation = {}, self.history.generation
        return self._marks.setdefault(name, MarkFinder())

    def turns(self) -> list[Event]:
        """Its resumes and warnings. Of a long stream, those up to the last time that there was leisure to look."""
        position = self.history.metrics.position
        known, events = self._turns
        if known == position or self._turning:
            return events
        if position < _LONG_STREAM or position - known < _LONG_STREAM <= known:
            self._find_turns(position)
            return self._turns[1]
        self._turning = True
        later = threading.Timer(_LEISURE, self._find_turns, (position,))
        later.daemon = True
        later.start()
        return events

    def read_turns(self) -> None:
        """Look for all of them now, however long the stream is."""
        position = self.history.metrics.position
        if self._turns[0] != position:
            self._find_turns(position)

    def _find_turns(self, position: int) -> None:
        events = [
            event
            for event in events_of_kinds(self.run.events_path, ("resume", "note"), self.run.origin)
            if event.kind == "resume" or event.data.get("level") in ("warning", "error") or "lost_events" in event.data
        ]
        self._turns, self._turning = (position, events[-1000:]), False

    @property
    def cells(self) -> int:
        """Numbers that it holds."""
        return self.history.cells + self.inside.cells + (0 if self._superseded is None else self._superseded.cells)

    def close(self) -> None:
        self.watched.close()
        if self._superseded is not None:
            self._superseded.close()


class OpenRuns:
    """Open runs by folder; those that were not asked for longest are let go."""

    def __init__(self, most_runs: int = _MOST_RUNS) -> None:
        self._most_runs = most_runs
        self._lock = threading.Lock()
        self._counted = 0.0
        self._runs: OrderedDict[str, OpenRun] = OrderedDict()

    @contextmanager
    def use(self, path: str) -> Iterator[OpenRun]:
        """A run, for this thread alone."""
        run = self._get(path)
        with run.lock:
            yield run
        self._let_go()

    @contextmanager
    def use_whole(self, path: str) -> Iterator[OpenRun]:
        """The same with all that the run said, read a little at a time: who wants numbers alone comes between."""
        while True:
            with self.use(path) as run:
                if run.read(_SLICE):
                    yield run
                    return
            time.sleep(_TURN)

    def _get(self, path: str) -> OpenRun:
        with self._lock:
            run = self._runs.get(path)
            if run is not None:
                self._runs.move_to_end(path)
                return run
        try:
            opened = OpenRun(Path(path))
        except (RunError, OSError) as error:
            raise RequestError(404, f"the run cannot be opened: {error}") from None
        with self._lock:
            return self._runs.setdefault(path, opened)

    def forget(self, path: str) -> None:
        """Let go of a run: it is gone, or lies elsewhere."""
        with self._lock:
            run = self._runs.pop(path, None)
        if run is not None:
            _close(run)

    def _let_go(self) -> None:
        dropped = []
        with self._lock:
            if len(self._runs) <= self._most_runs and time.monotonic() - self._counted < _COUNT_SECONDS:
                return
            self._counted = time.monotonic()
            cells = sum(run.cells for run in self._runs.values())
            while len(self._runs) > 1 and (len(self._runs) > self._most_runs or cells > _MOST_CELLS):
                _, run = self._runs.popitem(last=False)
                cells -= run.cells
                dropped.append(run)
        for run in dropped:
            _close(run)

    def paths(self) -> list[str]:
        """The folders of those that are open."""
        with self._lock:
            return sorted(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def close(self) -> None:
        while self._runs:
            self._runs.popitem()[1].close()


def _close(run: OpenRun) -> None:
    """Close a run that is let go, unless somebody is reading it: then its files are closed when nobody has it any more.

    Never waited for: who lets go may hold the table's lock, and who reads may be waiting for that.
    """
    if run.lock.acquire(blocking=False):
        try:
            run.close()
        finally:
            run.lock.release()
