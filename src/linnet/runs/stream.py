"""`EventStream`: the events of a run, as they come."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from linnet.runs.events import Event, decode
from linnet.runs.lines import LineReader

POLL_SECONDS = 0.02


class EventStream:
    """Reads `events.jsonl` while it is being written; each event is handed out once.

    - `damaged`: lines that could not be read, passed over; `oversized`: lines too long to be kept.
    - `last_mtime`: when the file was last changed; `generation` goes up when the file became another one.
    - `origin`: the Unix time at which a kaun-board or munin run began, to tell seconds from.

    A file that was cut or replaced is compared, line by line, with what was handed out before: only what is new in
    it comes out.
    """

    def __init__(self, path: str | os.PathLike[str], *, origin: float = 0.0) -> None:
        self.damaged = 0
        self._lines = LineReader(Path(path))
        self._origin = origin
        self._generation = 0
        self._seen = array("q")  # a hash of each line handed out
        self._replay = 0  # how many of those stand unchanged in a file that is being read anew; -1: not replaying

    @property
    def oversized(self) -> int:
        """Lines longer than a reader will hold."""
        return self._lines.oversized

    @property
    def last_mtime(self) -> float:
        """Unix time of the file's last change, as of the last read."""
        return self._lines.last_mtime

    @property
    def generation(self) -> int:
        """How often the file turned out to have lost or changed what was read of it before."""
        return self._lines.generation

    def read_events(self, limit: int | None = None) -> list[Event]:
        """Every event that has come since the last call. Never raises, whatever the file holds.

        `limit`: stop after about so many; the rest comes with the next call.
        """
        events: list[Event] = []
        while (limit is None or len(events) < limit) and (block := self._lines.read_block()):
            if self._lines.generation != self._generation:
                self._generation, self._replay = self._lines.generation, 0
            for line in block.split(b"\n"):
                if line and not line.isspace() and self._is_new(line):
                    event = decode(line, self._origin)
                    if event is None:
                        self.damaged += 1
                    else:
                        events.append(event)
        return events

    def follow(self, finished: Callable[[], bool] | None = None, poll: float = POLL_SECONDS) -> Iterator[list[Event]]:
        """Hand out events as they are written, in batches, until `finished()` says so and nothing is left.

        Without events for a while an empty batch comes about twice a second, so that a caller can look around.
        """
        quiet = 0.0
        while True:
            done = finished is not None and finished()
            if events := self.read_events(limit=10_000):
                quiet = 0.0
                yield events
            elif done:
                return
            else:
                time.sleep(poll)
                quiet += poll
                if quiet >= 0.5:
                    quiet = 0.0
                    yield []

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_new(self, line: bytes) -> bool:
        mark = hash(line)
        if self._replay >= 0 and self._generation:
            if self._replay < len(self._seen) and self._seen[self._replay] == mark:
                self._replay += 1
                return False
            del self._seen[self._replay :]
            self._replay = -1
        self._seen.append(mark)
        return True
