"""`Inside`: what a run's training told of its inside, read when somebody asks for it and never before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from linnet.runs import Run
from linnet.runs.inspection import Inspection


class Inside:
    """The inspection of a run for several readers, one at a time.

    It has a lock of its own: a long stream is read for a second, and whoever wants the run's curves need not wait.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._inspection: Inspection | None = None
        self.cells = 0  # numbers that it holds

    @contextmanager
    def reading(self) -> Iterator[Inspection]:
        """All that was told so far."""
        with self._lock:
            if self._inspection is None:
                self._inspection = self._run.inspection()
                self.cells = self._inspection.cells
            elif self._inspection.refresh():
                self.cells = self._inspection.cells
            yield self._inspection
