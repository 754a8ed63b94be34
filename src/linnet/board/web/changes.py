"""The stream of changes: what is new in the folder of runs, told to every page that looks, and only that.

Nothing is watched while nobody looks. A thread is told by the system which folders changed, reads what is new in the
runs that some page shows, and hands each page its messages; after each round it rests for so long that all of it stays
below a twentieth of a core.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from linnet.board.initial_scan import Stamp, stamp_of
from linnet.board.run_table import RunRow
from linnet.board.web.answers import RequestError
from linnet.board.web.board import WebBoard
from linnet.board.web.follower import Follower, RunState, event
from linnet.board.web.parameters import Parameters
from linnet.board.web.table import columns_of_text, read_metrics, run_row
from linnet.board.web.watcher import FolderWatcher
from linnet.errors import LinnetError
from linnet.runs import RunSummary
from linnet.runs.columns import Term
from linnet.runs.selection import Selection

MOST_STREAMS = 64
_ALIVE_SECONDS = 15.0
_SEND_SECONDS = 10.0  # for which a page may not take what it is sent
_SHARE = 0.05  # of a core, at most
_LONGEST_REST = 1.0
_ROW_SECONDS = 0.5  # between two messages about one row of the table
_SCAN_SECONDS = 1.0


Messages = dict[int, bytes]  # by the page that they are for


class Changes:
    """The streams that are open, and the watcher while there are some."""

    def __init__(self, board: WebBoard) -> None:
        self._board = board
        self._followers: list[Follower] = []
        self._watcher = FolderWatcher(board.store.root, self._round)
        self._lock = threading.Lock()  # a round, or a follower's first messages, at a time
        self._loop: asyncio.AbstractEventLoop | None = None
        self._summaries: dict[str, RunSummary] = {}  # of rows as they were last sent, by id
        self._version: int | None = None  # of the table then
        self._sent_at: dict[str, float] = {}
        self._late: set[str] = set()  # folders of rows that changed and were not sent yet
        self._states: dict[str, RunState] = {}
        self._seen: dict[str, Stamp] = {}
        self._terms: tuple[list[RunRow], dict[str, list[Term]]] = ([], {})
        self._looked = 0.0
        self._round_began, self._cpu = 0.0, 0.0

    # -- the event loop's side -----------------------------------------------------------------------------------

    async def endpoint(self, request: Request) -> Response:
        follower = Follower.of(Parameters(request.query_params))
        if len(self._followers) >= MOST_STREAMS:
            raise RequestError(503, f"{MOST_STREAMS} pages look already; close some of them")
        self._followers.append(follower)
        return _EventStream(self, follower)

    async def add(self, follower: Follower) -> None:
        """Begin to tell a page; the watcher starts with the first of them."""
        self._loop = asyncio.get_running_loop()
        if not self._watcher.running:
            self._watcher.watch(self._watched_folders())
            self._watcher.start()
        await asyncio.to_thread(self._begin, follower)

    async def remove(self, follower: Follower) -> None:
        """Stop telling a page; the watcher ends with the last of them."""
        if follower in self._followers:
            self._followers.remove(follower)
        if not self._followers and self._watcher.running:
            await self._stop_watching()
            if not self._followers:
                self._forget()

    async def scan_now(self) -> None:
        """Something was changed through this server."""
        if self._followers:
            await asyncio.to_thread(self._look_and_send)

    async def close(self) -> None:
        """End all streams."""
        for follower in self._followers:
            follower.drop()
        await self._stop_watching()

    async def _stop_watching(self) -> None:
        """End the watcher. It counts as ended before this waits: a page that comes meanwhile starts another."""
        thread = self._watcher.stop()
        if thread is not None:
            await asyncio.to_thread(thread.join)

    # -- the watcher's side --------------------------------------------------------------------------------------

    def _begin(self, follower: Follower) -> None:
        """The first messages of a page: where the table stands, and what it does not have of its series yet."""
        with self._lock:
            messages = self._scan(now=False)
            messages[id(follower)] = event("runs", {"position": self._board.position, "rows": [], "gone": []})
            for row in self._board.known(follower.runs):
                self._seen[row.path] = stamp_of(row.path)
                _join(messages, self._run_messages(row, first=False))
            for row in self._board.known(follower.watched):  # read when it changes: there may be many, and long ones
                self._seen.setdefault(row.path, stamp_of(row.path))
            self._watcher.watch(self._watched_folders())
            self._send_all(messages)

    def _round(self, folders: set[str], ticked: bool) -> None:
        """Read what is new and hand it out; then rest."""
        with self._lock, suppress(LinnetError, OSError):
            messages: Messages = {}
            if ticked or str(self._board.store.root) in folders or time.monotonic() - self._looked >= _SCAN_SECONDS:
                messages = self._scan(now=False)
            _join(messages, self._row_messages(self._changed_paths(folders)))
            for row in self._followed_rows():
                stamp = stamp_of(row.path)
                grown = self._seen.get(row.path) != stamp
                if row.path in folders or grown:
                    self._seen[row.path] = stamp
                    _join(messages, self._run_messages(row, first=grown))
            self._watcher.watch(self._watched_folders())
            self._send_all(messages)
        self._throttle()

    def _look_and_send(self) -> None:
        with self._lock, suppress(LinnetError, OSError):
            messages = self._scan(now=True)
            self._send_all(messages)

    def _scan(self, *, now: bool) -> Messages:
        """Look at the whole table: messages about rows that are new, changed or gone."""
        self._looked = time.monotonic()
        self._board.scan(now=now)
        with self._board.lock:
            if self._version == self._board.version:
                return {}
            first, self._version = self._version is None, self._board.version
            rows = {self._board.id_of(row): row for row in [*self._board.table.rows, *self._board.table.archived]}
        removed = [run_id for run_id in self._summaries if run_id not in rows]
        for run_id in removed:
            self._states.pop(run_id, None)
        changed = [row for run_id, row in rows.items() if self._summaries.get(run_id) is not row.summary]
        self._summaries = {run_id: row.summary for run_id, row in rows.items()}
        return {} if first or not (changed or removed) else self._rows_messages(changed, removed)

    def _changed_paths(self, folders: set[str]) -> list[str]:
        """The folders of runs whose rows are to be looked at: those that changed, and those that waited long enough."""
        now = time.monotonic()
        with self._board.lock:
            known = {row.path for row in self._board.table.rows} if folders or self._late else set()
        self._late |= folders & known
        due = [path for path in self._late if now - self._sent_at.get(path, 0.0) >= _ROW_SECONDS]
        self._late.difference_update(due)
        for path in due:
            self._sent_at[path] = now
        return due

    def _row_messages(self, paths: list[str]) -> Messages:
        changed = self._board.scan_folders(paths) if paths else []
        for row in changed:
            self._summaries[self._board.id_of(row)] = row.summary
        return self._rows_messages(changed, []) if changed else {}

    def _rows_messages(self, changed: list[RunRow], removed: list[str]) -> Messages:
        """For each page the rows that changed, with the columns that it shows."""
        by_columns: dict[str | None, bytes] = {}
        messages = {}
        now = time.time()
        for follower in list(self._followers):
            if follower.columns not in by_columns:
                terms = self._terms_of(follower.columns)
                read_metrics(self._board, changed, terms)
                rows = [run_row(self._board, row, now, terms) for row in changed]
                data = {"position": self._board.position, "rows": rows, "gone": removed}
                by_columns[follower.columns] = event("runs", data)
            messages[id(follower)] = by_columns[follower.columns]
        return messages

    def _terms_of(self, columns: str | None) -> list[Term]:
        """What columns mean, worked out once for the runs there are."""
        rows = self._board.table.rows
        if not columns:
            return []
        if self._terms[0] is not rows:
            self._terms = rows, {}
        if columns not in self._terms[1]:
            selection = Selection(self._board.store.root, [row.record for row in rows])
            self._terms[1][columns] = columns_of_text(selection, columns)[0]
        return self._terms[1][columns]

    def _followed_rows(self) -> list[RunRow]:
        runs = dict.fromkeys(run_id for follower in self._followers for run_id in (*follower.runs, *follower.watched))
        return self._board.known(list(runs))

    def _run_messages(self, row: RunRow, *, first: bool) -> Messages:
        """What is new in one run, for each page that shows it; `first`: of one that was never read, everything."""
        run_id, messages = self._board.id_of(row), dict[int, bytes]()
        with suppress(RequestError), self._board.open_runs.use_whole(row.path) as run:
            changed = self._states.setdefault(run_id, RunState()).changes(run, first=first)
            message = event("run", {"id": run_id, "parts": changed}) if changed else b""
            for follower in list(self._followers):
                if follower.hears_of(run_id):
                    messages[id(follower)] = message + follower.series_changes(run_id, run)
        return messages

    def _watched_folders(self) -> list[str]:
        """Those of runs that pages show, and of all that are being written."""
        with self._board.lock:
            live = [row.path for row in self._board.table.rows if row.summary.status in ("live", "stalled")]
        return list(dict.fromkeys([*(row.path for row in self._followed_rows()), *live[-256:]]))

    def _send_all(self, messages: Messages) -> None:
        for follower in list(self._followers):
            message = messages.get(id(follower), b"")
            if message and self._loop is not None:
                with suppress(RuntimeError):  # the server is ending
                    self._loop.call_soon_threadsafe(follower.push, message)

    def _throttle(self) -> None:
        """Wait until what this process used since the last round is a small share of a core."""
        used, self._cpu = time.process_time() - self._cpu, time.process_time()
        now = time.monotonic()
        passed, self._round_began = now - self._round_began, now
        pause = min(_LONGEST_REST, used / _SHARE - passed)
        if pause > 0:
            time.sleep(pause)
            self._round_began = time.monotonic()

    def _forget(self) -> None:
        """Nobody looks any more."""
        self._summaries.clear()
        self._version = None
        self._states.clear()
        self._seen.clear()
        self._late.clear()
        self._sent_at.clear()


def _join(messages: Messages, further: Messages) -> None:
    """Put further messages behind those there are."""
    for follower, message in further.items():
        messages[follower] = messages.get(follower, b"") + message


class _EventStream(Response):
    """Sends a page its messages until it leaves, or does not take them."""

    def __init__(self, changes: Changes, follower: Follower) -> None:
        super().__init__(media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._changes, self._follower = changes, follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(_left(receive, self._follower))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._changes.add(self._follower)
            message = b"retry: 1000\n\n"
            while not self._follower.dropped:
                await asyncio.wait_for(_piece(send, message), _SEND_SECONDS)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._follower.woken.wait(), _ALIVE_SECONDS)
                message = self._follower.take() or b": here\n\n"
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), 1.0)
        except (TimeoutError, OSError):
            pass  # it does not take what it is sent: whoever closes the connection ends it
        finally:
            leaving.cancel()
            await asyncio.shield(self._changes.remove(self._follower))


async def _piece(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _left(receive: Receive, follower: Follower) -> None:
    """Wait until the page has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    follower.drop()
