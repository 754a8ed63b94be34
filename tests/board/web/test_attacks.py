"""Whatever a run folder holds and whatever is asked for: nothing outside is read, and no text becomes a page."""

from __future__ import annotations

import json
import os
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.board.conftest import append, steps, training, write
from tests.board.web.conftest import WRITE, client_of

SCRIPT = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b[2J"
SECRET = "hunter2-top-secret"
WHOLE = b"0123456789"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text(json.dumps({"kind": "note", "t": 0.0, "text": SECRET}) + "\n")
    return file


@pytest.mark.parametrize(
    "way",
    [
        "../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "%2e%2e%2fsecret.txt", "..%252fsecret.txt", "..",
        "....//secret.txt", "..\\secret.txt", "..%5csecret.txt", "%00", "a%00/../secret.txt", "/etc/passwd", "~", ".",
        "%2fetc%2fpasswd", "..;/secret.txt", "a/../../secret.txt", "%c0%ae%c0%ae/secret.txt", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_a_path_leads_nowhere_else(client: TestClient, root: Path, secret: Path, way: str) -> None:
    write(root / "a", steps(5))
    for prefix in ("/", "/assets/", "/api/runs/", "/api/runs/a/artifacts/", "/api/runs/a/checkpoints/", "/static/"):
        for suffix in ("", "/events", "/samples", "/flow", "/artifacts/1"):
            answer = client.get(prefix + way + suffix)
            assert answer.status_code in (200, 400, 403, 404, 405), answer.text
            assert SECRET not in answer.text and "root:" not in answer.text
            if answer.status_code == 200:
                assert answer.headers["content-type"].startswith(("text/html", "application/json"))
    for name in ("runs", "keys", "where", "columns", "sort", "group", "name"):
        for path in ("/api/runs", "/api/series", "/api/curves", "/api/metrics", "/api/sizes"):
            answer = client.get(f"{path}?keys=loss&{name}={way}")
            assert answer.status_code in (200, 400, 404), answer.text
            assert SECRET not in answer.text


def test_an_id_in_a_manifest_is_no_path(client: TestClient, root: Path, secret: Path) -> None:
    write(root / "a", steps(5), run_id="../../secret.txt", name="../x", parent="../..", parent_step=3)
    (row,) = client.get("/api/runs").json()["rows"]
    assert row["id"] == "a"
    assert client.get("/api/runs/a").status_code == 200
    assert client.get("/api/runs/" + urllib.parse.quote("../../secret.txt", safe="")).status_code == 404


def test_a_run_that_is_a_link_out_of_the_folder_is_refused(client: TestClient, root: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/b", steps(5))
    write(root / "a", steps(5))
    (root / "b").symlink_to(tmp_path / "elsewhere/b")
    (root / "inside").symlink_to(root / "a")
    assert {row["id"] for row in client.get("/api/runs").json()["rows"]} == {"a", "inside"}
    for path in ("/api/runs/b", "/api/runs/b/events", "/api/runs/b/log", "/api/series?runs=b&keys=loss"):
        assert client.get(path).status_code == 404


def test_a_run_that_its_owner_named_may_lie_anywhere(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    folder = write(tmp_path / "elsewhere/b", steps(5))
    with client_of(root, named=(folder,)) as client:
        assert client.get("/api/board").json()["chosen"] == ["b"]
        assert client.get("/api/runs/b").status_code == 200


@pytest.mark.parametrize("file", ["events.jsonl", "run.json"])
def test_a_stream_or_manifest_that_is_a_link_out_is_not_read(
    client: TestClient, root: Path, secret: Path, file: str
) -> None:
    folder = write(root / "a", steps(5))
    (folder / file).unlink()
    (folder / file).symlink_to(secret)
    for path in ("/api/runs", "/api/runs/a", "/api/runs/a/notes", "/api/runs/a/log", "/api/runs/a/events"):
        assert SECRET not in client.get(path).text
    assert client.get("/api/runs").json()["rows"] == []


def test_files_that_are_links_out_are_not_sent(client: TestClient, root: Path, secret: Path) -> None:
    logged = [
        {"kind": "artifact", "t": 1.0, "name": "linked", "path": "artifacts/linked.txt", "bytes": 5},
        {"kind": "artifact", "t": 1.0, "name": "up", "path": "../secret.txt", "bytes": 5},
        {"kind": "artifact", "t": 1.0, "name": "absolute", "path": str(secret), "bytes": 5},
        {"kind": "artifact", "t": 1.0, "name": "folder", "path": "artifacts/way/secret.txt", "bytes": 5},
        {"kind": "artifact", "t": 1.0, "name": "pipe", "path": "artifacts/pipe.txt", "bytes": 5},
        {"kind": "artifact", "t": 1.0, "name": "itself", "path": ".", "bytes": 5},
    ]
    folder = write(root / "a", [*steps(5), *logged])
    (folder / "artifacts").mkdir()
    (folder / "artifacts/linked.txt").symlink_to(secret)
    (folder / "artifacts/way").symlink_to(secret.parent)
    os.mkfifo(folder / "artifacts/pipe.txt")
    (folder / "flow.json").symlink_to(secret)
    (folder / "weights").mkdir()
    (folder / "weights/step_5.gguf").symlink_to(secret)
    listed = client.get("/api/runs/a/artifacts").json()
    assert {series["name"] for series in listed} == {"linked", "folder", "pipe", "itself"}
    for series in listed:
        answer = client.get(f"/api/runs/a/artifacts/{series['items'][0]['number']}")
        assert answer.status_code == 404 and SECRET not in answer.text
    assert client.get("/api/runs/a/flow").status_code == 404
    assert client.get("/api/runs/a/checkpoints/5").status_code == 404
    assert client.get("/api/runs/a/checkpoints/5/tensor?name=x").status_code == 404


def test_script_in_every_field_is_text(client: TestClient, root: Path) -> None:
    about: dict[str, Any] = dict.fromkeys(("name", "experiment", "group", "recipe", "parent"), SCRIPT)
    about |= {"tags": [SCRIPT], "config": {SCRIPT: SCRIPT, "lr": SCRIPT}, "model": {SCRIPT: [SCRIPT]}}
    about |= {"goals": {SCRIPT: "min"}, "plan": {SCRIPT: SCRIPT}, "summary": {SCRIPT: SCRIPT}}
    events = [
        {"kind": "run_start", "schema": "toy/v1", "t": 0.0, "chosen": {SCRIPT: SCRIPT}, "run_id": SCRIPT},
        {"kind": "scalars", "t": 1.0, "step": 1, "values": {SCRIPT: 1.0}},
        {"kind": "sample", "t": 1.0, "step": 1, "prompt": SCRIPT, "text": SCRIPT},
        {"kind": "note", "t": 1.0, "text": SCRIPT, "at": SCRIPT},
        {"kind": "note", "t": 1.0, "text": SCRIPT, "level": "warning"},
        {"kind": "eval", "t": 1.0, "step": 1, "name": SCRIPT, "loss": 1.0, "per_class": {SCRIPT: 0.5}},
        {
            "kind": "artifact",
            "t": 1.0,
            "name": SCRIPT,
            "path": "artifacts/x.html",
            "mime": "text/html",
            "caption": SCRIPT,
        },
        {"kind": SCRIPT, "t": 1.0, SCRIPT: SCRIPT},
        SCRIPT.encode(),
        {"kind": "run_end", "t": 2.0, "reason": SCRIPT, "error": SCRIPT},
    ]
    write(root / "a", events, **about)
    (root / "a/artifacts").mkdir()
    (root / "a/artifacts/x.html").write_text(SCRIPT)
    paths = ["/api/runs", "/api/curves?runs=a", "/api/metrics?runs=a", "/api/runs/a"]
    paths += [f"/api/runs/a/{tab}" for tab in ("samples", "notes", "log", "events", "artifacts", "evaluations")]
    paths += ["/api/runs?where=" + urllib.parse.quote(SCRIPT), "/api/runs/" + urllib.parse.quote(SCRIPT)]
    for path in paths:
        answer = client.get(path)
        assert answer.headers["content-type"] == "application/json", path
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/api/runs/a/samples").json()[0]["text"] == SCRIPT
    answer = client.get("/api/series", params={"runs": "a", "keys": SCRIPT})
    assert answer.headers["content-type"] == "application/octet-stream"


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
FILES: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "page.html": (b"<script>alert(1)</script>", {"mime": "text/html"}, "attachment"),
    "page.svg": (SVG, {"mime": "image/svg+xml"}, "inline"),
    "fake.png": (b"<script>alert(1)</script>", {"mime": "image/png"}, "attachment"),
    "real.png": (b"\x89PNG\r\n\x1a\n" + bytes(64), {}, "inline"),
    "page.txt": (b"<script>alert(1)</script>", {"mime": "text/html"}, "inline"),
    "page.xhtml": (b"<html/>", {"mime": "application/xhtml+xml", "media": "image"}, "attachment"),
    "code.js": (b"alert(1)", {"mime": "text/javascript"}, "attachment"),
    "table.json": (b'{"columns":["<b>"],"rows":[]}', {"media": "table"}, "inline"),
}


def test_no_artifact_is_a_page_to_a_browser(client: TestClient, root: Path) -> None:
    logged = [
        {
            "kind": "artifact",
            "t": 1.0,
            "step": 1,
            "name": name,
            "path": f"artifacts/{name}",
            "bytes": len(content),
            **told,
        }
        for name, (content, told, _) in FILES.items()
    ]
    folder = write(root / "a", [*steps(5), *logged])
    (folder / "artifacts").mkdir()
    for name, (content, _, _) in FILES.items():
        (folder / "artifacts" / name).write_bytes(content)
    listed = {series["name"]: series["items"][0] for series in client.get("/api/runs/a/artifacts").json()}
    for name, (content, _, disposition) in FILES.items():
        address = f"/api/runs/a/artifacts/{listed[name]['number']}"
        answer = client.get(address)
        assert answer.content == content
        assert answer.headers["content-disposition"].startswith(disposition), name
        kind = answer.headers["content-type"]
        assert "html" not in kind and "javascript" not in kind and "xml" not in kind.replace("svg+xml", ""), name
        assert "sandbox" in answer.headers["content-security-policy"]
        assert "script-src" not in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    svg = f"/api/runs/a/artifacts/{listed['page.svg']['number']}"
    assert client.get(svg, headers={"Sec-Fetch-Dest": "image"}).headers["content-type"] == "image/svg+xml"
    for place in ("document", "iframe", "object", "embed"):
        answer = client.get(svg, headers={"Sec-Fetch-Dest": place})
        assert answer.headers["content-disposition"].startswith("attachment"), "an SVG is an image and nothing else"
    assert client.get(svg, params={"download": 1}).headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("part", "status", "content"),
    [
        ("bytes=2-4", 206, b"234"), ("bytes=7-", 206, b"789"), ("bytes=-3", 206, b"789"), ("bytes=5-99", 206, b"56789"),
        ("bytes=99-", 416, None), ("bytes=4-2", 416, None), ("bytes=-", 200, WHOLE), ("lines=1-2", 200, WHOLE),
        ("bytes=1-2,4-5", 200, WHOLE), ("bytes=99999999999999999999-", 200, WHOLE), ("bytes=0-0", 206, b"0"),
    ],
)  # fmt: skip
def test_a_part_of_a_file(client: TestClient, root: Path, part: str, status: int, content: bytes | None) -> None:
    logged = {"kind": "artifact", "t": 1.0, "name": "digits", "path": "artifacts/digits.txt", "bytes": 10}
    folder = write(root / "a", [logged])
    (folder / "artifacts").mkdir()
    (folder / "artifacts/digits.txt").write_bytes(b"0123456789")
    number = client.get("/api/runs/a/artifacts").json()[0]["items"][0]["number"]
    answer = client.get(f"/api/runs/a/artifacts/{number}", headers={"Range": part})
    assert answer.status_code == status
    if content is not None:
        assert answer.content == content


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "99999999999999999999", "3", "1e3", "0x1"])
def test_a_position_that_is_none_is_refused(client: TestClient, root: Path, after: str) -> None:
    write(root / "a", steps(50))
    assert client.get(f"/api/runs/a/events?after={after}").status_code == 400


def test_events_are_read_page_by_page(client: TestClient, root: Path) -> None:
    folder = write(root / "a", [*steps(50), b"{damaged", *steps(5, first=51)])
    events, position, more = [], 0, True
    while more:
        page = client.get(f"/api/runs/a/events?after={position}&limit=7").json()
        events, position, more = events + page["events"], page["position"], page["more"]
    assert [event["step"] for event in events] == list(range(1, 56))
    append(folder, steps(2, first=56))
    assert len(client.get(f"/api/runs/a/events?after={position}").json()["events"]) == 2
    (folder / "events.jsonl").write_bytes(b"")
    assert client.get(f"/api/runs/a/events?after={position}").status_code == 409


def test_a_run_that_is_deleted_while_it_is_shown_is_gone(client: TestClient, root: Path) -> None:
    folder = write(root / "a", training())
    write(root / "b", training())
    assert client.get("/api/series?runs=a&runs=b&keys=loss").status_code == 200
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    client.get("/api/runs/nobody")  # looks again at once
    for path in ("/api/runs/a", "/api/runs/a/log", "/api/runs/a/events", "/api/series?runs=a&keys=loss"):
        assert client.get(path).status_code == 404
    assert client.get("/api/series?runs=a&runs=b&keys=loss").status_code == 200
    assert [row["id"] for row in client.get("/api/runs").json()["rows"]] == ["b"]


def test_a_run_that_is_cut_while_it_is_shown_is_read_anew(client: TestClient, root: Path) -> None:
    folder = write(root / "a", steps(300))
    assert client.get("/api/metrics?runs=a").json()[0]["metrics"][0]["rows"] == 300
    with (folder / "events.jsonl").open("r+b") as file:
        file.truncate(5000)
    rows = client.get("/api/metrics?runs=a").json()[0]["metrics"][0]["rows"]
    assert 0 < rows < 300
    assert "cut or replaced" in client.get("/api/runs/a/log").text
    (folder / "events.jsonl").unlink()
    assert client.get("/api/runs/a/log").status_code == 200


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 5000, b"[1,2]\n" * 9, b'{"kind":"step","step":' + b"9" * 400 + b',"loss":1}\n', b"{" * 100_000],
)  # fmt: skip
def test_a_stream_of_rubbish_is_answered(client: TestClient, root: Path, content: bytes) -> None:
    folder = write(root / "a", [])
    (folder / "events.jsonl").write_bytes(content)
    for path in ("", "/samples", "/notes", "/log", "/events", "/checkpoints", "/artifacts", "/evaluations", "/profile"):
        assert client.get(f"/api/runs/a{path}").status_code == 200
    assert client.get("/api/series?runs=a&keys=loss").status_code == 200


def test_a_manifest_of_rubbish_is_answered(client: TestClient, root: Path) -> None:
    folder = write(root / "a", steps(5))
    deep: Any = 1
    for _ in range(500):
        deep = {"x": deep}
    for manifest in (
        {"run_id": 5, "tags": "x", "config": [1], "created_at": "x"},
        {"config": deep},
        {"config": {"x": 10**400}},
    ):
        (folder / "run.json").write_text(json.dumps(manifest))
        assert client.get("/api/runs").status_code == 200
        assert client.get("/api/runs/a").status_code == 200


def test_a_body_is_bounded(client: TestClient, root: Path) -> None:
    write(root / "a", steps(5))
    headers = {"Content-Type": "application/json", **WRITE}
    assert client.patch("/api/runs/a", content=b"[" * 100_000, headers=headers).status_code == 413
    assert client.patch("/api/runs/a", content=b"[" * 60_000, headers=headers).status_code == 400
    assert client.patch("/api/runs/a", content=b'{"name":"\xff"}', headers=headers).status_code == 400


def test_a_long_address_is_refused(client: TestClient) -> None:
    assert client.get("/api/runs?where=" + "x" * 5000).status_code == 400
    assert client.get("/api/runs/" + "x" * 5000).status_code == 404
