"""`RunInside`: what a training told of its inside, read when somebody looks, and read on while it trains."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from linnet.runs import Run

if TYPE_CHECKING:
    from linnet.runs.inspection import Inspection


class RunInside:
    """The looks into a run, which may be a hundred megabytes of its stream: nothing is read before `read` is called.

    One thread calls `read`; whoever draws gets at what there is with `held`, and the other waits meanwhile.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._inspection: Inspection | None = None

    @property
    def caught_up(self) -> bool:
        """All that was in the stream at the last look has been read."""
        return self._inspection is not None and self._inspection.caught_up

    @property
    def share_read(self) -> float:
        """How much of the stream has been read, from 0 to 1."""
        return 0.0 if self._inspection is None else self._inspection.share_read

    def read(self, seconds: float) -> bool:
        """Read on, for about so long; True when something is new."""
        until = time.monotonic() + seconds
        if self._inspection is None:
            from linnet.runs.inspection import Inspection

            self._inspection = Inspection(self._run.events_path, seconds=0.0)
            changed, caught_up = True, self._inspection.caught_up
        else:
            changed = caught_up = False
        while not caught_up and time.monotonic() < until:
            with self._lock:  # a block of lines at a time: who draws does not wait for more
                changed |= self._inspection.refresh(0.0)
                caught_up = self._inspection.caught_up
        return changed

    @contextmanager
    def held(self) -> Iterator[Inspection | None]:
        """What has been read so far, while nothing is added to it; None before anything was."""
        with self._lock:
            yield self._inspection
