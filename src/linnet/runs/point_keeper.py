"""`PointKeeper`: the points of a run that is being written, collected beside its loop and left when it ends."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from linnet.files import open_regular, read_at
from linnet.runs.lines import BOM, checksum
from linnet.runs.points import PointCollector, UnfitStreamError
from linnet.runs.points_cache import save_points

_SHORTEST = 8 << 10  # bytes of a stream; shorter ones are read as fast as their points
_LONGEST = 8 << 20  # what is collected takes a fourth of that in memory
_AT_ONCE = 1 << 20  # bytes that are taken in between two rests of the thread, or when a run ends: some ten milliseconds
_BLOCK = 256 << 10  # bytes decoded at once

log = logging.getLogger("linnet")


class PointKeeper:
    """Collects the points of a stream while it is written, a part at a time, and leaves them when it has ended.

    The training loop knows nothing of it: what stands in the file is read again, by the thread that looks after a run.
    """

    def __init__(self, events: Path) -> None:
        self._events = events
        self._collector: PointCollector | None = PointCollector()  # None: it was given up
        self._position = self._crc = 0

    def collect(self) -> None:
        """Take in what is new, up to a megabyte of it. Never raises."""
        self._guarded(self._collect)

    def save(self) -> bool:
        """Take in the rest and write all that was collected; False where the rest is too long for the end of a run."""
        return self._guarded(self._save)

    def _guarded(self, work: Callable[[], bool]) -> bool:
        try:
            return self._collector is not None and work()
        except UnfitStreamError as reason:
            log.debug("%s: no points are kept: %s", self._events, reason)
        except Exception:  # a full disk, no memory: the stream has it all
            log.debug("%s: no points are kept", self._events, exc_info=True)
        self._collector = None
        return False

    def _collect(self) -> bool:
        stream = open_regular(self._events)
        try:
            size = os.fstat(stream).st_size
            if size > _LONGEST:
                raise UnfitStreamError("a long stream")
            self._take(stream, min(size, self._position + _AT_ONCE))
        finally:
            os.close(stream)
        return True

    def _save(self) -> bool:
        stream = open_regular(self._events)
        try:
            status = os.fstat(stream)
            unread = status.st_size - self._position
            if not _SHORTEST <= status.st_size <= _LONGEST or unread > _AT_ONCE:
                return False
            if checksum(stream, self._position) != self._crc:
                raise UnfitStreamError("another stream than the one that was collected")
            self._take(stream, status.st_size)
        finally:
            os.close(stream)
        assert self._collector is not None
        save_points(self._events, self._position, self._crc, status, self._collector.metrics)
        return True

    def _take(self, stream: int, end: int) -> None:
        """Take in the whole lines before `end`."""
        assert self._collector is not None
        while self._position < end:
            piece = read_at(stream, min(_BLOCK, end - self._position), self._position)
            if b"\n" not in piece:  # a long line, or one that has no end yet
                piece = read_at(stream, end - self._position, self._position)
            block = piece[: piece.rfind(b"\n") + 1]
            if not block:
                return
            self._collector.take(block if self._position else block.removeprefix(BOM))
            self._position += len(block)
            self._crc = zlib.crc32(block, self._crc)
