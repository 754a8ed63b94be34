"""Decoding a long stream with several processes: turning JSON into columns is most of reading it, and fills one core.

The reader stays in charge: it reads the blocks, gives some to helpers, decodes others itself and takes all of them in
the order of the stream. A helper answers with the stretches of a block, the same as the reader would have made; where
it does not answer, the reader makes them. So what is read never depends on helpers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO

import msgspec
import numpy as np

from linnet.runs.step_shape import Columns, Stretch, stretches

LEAST_BYTES = 128 << 20  # of a stream: a helper takes a quarter of a second to come
_MOST_HELPERS = 3  # what the reader does alone, reading, checksums and keeping, is a third of it all
_AHEAD = 2  # blocks that a helper has before it, so that it need not wait
_MOST_WAITING = 12  # blocks read and not taken yet
_LENGTH = 8  # bytes before every message
_ENCODED = tuple[int, int, tuple[str, ...], list[bytes] | None]  # a stretch; its columns as they lie in memory


def helpers_for(size: int) -> int:
    """How many helpers are worth their start for so many bytes, on the processors that this process may use."""
    if size < LEAST_BYTES or not sys.executable or getattr(sys, "frozen", False):
        return 0
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_HELPERS, cpus - 1)


def in_order(read: Callable[[], bytes], helpers: int) -> Iterator[tuple[bytes, list[Stretch]]]:
    """Every block that `read` gives, in order, with its stretches; ends when `read` gives none."""
    team = [_Helper() for _ in range(helpers)]
    waiting: deque[tuple[bytes, Future[list[Stretch]]]] = deque()
    try:
        while block := read():
            free = min(team, key=lambda helper: helper.ahead, default=None)
            asked = free.ask(block) if free is not None and free.ahead < _AHEAD else _known(list(stretches(block)))
            waiting.append((block, asked))
            while waiting and (waiting[0][1].done() or len(waiting) > _MOST_WAITING):
                block, asked = waiting.popleft()
                yield block, asked.result()
        for block, asked in waiting:
            yield block, asked.result()
    finally:
        for helper in team:
            helper.close()


class _Helper:
    """A process that decodes, and the thread that talks to it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._asked: list[Future[list[Stretch]]] = []
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    @property
    def ahead(self) -> int:
        """How many blocks it has not answered yet."""
        self._asked = [asked for asked in self._asked if not asked.done()]
        return len(self._asked)

    def ask(self, block: bytes) -> Future[list[Stretch]]:
        """Have it decode a block."""
        self._asked.append(self._thread.submit(self._answer, block))
        return self._asked[-1]

    def close(self) -> None:
        """End it; what it was asked and has not answered is not awaited."""
        for asked in self._asked:
            asked.cancel()
        if self._process is not None:
            self._process.kill()
        self._thread.shutdown()
        if self._process is not None:
            with suppress(OSError), self._process:  # what was not sent any more cannot be
                pass
            self._process.wait()

    def _answer(self, block: bytes) -> list[Stretch]:
        process = self._process
        try:
            if process is None or process.stdin is None or process.stdout is None:
                raise EOFError
            _send(process.stdin, block)
            found = msgspec.msgpack.decode(_receive(process.stdout), type=list[_ENCODED])
        except (OSError, EOFError, ValueError):  # it could not start, or died
            return list(stretches(block))
        return [
            Stretch(begin, end, names, None if columns is None else _arrays(columns))
            for begin, end, names, columns in found
        ]


def serve() -> None:
    """What a helper does: answer block after block, until there are no more."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            found = stretches(_receive(sys.stdin.buffer))
            encoded: list[_ENCODED] = [
                (*part[:-1], None if part.columns is None else [column.tobytes() for column in part.columns])
                for part in found
            ]
            _send(sys.stdout.buffer, msgspec.msgpack.encode(encoded))


def _arrays(columns: list[bytes]) -> Columns:
    return [np.frombuffer(column, np.int64 if place == 0 else np.float64) for place, column in enumerate(columns)]


def _known(answer: list[Stretch]) -> Future[list[Stretch]]:
    future: Future[list[Stretch]] = Future()
    future.set_result(answer)
    return future


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(_LENGTH, "little"))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    return _exactly(stream, int.from_bytes(_exactly(stream, _LENGTH), "little"))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    read = stream.read(count)
    if len(read) < count:
        raise EOFError
    return read
