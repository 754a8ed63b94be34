"""`EventStream`: the events of a run, as they come."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from linnet.runs.events import Event, decode
from linnet.runs.lines import LineReader, end_of_lines, lines_backwards, split_lines

POLL_SECONDS = 0.02


class EventStream:
    """Reads `events.jsonl` while it is being written; each event is handed out once.

    - `damaged`: lines that could not be read, passed over; `oversized`: lines too long to be kept.
    - `generation` goes up when the file became another one.
    - `origin`: the Unix time at which a kaun-board or munin run began, to tell seconds from.

    A file that was cut or replaced is compared, line by line, with what was handed out before: only what is new in
    it comes out.

    `last` begins at the end instead: what stands before is passed over, and counts as handed out.
    """

    def __init__(self, path: str | os.PathLike[str], *, origin: float = 0.0) -> None:
        self.damaged = 0
        self._lines = LineReader(Path(path))
        self._origin = origin
        self._generation = 0
        self._seen = array("q")  # a hash of each line handed out
        self._begin = 0  # where in the file reading begins; lines before are remembered, not decoded
        self._waiting: list[Event] = []  # decoded, not handed out yet
        self._replay = 0  # how many of those stand unchanged in a file that is being read anew; -1: not replaying

    @property
    def oversized(self) -> int:
        """Lines longer than a reader will hold."""
        return self._lines.oversized

    @property
    def generation(self) -> int:
        """How often the file turned out to have lost or changed what was read of it before."""
        return self._lines.generation

    def last(self, count: int, predicate: Callable[[Event], bool] | None = None) -> list[Event]:
        """The last `count` events of those there are, found from the end; `read_events` then goes on behind them.

        For a stream of which nothing was read yet. `predicate`: count and return only events that it takes.
        """
        path = self._lines.path
        end = self._begin = end_of_lines(path)
        lines = lines_backwards(path, farthest=end, end=end, longest_line=self._lines.longest_line)
        events = (event for line in lines if (event := decode(line, self._origin)) is not None)
        return list(islice(filter(predicate or (lambda event: True), events), max(0, count)))[::-1]

    def read_events(self, limit: int | None = None) -> list[Event]:
        """Every event that has come since the last call. Never raises, whatever the file holds.

        `limit`: stop after about so many; the rest comes with the next call.
        """
        self._pass_over()
        events, self._waiting = self._waiting, []
        while (limit is None or len(events) < limit) and (block := self._lines.read_block()):
            events += self._take(block)
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

    def _take(self, block: bytes) -> list[Event]:
        events = []
        if self._lines.generation != self._generation:
            self._generation, self._replay = self._lines.generation, 0
        for line in split_lines(block):
            if self._is_new(line):
                event = decode(line, self._origin)
                if event is None:
                    self.damaged += 1
                else:
                    events.append(event)
        return events

    def _pass_over(self) -> None:
        """Remember the lines before the beginning, so that they stay known when the file is replaced."""
        while self._lines.position < self._begin and (block := self._lines.read_block()):
            beyond = max(0, self._lines.position - self._begin)
            past = block[: len(block) - beyond]
            self._seen.extend(map(hash, split_lines(past)))
            self._waiting = self._take(block[len(past) :])
        self._begin = 0

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
