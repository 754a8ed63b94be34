"""`MediaQueue`: the thread that makes files of what was logged, so that a training loop never waits for one."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from linnet.runs.media.capture import Capture

log = logging.getLogger("linnet")


class MediaJob(NamedTuple):
    """One thing that was logged. `media`: image, table, histogram, text or audio; `fields`: more for its event."""

    media: str
    name: str
    step: int | None
    capture: Capture
    fields: dict[str, Any]


class MediaQueue:
    """Jobs in order, done by one daemon thread. What does not fit is dropped and counted, and nobody waits.

    - `work`: does one job; it raises nothing.
    - `dropped`: jobs that found no room, or were still there when the run ended.
    """

    most_jobs = 512
    most_bytes = 256 << 20

    def __init__(self, work: Callable[[MediaJob], None], run_id: str) -> None:
        self.dropped = 0
        self._work = work
        self._run_id = run_id
        self._jobs: deque[MediaJob] = deque()
        self._n_bytes = 0
        self._busy = self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, job: MediaJob) -> None:
        """Take a job, or drop it where too much is waiting."""
        with self._changed:
            if (
                self._closed
                or len(self._jobs) >= self.most_jobs
                or self._n_bytes + job.capture.n_bytes > self.most_bytes
            ):
                self._drop()
                return
            self._jobs.append(job)
            self._n_bytes += job.capture.n_bytes
            self._changed.notify_all()
            if self._thread is None:
                try:
                    self._thread = threading.Thread(target=self._run, name="linnet-media", daemon=True)
                    self._thread.start()
                except RuntimeError:  # the interpreter is on its way out and starts no more
                    self._thread = None
        if self._thread is None:
            self._do_next()

    def close(self, seconds: float) -> None:
        """Wait until all is done, for so long; what is still waiting then is dropped, and the thread ends."""
        deadline = time.monotonic() + seconds
        with self._changed:
            try:
                while self._thread is not None and (self._jobs or self._busy):
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                        break
            finally:  # a second Ctrl-C ends the waiting
                self.dropped += len(self._jobs)
                self._jobs.clear()
                self._n_bytes = 0
                self._closed = True
                self._changed.notify_all()

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped == 1:
            log.warning(
                "run %s: images and other media come faster than they can be written; those that find no room in the "
                "queue (%d, %d MB) are dropped",
                self._run_id,
                self.most_jobs,
                self.most_bytes >> 20,
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    if self._closed:
                        return
                    self._changed.wait()
            self._do_next()

    def _do_next(self) -> None:
        with self._changed:
            if not self._jobs:
                return
            job = self._jobs.popleft()
            self._busy = True
        try:
            self._work(job)
        except Exception:
            log.debug("a file of media was not made", exc_info=True)
        finally:
            job.capture.release()
            with self._changed:
                self._n_bytes = max(0, self._n_bytes - job.capture.n_bytes)
                self._busy = False
                del job
                self._changed.notify_all()
