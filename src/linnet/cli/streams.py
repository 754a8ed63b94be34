"""Standard output and standard error: any encoding will do, and a training outlives the screen it is watched on."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast

from linnet.board.words import plain


def prepare_streams() -> None:
    """Replace characters that an encoding does not have; streams that are closed from the start lead nowhere."""
    for descriptor in (0, 1, 2):  # the next file to be opened would get a free one, and a library's warnings in it
        try:
            os.fstat(descriptor)
        except OSError:
            _lead_nowhere(descriptor)
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for the process
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def settle_streams() -> None:
    """Write what is still held; what nobody takes is dropped, so that the interpreter does not stumble over it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            discard(stream)


_drawn: TextIO | None = None  # the terminal in whose last line progress stands


def draw_over(text: str, stream: TextIO, *, end: str = "") -> None:
    """Progress in the last line of a terminal, in place of what stood there; `end`: a newline lets it stand."""
    global _drawn
    _drawn = stream if text and not end else None
    print(f"\r\x1b[K{text}", end=end, file=stream, flush=True)


def complain(message: str) -> None:
    """One line on stderr, in which nothing that was read from a file can steer the terminal."""
    with suppress(OSError, ValueError):  # nobody is there to read it; the exit code still says it
        if _drawn is not None:
            draw_over("", _drawn)
        print(f"linnet: {plain(message)}", file=sys.stderr)


def discard(stream: TextIO) -> None:
    """From here on, what is written to a stream goes nowhere, and what it still holds too."""
    with suppress(OSError, ValueError):  # a stream of a test or of a program around this one has no descriptor
        _lead_nowhere(stream.fileno())


def _lead_nowhere(descriptor: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)


class LastingStream(io.TextIOBase):
    """A stream that never raises: when its terminal, pipe or disk is gone, it goes quiet for good."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def write(self, text: str, /) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, action: Callable[..., object], *arguments: str) -> None:
        if self._gone:
            return
        try:
            action(*arguments)
        except BlockingIOError:  # a reader that is slow, on a stream that does not wait for it
            pass
        except (OSError, ValueError):
            self._gone = True
            discard(self._stream)

    def isatty(self) -> bool:
        try:
            return not self._gone and self._stream.isatty()
        except ValueError:
            return False

    def fileno(self) -> int:
        return self._stream.fileno()


@contextmanager
def lasting_output() -> Iterator[None]:
    """Within it nothing that is printed raises, whatever becomes of the streams behind stdout and stderr."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, LastingStream(stream)) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
