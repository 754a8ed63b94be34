"""What the page changes is what the commands change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import linnet
from linnet.runs import RunStore
from tests.board.conftest import END, steps, write
from tests.board.web.conftest import WRITE


@pytest.fixture
def run(root: Path) -> Path:
    return write(root / "a", [*steps(5), END], tags=["old"])


def test_a_run_gets_a_name_and_tags(client: TestClient, run: Path) -> None:
    change = {"name": "wide", "add_tags": ["good", "keep"], "remove_tags": ["old"]}
    row = client.patch("/api/runs/a", json=change, headers=WRITE).json()
    assert (row["name"], row["tags"]) == ("wide", ["good", "keep"])
    manifest = json.loads((run / "run.json").read_text())
    assert (manifest["name"], manifest["tags"]) == ("wide", ["good", "keep"])
    assert client.get("/api/runs").json()["rows"][0]["name"] == "wide"
    assert client.patch("/api/runs/a", json={"name": ""}, headers=WRITE).json()["name"] == "a"


def test_a_hidden_run_is_listed_only_on_demand(client: TestClient, run: Path) -> None:
    assert client.patch("/api/runs/a", json={"hidden": True}, headers=WRITE).json()["hidden"] is True
    assert client.get("/api/runs").json()["rows"] == []
    assert [row["hidden"] for row in client.get("/api/runs?hidden=1").json()["rows"]] == [True]
    client.patch("/api/runs/a", json={"hidden": False}, headers=WRITE)
    assert len(client.get("/api/runs").json()["rows"]) == 1


def test_a_note_is_in_the_runs_stream(client: TestClient, run: Path) -> None:
    assert client.post("/api/runs/a/notes", json={"text": "look\nhere", "step": 3}, headers=WRITE).status_code == 201
    (note,) = client.get("/api/runs/a/notes").json()
    assert (note["text"], note["step"]) == ("look\nhere", 3)


def test_a_deleted_run_lies_in_the_trash_and_comes_back(client: TestClient, root: Path, run: Path) -> None:
    assert client.delete("/api/runs/a", headers=WRITE).json()["bytes"] > 100
    assert not run.exists() and (root / ".trash").is_dir()
    assert client.get("/api/runs").json()["rows"] == []
    assert client.post("/api/runs/a/restore", headers=WRITE).json()["id"] == "a"
    assert RunStore(root).find("a").status == "completed"
    assert client.post("/api/runs/a/restore", headers=WRITE).status_code == 404


def test_a_live_run_is_not_deleted(client: TestClient, root: Path) -> None:
    with linnet.start(root, name="busy") as run:
        run.log(loss=1.0)
        run_id = run.run_id
        answer = client.delete(f"/api/runs/{run_id}", headers=WRITE)
        assert answer.status_code == 409 and "is being written" in answer.json()["error"]
        assert "force" not in answer.json()["error"]
        assert (root / run_id).exists()


def test_what_is_no_run_is_not_deleted(client: TestClient, root: Path, run: Path) -> None:
    (run / "thesis.tex").write_text("three years")
    answer = client.delete("/api/runs/a", headers=WRITE)
    assert answer.status_code == 409 and "thesis.tex" in answer.json()["error"]
    assert (run / "thesis.tex").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "x" * 201}, {"name": "a\nb"}, {"name": "\x1b[2J"}, {"add_tags": ["x" * 101]}, {"add_tags": ["\x07"]},
        {"add_tags": [f"t{n}" for n in range(65)]}, {"tags": ["x"]}, {"name": 5}, {"hidden": "yes"}, {"path": "/"}, [],
    ],
)  # fmt: skip
def test_a_change_that_does_not_fit_changes_nothing(client: TestClient, run: Path, change: Any) -> None:
    before = (run / "run.json").read_bytes()
    answer = client.patch("/api/runs/a", json=change, headers=WRITE)
    assert answer.status_code == 400 and answer.json()["error"]
    assert (run / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    "note", [{"text": ""}, {"text": "  \n"}, {"text": "x" * 20_001}, {"text": "\x1b"}, {"step": 1}]
)
def test_a_note_that_does_not_fit_is_refused(client: TestClient, run: Path, note: Any) -> None:
    before = (run / "events.jsonl").read_bytes()
    assert client.post("/api/runs/a/notes", json=note, headers=WRITE).status_code == 400
    assert (run / "events.jsonl").read_bytes() == before


def test_writes_about_a_run_that_is_not_there_are_refused(client: TestClient, root: Path) -> None:
    assert client.patch("/api/runs/x", json={"name": "y"}, headers=WRITE).status_code == 404
    assert client.post("/api/runs/x/notes", json={"text": "y"}, headers=WRITE).status_code == 404
    assert client.delete("/api/runs/x", headers=WRITE).status_code == 404
    assert client.post("/api/runs/x/restore", headers=WRITE).status_code == 404
