from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.testclient import TestClient

from linnet.board.web.app import make_app
from linnet.board.web.board import WebBoard
from linnet.board.web.gate import Access
from linnet.board.web.safe_store import SafeStore
from linnet.board.web.serve import Server
from linnet.board.web.static_files import STATIC
from linnet.listening import listen
from tests.board.web.browser import find_chromium

HERE = "http://127.0.0.1:6464"
WRITE = {"X-Linnet": "1"}


def board_of(root: Path, named: tuple[Path, ...] = ()) -> WebBoard:
    """A board that looks at its runs whenever it is asked."""
    board = WebBoard(SafeStore(root, named), named)
    board.table.scan_seconds = board.table.scan_pause = 0.0
    return board


def client_of(
    root: Path, access: Access | None = None, address: str = HERE, named: tuple[Path, ...] = ()
) -> TestClient:
    """A browser, without a socket between it and the server."""
    app = make_app(board_of(root, named), access)
    return TestClient(app, base_url=address, raise_server_exceptions=False)


@pytest.fixture
def client(root: Path) -> Iterator[TestClient]:
    root.mkdir(parents=True, exist_ok=True)
    with client_of(root) as client:
        yield client


@pytest.fixture
def served(root: Path) -> Iterator[str]:
    """The address of a server on a real socket."""
    root.mkdir(parents=True, exist_ok=True)
    listening = listen("127.0.0.1", 0, 0)
    server = Server(make_app(board_of(root)))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


class SeriesAnswer:
    """What a page makes of a binary answer."""

    def __init__(self, content: bytes) -> None:
        assert content[:4] == b"LNS1"
        (length,) = struct.unpack("<I", content[4:8])
        self.header: dict[str, Any] = json.loads(content[8 : 8 + length])
        self._body = content[8 + length :]

    def entries(self) -> list[dict[str, Any]]:
        """The series, each with its columns."""
        return [{**entry, **self._columns(entry)} for entry in self.header["series"]]

    def _columns(self, entry: dict[str, Any]) -> dict[str, NDArray[Any]]:
        kind, at, columns = np.dtype("<f8" if entry["exact"] else "<f4"), entry["offset"], {}
        assert at % 8 == 0
        for name in entry["columns"]:
            columns[name] = np.frombuffer(self._body, kind, entry["rows"], at)
            at += entry["rows"] * kind.itemsize
        return columns


Series = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def series(client: TestClient) -> Series:
    """Ask for series: `series(runs=["a"], keys=["loss"], points=100)`."""

    def ask(**question: Any) -> list[dict[str, Any]]:
        question = {{"begin": "from", "end": "to"}.get(name, name): value for name, value in question.items()}
        answer = client.get("/api/series", params=question)
        assert answer.status_code == 200, answer.text
        return SeriesAnswer(answer.content).entries()

    return ask


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium; tests that need one are left out where there is none, or no page for it.

    Not for the whole session: while it is open an event loop runs in this thread, and other tests run their own.
    """
    if not (STATIC / "index.html").exists():
        pytest.skip("the page is not built: make web")
    if (chromium := find_chromium()) is None:
        pytest.skip("there is no Chromium here: python -m tests.board.web.browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A window of its own. An exception in the page, or something that its policy forbids, fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    context.set_default_timeout(20_000)
    page, problems = context.new_page(), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if "Content Security Policy" in said.text else None)
    yield page
    context.close()
    assert not problems
