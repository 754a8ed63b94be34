"""What a page shows first, made ready before anybody asks for it."""

from __future__ import annotations

from contextlib import suppress

from linnet.board.web.answers import RequestError
from linnet.board.web.board import WebBoard
from linnet.board.web.series import SeriesQuestion, answer
from linnet.errors import LinnetError

_MOST_RUNS = 8
_MOST_CHARTS = 12  # of a run: as many as a screen has
_POINTS = 600


def read_ahead(board: WebBoard) -> None:
    """Read the runs that a page shows first, work out their charts, and then read what else they said."""
    with suppress(LinnetError, OSError):
        rows = board.shown_first()[:_MOST_RUNS]
        for row in rows:
            with board.open_runs.use(row.path) as run:
                run.read_numbers()
                keys = run.history.names()[:_MOST_CHARTS]
            if keys:
                with suppress(RequestError):
                    answer(board, SeriesQuestion.of_whole([board.id_of(row)], keys, _POINTS))
        for row in rows:
            with suppress(RequestError), board.open_runs.use_whole(row.path):
                pass
