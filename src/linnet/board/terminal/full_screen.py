"""Images one after another on the whole screen, in the terminal's own graphics, while the board stands aside."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from types import TracebackType

from linnet.board.picture import fitted_size, resized
from linnet.board.terminal import graphics
from linnet.board.terminal.graphics import Protocol
from linnet.board.words import number, plain, shorten
from linnet.runs import Artifact, ArtifactError
from linnet.runs.media.images import as_rgb

if sys.platform != "win32":
    import fcntl
    import struct
    import termios
    import tty

_PATIENCE = 0.4  # seconds for a terminal, perhaps far away, to say what it can
_CELL = (8, 16)  # pixels of a character, where the terminal does not tell
_MOST_PIXELS = (1600, 1200)  # that are sent
_ENTER, _LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"  # the alternate screen, without a cursor
_CLEAR, _LAST_LINE = b"\x1b[2J\x1b[H", b"\x1b[%d;1H\x1b[2K"
_STEPS = {b"\x1b[C": 1, b"\x1bOC": 1, b"\x1b[D": -1, b"\x1bOD": -1, b"l": 1, b"h": -1, b" ": 1}


class RawTerminal:
    """The terminal without an application: keys come one by one and are not shown, and questions are answered."""

    def __init__(self, keys_from: int, draws_on: int) -> None:
        self._in, self._out = keys_from, draws_on

    def __enter__(self) -> RawTerminal:
        self._before = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._out, view) :]
            except BlockingIOError:
                select.select([], [self._out], [], 1.0)

    def ask(self, question: bytes) -> bytes:
        """Send a question; what is answered until it is complete, or for a moment."""
        self.write(question)
        answer, deadline = b"", time.monotonic() + _PATIENCE
        while not graphics.is_answered(answer) and (left := deadline - time.monotonic()) > 0:
            if select.select([self._in], [], [], left)[0]:
                answer += os.read(self._in, 1024)
        return answer

    def key(self) -> bytes:
        """The next key; an arrow as the sequence it is. Empty when the terminal is gone."""
        pressed = os.read(self._in, 1)
        while pressed[:1] == b"\x1b" and len(pressed) < 3 and select.select([self._in], [], [], 0.05)[0]:
            pressed += os.read(self._in, 1)
        return pressed

    def size(self) -> tuple[int, int, int, int]:
        """Columns, lines, and the pixels of a character across and down."""
        lines, columns, across, down = struct.unpack("HHHH", fcntl.ioctl(self._out, termios.TIOCGWINSZ, bytes(8)))
        columns, lines = columns or 80, lines or 24
        return columns, lines, across // columns or _CELL[0], down // lines or _CELL[1]


def terminal_of_process() -> RawTerminal | None:
    """The terminal that this process draws on; None where there is none, and on Windows."""
    stdin, stderr = sys.__stdin__, sys.__stderr__
    if sys.platform == "win32" or stdin is None or stderr is None or not (stdin.isatty() and stderr.isatty()):
        return None
    return RawTerminal(stdin.fileno(), stderr.fileno())


def browse_images(terminal: RawTerminal, protocol: Protocol, artifacts: Sequence[Artifact], at: int) -> int:
    """Show images until a key other than an arrow is pressed; the place of the last that was seen."""
    terminal.write(_ENTER)
    try:
        while True:
            terminal.write(_picture(terminal, protocol, artifacts[at], f"{at + 1}/{len(artifacts)}"))
            pressed = terminal.key()
            if pressed not in _STEPS:
                return at
            at = min(max(at + _STEPS[pressed], 0), len(artifacts) - 1)
    finally:
        terminal.write((graphics.KITTY_CLEAR if protocol == "kitty" else b"") + _LEAVE)


def _picture(terminal: RawTerminal, protocol: Protocol, artifact: Artifact, place: str) -> bytes:
    """A cleared screen, the image as large as it fits, and a line that says what it is."""
    columns, lines, cell_width, cell_height = terminal.size()
    clear = (graphics.KITTY_CLEAR if protocol == "kitty" else b"") + _CLEAR
    step = f"step {number(artifact.step)}" if artifact.step is not None else ""
    title = f" {plain(artifact.name)}  {step}  {place}  ← → steps, any other key goes back"
    last_line = _LAST_LINE % lines + shorten(title, max(1, columns - 1)).encode()
    try:
        drawn = in_graphics(protocol, artifact, columns, lines - 1, (cell_width, cell_height))
    except ArtifactError as error:
        drawn = shorten(plain(error), columns * 4).encode()
    return clear + drawn + last_line


def in_graphics(protocol: Protocol, artifact: Artifact, columns: int, lines: int, cell: tuple[int, int]) -> bytes:
    """An image in at most so many characters of a size in pixels. ArtifactError where it cannot be decoded."""
    pixels = as_rgb(artifact.load(), ground=24)
    across, down = columns * cell[0], lines * cell[1]
    width, height = fitted_size(pixels.shape[1], pixels.shape[0], across, down, most_scale=8.0)
    sent = resized(pixels, *fitted_size(width, height, *_MOST_PIXELS, most_scale=1.0))
    return graphics.encode(protocol, sent, max(1, width // cell[0]), max(1, height // cell[1]))
