"""What is logged is on the pages at once; nobody who does not listen holds anybody up."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

import linnet
from linnet.board.web import changes, watcher
from linnet.board.web.app import make_app
from linnet.board.web.gate import Gate
from tests.board.conftest import append, steps, write
from tests.board.web.conftest import WRITE, board_of

PATIENCE = 10.0


class Stream:
    """The messages of a stream of changes, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def next(self, *names: str) -> tuple[str, Any]:
        """The next event of one of these names."""
        name = ""
        for line in self._lines:
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: ") and (not names or name in names):
                return name, json.loads(line[6:])
        raise AssertionError("the stream ended")

    def until(self, name: str, wanted: Any) -> Any:
        """The first event of this name that is wanted."""
        while True:
            data = self.next(name)[1]
            if wanted(data):
                return data


@contextmanager
def follow(served: str, **question: Any) -> Iterator[Stream]:
    with (
        httpx.Client(timeout=PATIENCE) as client,
        client.stream("GET", f"{served}api/changes", params=question) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = Stream(response)
        stream.next("runs")  # where the table stands
        yield stream


def watchers() -> int:
    return sum(thread.name == "linnet-board-watcher" for thread in threading.enumerate())


def wait_until(fact: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


def test_what_a_run_logs_comes_at_once_and_only_that(served: str, root: Path) -> None:
    with linnet.start(root, system_every=0) as run:
        run.log({"loss": 3.0, "lr": 0.1}, step=1)
        with follow(served, runs=[run.run_id], keys=["loss"], positions=[0]) as stream:
            first = stream.next("series")[1]
            assert (first["x"], first["value"], first["position"], first["again"]) == ([1.0], [3.0], 1, False)
            waits = []
            for step in range(2, 12):
                logged = time.monotonic()
                run.log({"loss": 1.0 / step, "lr": 0.1}, step=step)
                change = stream.next("series")[1]
                waits.append(time.monotonic() - logged)
                assert (change["key"], change["x"], change["value"]) == ("loss", [step], [1.0 / step])
            assert sorted(waits)[len(waits) // 2] < 0.5, "far from 50 ms only where the machine is busy"


def test_a_new_run_and_a_change_of_status_are_told(served: str, root: Path) -> None:
    write(root / "old", steps(5))
    with follow(served) as stream:
        run = linnet.start(root, system_every=0)
        run.log(loss=1.0)
        told = stream.until("runs", lambda data: any(row["id"] == run.run_id for row in data["rows"]))
        assert [row["status"] for row in told["rows"]] == ["live"], "the rest of the table has not changed"
        run.finish()
        stream.until("runs", lambda data: any(row["status"] == "completed" for row in data["rows"]))


def test_names_and_deleting_reach_the_other_pages(served: str, root: Path) -> None:
    write(root / "a", [*steps(5), {"kind": "run_end", "t": 9.0, "reason": "completed"}])
    with follow(served, columns="lr") as stream:
        httpx.patch(f"{served}api/runs/a", json={"name": "wide"}, headers=WRITE)
        assert stream.next("runs")[1]["rows"][0]["name"] == "wide"
        httpx.delete(f"{served}api/runs/a", headers=WRITE)
        assert stream.next("runs")[1]["gone"] == ["a"]


def test_samples_notes_and_metrics_are_told_of(served: str, root: Path) -> None:
    folder = write(root / "a", steps(5))
    with follow(served, runs=["a"]) as stream:
        append(folder, [{"kind": "sample", "t": 6.0, "step": 5, "prompt": "x", "text": "y"}])
        assert stream.next("run")[1] == {"id": "a", "parts": ["samples"]}
        append(folder, [{"kind": "scalars", "t": 7.0, "step": 6, "values": {"accuracy": 0.5}}])
        assert stream.next("run")[1] == {"id": "a", "parts": ["metrics"]}
        httpx.post(f"{served}api/runs/a/notes", json={"text": "look"}, headers=WRITE)
        assert "notes" in stream.next("run")[1]["parts"]


def test_runs_without_series_are_told_of_beside_those_with_some(served: str, root: Path) -> None:
    write(root / "shown", steps(5))
    ended = write(root / "ended", [*steps(5), {"kind": "run_end", "t": 9.0, "reason": "completed"}])
    with follow(served, runs=["shown"], keys=["loss"], watch=["ended"]) as stream:
        httpx.post(f"{served}api/runs/ended/notes", json={"text": "look"}, headers=WRITE)
        told = stream.until("run", lambda data: data["id"] == "ended")
        assert "notes" in told["parts"], "the first time perhaps with others, for it was not read before"
        httpx.post(f"{served}api/runs/ended/notes", json={"text": "again"}, headers=WRITE)
        told = stream.until("run", lambda data: data["id"] == "ended")
        assert "notes" in told["parts"] and "metrics" not in told["parts"]
        append(ended, steps(1, first=6))
        append(root / "shown", steps(1, first=6))
        assert stream.next("series")[1]["run"] == "shown", "of the other no series is told"


def test_rows_come_on_every_axis_that_is_asked_for(served: str, root: Path) -> None:
    folder = write(root / "a", steps(5))
    with follow(served, runs=["a"], keys=["loss"], axis=["step", "relative time"]) as stream:
        append(folder, [{"kind": "step", "t": 66.5, "step": 6, "loss": 0.25}])
        changes = [stream.next("series")[1] for _ in range(2)]
    assert [(change["axis"], change["x"], change["value"]) for change in changes] == [
        ("step", [6.0], [0.25]),
        ("relative time", [66.5], [0.25]),
    ]


def test_a_stream_that_is_cut_or_resumed_is_to_be_asked_for_again(served: str, root: Path) -> None:
    folder = write(root / "a", steps(50))
    with follow(served, runs=["a"], keys=["loss"]) as stream:
        append(folder, [{"kind": "resume", "t": 51.0, "step": 20}, *steps(3, first=21)])
        assert stream.until("series", lambda data: data["again"])["position"] == 23
        append(folder, steps(1, first=24))
        assert stream.next("series")[1]["x"] == [24.0]
        with (folder / "events.jsonl").open("r+b") as file:
            file.truncate(500)
        assert stream.until("series", lambda data: data["again"])["position"] < 23


def test_a_run_that_is_deleted_while_it_is_followed_is_gone_and_the_stream_goes_on(served: str, root: Path) -> None:
    folder = write(root / "a", steps(50))
    other = write(root / "b", steps(50))
    with follow(served, runs=["a", "b"], keys=["loss"]) as stream:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        assert stream.until("runs", lambda data: data["gone"])["gone"] == ["a"]
        append(other, steps(1, first=51))
        assert stream.until("series", lambda data: True)["x"] == [51.0]


def test_where_the_system_tells_nothing_the_server_looks_by_itself(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, root: Path
) -> None:
    monkeypatch.setenv("WATCHFILES_FORCE_POLLING", "1")
    monkeypatch.setattr(watcher.watchfiles, "watch", lambda *folders, **options: pytest.fail("it was not to be asked"))
    folder = write(root / "a", steps(5))
    with follow(request.getfixturevalue("served"), runs=["a"], keys=["loss"]) as stream:
        append(folder, steps(1, first=6))
        assert stream.next("series")[1]["x"] == [6.0]


def test_nothing_is_watched_while_nobody_looks(served: str, root: Path) -> None:
    before = watchers()
    for _ in range(2):
        with follow(served), follow(served):
            assert watchers() == before + 1
        wait_until(lambda: watchers() == before)


def test_five_hundred_streams_leave_the_server_answering(served: str, root: Path) -> None:
    folder = write(root / "a", steps(5))
    port = int(served.rstrip("/").rpartition(":")[2])
    request = f"GET /api/changes?runs=a&keys=loss HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()

    async def crowd() -> list[bytes]:
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(500)]
        for _, writer in pairs:
            writer.write(request)
        heads = [await asyncio.wait_for(reader.readline(), PATIENCE) for reader, _ in pairs]
        append(folder, steps(3, first=6))
        async with httpx.AsyncClient() as client:
            began = time.monotonic()
            assert (await client.get(f"{served}api/runs")).status_code in (200, 503)
            assert time.monotonic() - began < 5.0
        for _, writer in pairs:
            writer.close()
        return heads

    heads = asyncio.run(crowd())
    accepted = sum(b" 200 " in head for head in heads)
    assert 0 < accepted <= changes.MOST_STREAMS
    assert sum(b" 503 " in head for head in heads) == 500 - accepted
    wait_until(lambda: watchers() == 0)
    wait_until(lambda: httpx.get(f"{served}api/board").status_code == 200)
    with follow(served, runs=["a"], keys=["loss"]):
        assert watchers() == 1


def test_a_page_that_takes_nothing_is_dropped_and_holds_nobody(
    served: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.board.web.follower._MOST_BYTES", 20_000)
    monkeypatch.setattr("linnet.board.web.changes._SHARE", 1.0)
    folder = write(root / "a", steps(5))
    port = int(served.rstrip("/").rpartition(":")[2])
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    deaf.connect(("127.0.0.1", port))
    deaf.sendall(f"GET /api/changes?runs=a&keys=loss HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    wait_until(lambda: watchers() == 1)
    step, until = 6, time.monotonic() + 30.0
    while watchers() and time.monotonic() < until:
        append(folder, steps(1500, first=step))
        step += 1500
        assert httpx.get(f"{served}api/board").status_code == 200
        time.sleep(0.02)
    assert watchers() == 0, "it was dropped, and so nothing is watched any more"
    deaf.close()


@pytest.mark.parametrize(
    "question", ["positions=1", "positions=x&runs=a&keys=b", "axis=time", "positions=-1&runs=a&keys=b"]
)
def test_a_malformed_question_is_refused(served: str, question: str) -> None:
    assert httpx.get(f"{served}api/changes?{question}").status_code == 400


def test_a_connection_that_asks_nothing_is_closed(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.board.web.connection._REQUEST_SECONDS", 0.2)
    port = int(served.rstrip("/").rpartition(":")[2])
    for said in (b"", b"GET /api/board HTTP/1.1\r\nHost: 127"):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as slow:
            slow.sendall(said)
            with suppress(ConnectionResetError):
                assert slow.recv(100) == b""


class Page:
    """A page that follows changes, asked for in this event loop and without a socket."""

    def __init__(self, app: Gate) -> None:
        self._left, self._news, self._sent = asyncio.Event(), asyncio.Event(), bytearray()
        scope = {"type": "http", "method": "GET", "path": "/api/changes", "query_string": b""}
        self.answered = asyncio.ensure_future(
            app({**scope, "headers": [(b"host", b"127.0.0.1:6464")]}, self._receive, self._send)
        )

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._sent += message.get("body", b"")
        self._news.set()

    async def hear(self, words: bytes) -> None:
        """Wait until it is sent something with these words."""
        async with asyncio.timeout(PATIENCE):
            while words not in self._sent:
                self._news.clear()
                await self._news.wait()

    def leave(self) -> None:
        self._left.set()


def test_a_page_that_comes_while_the_last_one_leaves_hears_of_changes(root: Path) -> None:
    async def two_pages() -> None:
        threads = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(threads)
        app = make_app(board)
        first = Page(app)
        await first.hear(b"event: runs")
        released = threading.Event()
        threads.submit(released.wait, PATIENCE)  # the only thread is busy while one page leaves and the other comes
        first.leave()
        await turns(50)
        second = Page(app)
        await turns(50)
        released.set()
        await second.hear(b"event: runs")
        write(root / "new", steps(5))
        await second.hear(b'"id":"new"')
        second.leave()
        await asyncio.gather(first.answered, second.answered)

    async def turns(count: int) -> None:
        """Let everything in the event loop go on that waits for no thread."""
        for _ in range(count):
            await asyncio.sleep(0)

    root.mkdir()
    board = board_of(root)
    asyncio.run(two_pages())
    board.close()
