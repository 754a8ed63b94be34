"""The whole screen: header, body, keys."""

from __future__ import annotations

from linnet.board.terminal.spans import Line
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import detail, grid, header, pages, runs, system

HEAD, FOOT = 3, 1  # lines above and below the body
_BODIES = {
    "metrics": grid.draw,
    "system": system.draw,
    "runs": runs.draw,
    "samples": pages.samples,
    "checkpoints": pages.checkpoints,
    "config": pages.config,
    "notes": pages.notes,
    "log": pages.log,
}


def body(board: Board, width: int, height: int) -> list[Line]:
    """What is between header and keys."""
    board.size = (width, height)
    if board.overlay == "help":
        return pages.help(board, width, height)
    if board.overlay == "differences":
        return pages.differences(board, width, height)
    if board.view == "metrics" and board.detail is not None:
        return detail.draw(board, width, height)
    return _BODIES[board.view](board, width, height)


def whole(board: Board, width: int, height: int) -> list[Line]:
    """One frame."""
    room = max(1, height - HEAD - FOOT)
    return [*header.draw(board, width), *body(board, width, room), header.footer(board, width)][:height]
