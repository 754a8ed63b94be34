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

from linnet.board.first_look import Stamp, stamp_of
from linnet.board.run_table import RunRow
from linnet.board.web import answers
from linnet.board.web.answers import RequestError
from linnet.board.web.board import WebBoard
from linnet.board.web.follower import Follower, RunState, event
from linnet.board.web.parameters import Parameters
from linnet.board.web.table import columns_of_text, read_metrics, run_row
from linnet.board.web.watcher import FolderWatcher
from linnet.errors import LinnetError
from linnet.runs.selection import Selection

MOST_STREAMS = 64
_ALIVE_SECONDS = 15.0
_SEND_SECONDS = 10.0  # for which a page may not take what it is sent
_SHARE = 0.05  # of a core, at most
_LONGEST_REST = 1.0
_ROW_SECONDS = 0.5  # between two messages about one row of the table
_LOOK_SECONDS = 1.0


class Changes:
    """The streams that are open, and the watcher while there are some."""

    def __init__(self, board: WebBoard) -> None:
        self._board = board
        self._followers: list[Follower] = []
        self._watcher = FolderWatcher(board.store.root, self._round)
        self._lock = threading.Lock()  # a round, or a follower's first messages, at a time
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rows: dict[str, answers.RunRow] = {}  # as they were last sent
        self._knows_rows = False  # they were looked at; a folder may have none
        self._sent_at: dict[str, float] = {}
        self._late: set[str] = set()  # folders of rows that changed and were not sent yet
        self._states: dict[str, RunState] = {}
        self._seen: dict[str, Stamp] = {}
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
            await asyncio.to_thread(self._watcher.stop)
            self._forget()

    async def look_now(self) -> None:
        """Something was changed through this server."""
        if self._followers:
            await asyncio.to_thread(self._look_and_send)

    async def close(self) -> None:
        """End all streams."""
        for follower in self._followers:
            follower.drop()
        await asyncio.to_thread(self._watcher.stop)

    # -- the watcher's side --------------------------------------------------------------------------------------

    def _begin(self, follower: Follower) -> None:
        """The first messages of a page: where the table stands, and what it does not have of its series yet."""
        with self._lock:
            self._look(now=False)
            message = event("runs", {"position": self._board.position, "rows": [], "gone": []})
            for row in self._board.known(follower.runs):
                message += self._told_of_run([follower], row).get(id(follower), b"")
                self._seen[row.path] = stamp_of(row.path)
            self._watcher.watch(self._watched_folders())
        self._send(follower, message)

    def _round(self, folders: set[str], ticked: bool) -> None:
        """Read what is new and hand it out; then rest."""
        with self._lock, suppress(LinnetError, OSError):
            messages: dict[int, bytes] = {}
            if ticked or str(self._board.store.root) in folders or time.monotonic() - self._looked >= _LOOK_SECONDS:
                messages = self._look(now=False)
            for follower_id, message in self._told_of_rows(self._changed_paths(folders)).items():
                messages[follower_id] = messages.get(follower_id, b"") + message
            for row in self._followed_rows():
                if row.path in folders or self._seen.get(row.path) != stamp_of(row.path):
                    self._seen[row.path] = stamp_of(row.path)
                    for follower_id, message in self._told_of_run(self._followers, row).items():
                        messages[follower_id] = messages.get(follower_id, b"") + message
            self._watcher.watch(self._watched_folders())
            for follower in list(self._followers):
                self._send(follower, messages.get(id(follower), b""))
        self._rest()

    def _look_and_send(self) -> None:
        with self._lock, suppress(LinnetError, OSError):
            messages = self._look(now=True)
            for follower in list(self._followers):
                self._send(follower, messages.get(id(follower), b""))

    def _look(self, *, now: bool) -> dict[int, bytes]:
        """Look at the whole table: messages about rows that are new, changed or gone."""
        self._looked = time.monotonic()
        self._board.look(now=now)
        with self._board.lock:
            rows = [*self._board.table.rows, *self._board.table.archived]
        first, self._knows_rows = not self._knows_rows, True
        known = {self._board.id_of(row): row for row in rows}
        gone = [run_id for run_id in self._rows if run_id not in known]
        for run_id in gone:
            del self._rows[run_id]
            self._states.pop(run_id, None)
        now_seconds = time.time()
        changed = []
        for run_id, row in known.items():
            shown = _without_time(run_row(self._board, row, now_seconds))
            if self._rows.get(run_id) != shown:
                self._rows[run_id] = shown
                changed.append(row)
        return {} if first or not (changed or gone) else self._rows_messages(changed, gone)

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

    def _told_of_rows(self, paths: list[str]) -> dict[int, bytes]:
        changed = self._board.look_at(paths) if paths else []
        for row in changed:
            self._rows[self._board.id_of(row)] = _without_time(run_row(self._board, row, time.time()))
        return self._rows_messages(changed, []) if changed else {}

    def _rows_messages(self, changed: list[RunRow], gone: list[str]) -> dict[int, bytes]:
        """For each page the rows that changed, with the columns that it shows."""
        by_columns: dict[str | None, bytes] = {}
        messages = {}
        now = time.time()
        for follower in self._followers:
            if follower.columns not in by_columns:
                selection = Selection(self._board.store.root, [row.record for row in self._board.table.rows])
                terms, _ = ([], None) if follower.columns is None else columns_of_text(selection, follower.columns)
                read_metrics(self._board, changed, terms)
                rows = [run_row(self._board, row, now, terms) for row in changed]
                data = {"position": self._board.position, "rows": rows, "gone": gone}
                by_columns[follower.columns] = event("runs", data)
            messages[id(follower)] = by_columns[follower.columns]
        return messages

    def _followed_rows(self) -> list[RunRow]:
        runs = dict.fromkeys(run_id for follower in self._followers for run_id in follower.runs)
        return self._board.known(list(runs))

    def _told_of_run(self, followers: list[Follower], row: RunRow) -> dict[int, bytes]:
        """What is new in one run, for each page that shows it."""
        run_id, messages = self._board.id_of(row), {}
        with suppress(RequestError), self._board.open_runs.use(row.path) as run:
            run.read()
            what = self._states.setdefault(run_id, RunState()).changes(run)
            told = event("run", {"id": run_id, "what": what}) if what else b""
            for follower in followers:
                if run_id in follower.runs:
                    messages[id(follower)] = told + follower.series_changes(run_id, run)
        return messages

    def _watched_folders(self) -> list[str]:
        """Those of runs that pages show, and of all that are being written."""
        with self._board.lock:
            live = [row.path for row in self._board.table.rows if row.summary.status in ("live", "stalled")]
        return list(dict.fromkeys([*(row.path for row in self._followed_rows()), *live[-256:]]))

    def _send(self, follower: Follower, message: bytes) -> None:
        if message and self._loop is not None:
            with suppress(RuntimeError):  # the server is ending
                self._loop.call_soon_threadsafe(follower.push, message)

    def _rest(self) -> None:
        """Wait until what this process used since the last round is a small share of a core."""
        used, self._cpu = time.process_time() - self._cpu, time.process_time()
        now = time.monotonic()
        passed, self._round_began = now - self._round_began, now
        rest = min(_LONGEST_REST, used / _SHARE - passed)
        if rest > 0:
            time.sleep(rest)
            self._round_began = time.monotonic()

    def _forget(self) -> None:
        """Nobody looks any more."""
        self._rows.clear()
        self._knows_rows = False
        self._states.clear()
        self._seen.clear()
        self._late.clear()
        self._sent_at.clear()


def _without_time(row: answers.RunRow) -> answers.RunRow:
    """A row as it is compared: its age changes all the time."""
    row.age = 0.0
    return row


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
