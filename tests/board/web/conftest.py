from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from linnet.board.web.app import make_app
from linnet.board.web.board import WebBoard
from linnet.board.web.safe_store import SafeStore

HERE = "http://127.0.0.1:6464"


def client_of(root: Path) -> TestClient:
    """A browser on this machine, without a socket between."""
    return TestClient(make_app(WebBoard(SafeStore(root))), base_url=HERE, raise_server_exceptions=False)


@pytest.fixture
def client(root: Path) -> Iterator[TestClient]:
    root.mkdir(parents=True, exist_ok=True)
    with client_of(root) as client:
        yield client
