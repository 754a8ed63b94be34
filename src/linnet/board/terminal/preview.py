"""`Preview`: the list of runs on the terminal before the application that answers keys has been imported.

The import takes longer than all else from the command to the list; what is already known is read meanwhile.
"""

from __future__ import annotations

import sys
from types import TracebackType

from linnet.board.initial_scan import InitialScan
from linnet.board.terminal.state import Board
from linnet.board.terminal.views.screen import paint, whole

_PATIENCE = 0.5  # seconds that the first look may still take; after it the application comes first
_READING = 0.2  # seconds for the best values and curves of what is listed
_LARGEST = 2**21  # bytes of a stream that is read now, in some 20 ms
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[0m\x1b[?25h\x1b[?1049l"  # the alternate screen, without a cursor


class Preview:
    """Draws the board on a screen of its own; `clear` gives the terminal back, at the latest when the block ends."""

    def __init__(self, board: Board, initial_scan: InitialScan | None, size: tuple[int, int], look: str) -> None:
        self._terminal = sys.__stderr__  # where the application will draw
        self._drawn = False
        if initial_scan is None or self._terminal is None or not self._terminal.isatty():
            return
        if initial_scan.wait(_PATIENCE):
            board.run_table.read(0.0)
            self._drawn = True
            self._write(_ENTER)
            self._draw(board, size, look)
            if board.run_table.read(_READING, _LARGEST):
                self._draw(board, size, look)

    def clear(self) -> None:
        if self._drawn:
            self._drawn = False
            self._write(_LEAVE)

    def __enter__(self) -> Preview:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def _draw(self, board: Board, size: tuple[int, int], look: str) -> None:
        self._write("\x1b[H" + "\r\n".join(paint(line, look) for line in whole(board, *size)))

    def _write(self, text: str) -> None:
        assert self._terminal is not None
        self._terminal.write(text)
        self._terminal.flush()
