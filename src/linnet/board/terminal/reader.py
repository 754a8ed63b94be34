"""`Reader`: the thread that reads, so that whoever draws never waits for a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from linnet.board.terminal.state import Board
from linnet.board.watched_run import WatchedRun
from linnet.runs import Run, RunError

EVERY = 0.15  # seconds between two looks at the files
_SLICE = 0.05  # seconds of reading between two looks at what else there is to do
_IDLE_LIST = 3.0  # seconds between two looks for new runs while their table is not shown


class Reader(threading.Thread):
    """Reads for a board until stopped; `on_change` is called, from this thread, when there is something to draw."""

    def __init__(self, board: Board, on_change: Callable[[], object]) -> None:
        super().__init__(name="linnet-board-reader", daemon=True)
        self._board = board
        self._on_change = on_change
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._listed = 0.0

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                self._read_safely()
                self._wake.wait(max(0.005, EVERY - (time.monotonic() - began)) if self.idle() else 0.005)
                self._wake.clear()
        finally:
            self._board.close()

    def _read_safely(self) -> None:
        try:
            if self.read_once():
                self._on_change()
        except Exception as error:  # one run that cannot be read must not stop the board for all
            self._board.message = f"reading failed: {type(error).__name__}: {error}"
            self._on_change()
            self._stopping.wait(1.0)

    def read_once(self) -> bool:
        """One round over everything that is watched; True when something is new."""
        board = self._board
        changed = self._open_wanted()
        failed: dict[WatchedRun, Exception] = {}
        for watched in board.watched_runs:
            try:
                changed |= watched.read(_SLICE)
            except Exception as error:  # told below, when the others have been read
                failed[watched] = error
        if all(watched.history.caught_up or watched.gone or watched in failed for watched in board.watched_runs):
            changed |= self._list()
        if board.overlay == "scatter" and board.run_table.scanned:
            changed |= board.scatter.read(_SLICE)
        if board.view == "inside" and board.watched is not None:
            changed |= board.watched.inside.read(_SLICE)
            changed |= board.inside.read()
        if board.watched is not None and (board.view == "system" or (board.view == "metrics" and board.side_width())):
            changed |= board.host.read(board.watched)
        if failed:
            raise next(iter(failed.values()))
        return changed

    def wake(self) -> None:
        """Look now: something was asked for."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def idle(self) -> bool:
        """Everything that was in the files at the last look has been read."""
        board = self._board
        caught_up = all(watched.caught_up for watched in board.watched_runs)
        listing = board.view == "runs" and (
            board.run_table.busy or (board.overlay == "scatter" and board.scatter.unread)
        )
        looking = board.view == "inside" and board.watched is not None and not board.watched.inside.caught_up
        return board.opening is None and caught_up and not listing and not looking

    def _open_wanted(self) -> bool:
        board = self._board
        folders, board.opening = board.opening, None
        if folders is None:
            return False
        open_runs = {str(watched.run.path): watched for watched in board.watched_runs}
        opened = []
        for path in folders:
            try:
                key = str(path)
                opened.append(open_runs.pop(key) if key in open_runs else WatchedRun(Run.load(path), board.limits))
            except RunError as error:
                board.message = str(error)
        board.watched_runs = opened
        for watched in open_runs.values():
            watched.close()
        return True

    def _list(self) -> bool:
        board, now = self._board, time.monotonic()
        shown = board.view == "runs"
        if not shown and now - self._listed < _IDLE_LIST:
            return False
        self._listed = now
        changed = board.run_table.read(_SLICE if shown else 0.0)
        if not board.watched_runs and board.opening is None and board.view == "metrics":
            newest = board.run_table.newest()
            if newest is not None:
                board.opening = [Path(newest.path)]
        return changed
