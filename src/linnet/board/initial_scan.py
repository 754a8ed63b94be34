"""The first scan of all runs, by a forked process while this one still imports what draws them.

Importing takes 0.4 s and looking at 2,000 runs 0.25 s; side by side, the list stands when the screen does.
"""

from __future__ import annotations

import gc
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from linnet.runs import RunStore, RunSummary
from linnet.runs.folder import EVENTS, MANIFEST
from linnet.runs.processes import in_processes
from linnet.runs.summary import summarize

Stamp = tuple[int, int, int]  # the stream's time of change and size, the manifest's time of change


class InitialScan:
    """Begin to scan the runs of a store. To be made before there are threads, which a fork would not take along.

    `process`: who looks; negative where nobody does.
    """

    def __init__(self, store: RunStore) -> None:
        self._answer, self.process = -1, -1
        if sys.platform != "linux":  # elsewhere a fork is dear, unsafe or not there: the reader looks by itself
            return
        self._answer, question = os.pipe()
        with suppress(OSError):  # no process more is allowed
            self.process = os.fork()
        if self.process == 0:
            os.close(self._answer)  # else nobody would tell this process that the other has died
            _send(store, question)
        os.close(question)

    def wait(self, seconds: float) -> bool:
        """Wait for the answer, at most so long; True when `result` has it at once."""
        if self._answer < 0:
            return False
        waiting = select.poll()
        waiting.register(self._answer, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def result(self) -> list[tuple[Stamp, RunSummary]] | None:
        """Every run with its stamp, waited for; None when there is no answer: the runs are still to be looked at."""
        if self._answer < 0:
            return None
        with open(self._answer, "rb") as pipe:  # noqa: PTH123 - a descriptor, not a path
            encoded = pipe.read()
        self._answer = -1
        if self.process > 0:
            with suppress(ChildProcessError):  # whoever started us lets the system clear away our processes
                os.waitpid(self.process, 0)
        with suppress(msgspec.MsgspecError):
            return msgspec.msgpack.decode(encoded, type=list[tuple[Stamp, RunSummary]])
        return None


def stamp_of(folder: str) -> Stamp:
    """Changes whenever the run's stream or manifest does."""
    stamp = []
    for name in (EVENTS, MANIFEST):
        try:
            stat = os.stat(f"{folder}/{name}")  # noqa: PTH116 - two of these for each run, every second
            stamp += [stat.st_mtime_ns, stat.st_size]
        except OSError:
            stamp += [0, 0]
    return stamp[0], stamp[1], stamp[2]


def _send(store: RunStore, pipe: int) -> None:
    """In the forked process: look, answer, end, without anything that the other process has still to do at its end."""
    try:
        folders = list(store.folders())
        stamps = [stamp_of(str(folder)) for folder in folders]
        summaries = in_processes(folders, summarize, RunSummary)
        runs = [(stamp, summary) for stamp, summary in zip(stamps, summaries, strict=True) if summary is not None]
        with open(pipe, "wb") as answer:
            answer.write(msgspec.msgpack.encode(runs))
    finally:
        os._exit(0)


@contextmanager
def without_collection() -> Iterator[None]:
    """Import or build what stays to the end without collecting garbage on the way, and leave it out of later rounds.

    That is 6 % of the terminal's loading, and while the board runs a round over all of it would hold up a key.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()
