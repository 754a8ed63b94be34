"""`RunInside`: what a training told of its inside, read when somebody looks, and read on while it trains."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from linnet.runs import Run

if TYPE_CHECKING:
    from linnet.runs.inspection import Inspection


class RunInside:
    """The looks into a run, which may be a hundred megabytes of its stream: nothing is read before somebody asks.

    It has a lock of its own, so that whoever wants the run's curves need not wait.

    - `cells`: about as many numbers as it holds.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._inspection: Inspection | None = None
        self.cells = 0

    @property
    def caught_up(self) -> bool:
        """All that was in the stream at the last look has been read."""
        return self._inspection is not None and self._inspection.caught_up

    @property
    def share_read(self) -> float:
        """How much of the stream has been read, from 0 to 1."""
        return 0.0 if self._inspection is None else self._inspection.share_read

    def read(self, seconds: float = math.inf) -> bool:
        """Read on, for about so long; True when something is new."""
        until, changed, caught_up = time.monotonic() + seconds, False, False
        while not caught_up:
            with self._lock:  # a block of lines at a time: who draws does not wait for more
                changed |= self._read_block()
                caught_up = self.caught_up
            if time.monotonic() >= until:
                break
        return changed

    @contextmanager
    def reading(self) -> Iterator[Inspection]:
        """All that was told so far, read to its end first."""
        if self.read() or not self.cells:
            with self._lock:
                self.cells = 0 if self._inspection is None else self._inspection.cells
        with self._lock:
            assert self._inspection is not None
            yield self._inspection

    @contextmanager
    def held(self) -> Iterator[Inspection | None]:
        """What has been read so far, while nothing is added to it; None before anything was."""
        with self._lock:
            yield self._inspection

    def _read_block(self) -> bool:
        if self._inspection is not None:
            return self._inspection.refresh(0.0)
        from linnet.runs.inspection import Inspection

        self._inspection = Inspection(self._run.events_path, seconds=0.0)
        return True
