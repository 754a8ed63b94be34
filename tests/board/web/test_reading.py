"""What the server tells of runs is what is in their folders."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from linnet.board.web.board import WebBoard
from linnet.board.web.safe_store import SafeStore
from tests.board.conftest import ABOUT, training, write


def test_an_empty_folder_has_a_page_and_no_runs(client: TestClient) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/api/runs").json()["rows"] == []


def test_a_run_is_in_the_table_with_its_settings(client: TestClient, root: Path) -> None:
    write(root / "llama-20260528-001", training(), **ABOUT)
    (row,) = client.get("/api/runs?columns=lr,d_model,best(loss)").json()["rows"]
    assert (row["id"], row["status"], row["step"]) == ("llama-20260528-001", "completed", 400)
    assert row["values"][:2] == [0.0003, 192]
    assert row["values"][2] < 2.0


def test_the_newest_run_or_those_of_the_command_line_are_read_before_somebody_asks(root: Path) -> None:
    for created, name in enumerate(("first", "second", "third")):
        write(root / name, training(), **(ABOUT | {"created_at": 1_780_000_000.0 + created}))
    newest = WebBoard(SafeStore(root))
    newest.read_ahead()
    named = WebBoard(SafeStore(root), (root / "first", root / "second"))
    named.read_ahead()
    assert [Path(path).name for path in newest.open_runs.paths()] == ["third"]
    assert [Path(path).name for path in named.open_runs.paths()] == ["first", "second"]
    newest.close()
    named.close()


def test_an_empty_or_missing_folder_is_read_ahead_without_a_word(tmp_path: Path) -> None:
    board = WebBoard(SafeStore(tmp_path / "nowhere"))
    board.read_ahead()
    assert not len(board.open_runs)
    board.close()
