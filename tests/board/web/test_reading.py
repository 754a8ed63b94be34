"""What the server tells of runs is what is in their folders."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

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
