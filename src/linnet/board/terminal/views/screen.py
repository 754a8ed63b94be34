"""The whole screen: header, body, keys; and one frame of it, printed, for pipes, logs and CI."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from rich.color import ColorSystem

from linnet.board.terminal import palette
from linnet.board.terminal.reader import Reader
from linnet.board.terminal.spans import Line, text_of
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import detail, grid, header, pages, runs, system

HEAD, FOOT = 3, 1  # lines above and below the body
_BODIES = {"metrics": grid.draw, "system": system.draw, "runs": runs.draw}  # the other tabs are pages


def body(board: Board, width: int, height: int) -> list[Line]:
    """What is between header and keys."""
    board.size = (width, height)
    draw = detail.draw if board.area == "detail" else _BODIES.get(board.overlay or board.view, pages.draw)
    return draw(board, width, height)


def whole(board: Board, width: int, height: int) -> list[Line]:
    """The screen as it stands."""
    room = max(1, height - HEAD - FOOT)
    return [*header.draw(board, width), *body(board, width, room), header.footer(board, width)][:height]


def frame(board: Board, width: int, height: int) -> list[Line]:
    """The screen once everything has been read."""
    reader = Reader(board, lambda: None)
    board.size = (width, max(1, height - HEAD - FOOT))
    rounds = 0
    while rounds < 2:  # the second for what the first has asked for
        reader.read_once()
        rounds += reader.idle()
    return whole(board, width, height)


def print_frame(board: Board, width: int, height: int, theme: str) -> None:
    """Read all that there is, and print the board as it stands; in colour only on a terminal that wants it."""
    lines = frame(board, width, height)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe may have an encoding without dots and lines
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        print("\n".join(_painted(line, theme) for line in lines))
    else:
        print(text_of(lines))


def _painted(line: Line, theme: str) -> str:
    return "".join(palette.look(style, theme).render(text, color_system=ColorSystem.TRUECOLOR) for text, style in line)
