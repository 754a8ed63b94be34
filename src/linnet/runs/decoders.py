"""Decoding a long stream with several processes: turning JSON into columns is most of reading it, and fills one core.

The reader stays in charge: it reads the blocks, gives some to helpers, decodes others itself and takes all of them in
the order of the stream. A helper answers with the stretches of a block, the same as the reader would have made; where
it does not answer, the reader makes them. So what is read never depends on helpers.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
import numpy as np

from linnet.files import read_at
from linnet.runs.lines import LineReader
from linnet.runs.step_shape import Columns, Stretch, stretches

LEAST_BYTES = 128 << 20  # of a stream: a helper takes a quarter of a second to come
_MOST_HELPERS = 3  # what the reader does alone, reading, checksums and keeping, is a third of it all
_AHEAD = 2  # blocks that a helper has before it, so that it need not wait
_MOST_WAITING = 12  # blocks read and not taken yet
_PIPE = 1 << 20  # bytes: an answer fits, and nobody waits for the other
_ENCODED = tuple[int, int, tuple[str, ...], list[bytes] | None]  # a stretch; its columns as they lie in memory


def helpers_for(size: int) -> int:
    """How many helpers are worth their start for so many bytes, on the processors that this process may use."""
    if size < LEAST_BYTES or os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
        return 0
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_HELPERS, cpus - 1)


def in_order(
    reader: LineReader, helpers: int, read: Callable[[], bytes] | None = None
) -> Iterator[tuple[bytes, list[Stretch]]]:
    """Every block of the reader, in order, with its stretches; `read` gives the next one, and may end it before."""
    read = read or reader.read_block
    team: list[_Helper] = []
    waiting: deque[tuple[bytes, list[Stretch] | _Helper]] = deque()
    try:
        while block := read():
            team = team or [_Helper(reader.descriptor) for _ in range(helpers)]  # the file is open only now
            free = min(team, key=lambda helper: helper.ahead, default=None)
            if free is not None and free.ahead < _AHEAD:
                free.ask(reader.position - len(block), len(block))
                waiting.append((block, free))
            else:
                waiting.append((block, list(stretches(block))))
            while waiting and (_is_known(waiting[0][1]) or len(waiting) > _MOST_WAITING):
                yield _known(*waiting.popleft())
        while waiting:
            yield _known(*waiting.popleft())
    finally:
        for helper in team:
            helper.close()


def _is_known(answer: list[Stretch] | _Helper) -> bool:
    return answer.has_answer() if isinstance(answer, _Helper) else True


def _known(block: bytes, answer: list[Stretch] | _Helper) -> tuple[bytes, list[Stretch]]:
    decoded = answer.answer() if isinstance(answer, _Helper) else answer
    return block, list(stretches(block)) if decoded is None else decoded


class _Helper:
    """A process that decodes blocks of the file that is open as `fd`. `ahead`: how many it was asked and has still."""

    def __init__(self, fd: int) -> None:
        self.ahead = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = select.poll()
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve({fd})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=[fd],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            assert self._process.stdout is not None
            self._answers.register(self._process.stdout)
            _widen(self._process.stdout.fileno())

    def ask(self, offset: int, length: int) -> None:
        """Have it decode the block that stands there."""
        self.ahead += 1
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it has died: there will be no answer
                self._process.stdin.write(_message(offset, length))

    def has_answer(self) -> bool:
        """It need not be waited for."""
        return self._process is None or bool(self._answers.poll(0))

    def answer(self) -> list[Stretch] | None:
        """What it found in the block that it was asked first; None: it has died, or could not start."""
        self.ahead -= 1
        if self._process is None or self._process.stdout is None:
            return None
        try:
            (length,) = _numbers(self._process.stdout.fileno(), 1)
            encoded = msgspec.msgpack.decode(_exactly(self._process.stdout.fileno(), length), type=list[_ENCODED])
        except (OSError, EOFError, ValueError):
            return None
        return [
            Stretch(begin, end, names, None if columns is None else _arrays(columns))
            for begin, end, names, columns in encoded
        ]

    def close(self) -> None:
        """End it, whatever it is at."""
        if self._process is not None:
            self._process.kill()
            with self._process:
                pass


def serve(fd: int) -> None:
    """What a helper does: answer for block after block of the file, until it is asked no more."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            offset, length = _numbers(0, 2)
            block = read_at(fd, length, offset)
            encoded: list[_ENCODED] = [
                (*part[:-1], None if part.columns is None else [column.tobytes() for column in part.columns])
                for part in stretches(block)
            ]
            answer = msgspec.msgpack.encode(encoded)
            sent = memoryview(_message(len(answer)) + answer)
            while sent:
                sent = sent[os.write(1, sent) :]


def _widen(pipe: int) -> None:
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


def _arrays(columns: list[bytes]) -> Columns:
    return [np.frombuffer(column, np.int64 if place == 0 else np.float64) for place, column in enumerate(columns)]


def _message(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def _numbers(fd: int, count: int) -> list[int]:
    read = _exactly(fd, 8 * count)
    return [int.from_bytes(read[at : at + 8], "little") for at in range(0, 8 * count, 8)]


def _exactly(fd: int, count: int) -> bytes:
    parts, missing = [], count
    while missing:
        parts.append(os.read(fd, missing))
        missing -= len(parts[-1])
        if not parts[-1]:
            raise EOFError
    return b"".join(parts)
