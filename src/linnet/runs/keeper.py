"""The one background thread of a run being written: retries, syncs, heartbeats, system figures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

TEND_SECONDS = 2.0  # at most so much is lost in a power cut
HEARTBEAT_SECONDS = 20.0

log = logging.getLogger("linnet")


class Keeper(threading.Thread):
    """Looks after a run being written until stopped.

    - `tend`: called every two seconds; `size`: bytes of the stream, by which silence is noticed.
    - `heartbeat`: called when nothing was written for a while, so that readers elsewhere see that the run lives.
    - `sample`: called every `sample_every` seconds, when given.
    """

    def __init__(
        self,
        tend: Callable[[], None],
        size: Callable[[], int],
        heartbeat: Callable[[], None],
        sample: Callable[[], None] | None = None,
        sample_every: float = 0.0,
    ) -> None:
        super().__init__(name="linnet-keeper", daemon=True)
        self._tend = tend
        self._size = size
        self._heartbeat = heartbeat
        self._sample = sample if sample_every > 0 else None
        self._sample_every = sample_every
        self._stopping = threading.Event()

    def run(self) -> None:
        """Work until `stop`; nothing that fails here may reach the training process."""
        now = time.monotonic()
        next_tend, next_sample, quiet_since = now + TEND_SECONDS, now, now
        size = self._size()
        while True:
            due = min(next_tend, next_sample) if self._sample else next_tend
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return
            now = time.monotonic()
            try:
                if self._sample and now >= next_sample:
                    next_sample = now + self._sample_every
                    self._sample()
                if now >= next_tend:
                    next_tend = now + TEND_SECONDS
                    if self._size() != size:
                        quiet_since = now
                    elif now - quiet_since >= HEARTBEAT_SECONDS:
                        quiet_since = now
                        self._heartbeat()
                    size = self._size()
                    self._tend()
            except Exception:
                log.debug("the run's background thread met an error", exc_info=True)

    def stop(self) -> None:
        """End the thread and wait for it, unless it is the one that asks."""
        self._stopping.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout=5.0)
