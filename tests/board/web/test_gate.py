"""Who may ask: names that strangers cannot have, no other site, and on another address only with the token."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from linnet.board.web.gate import Access
from linnet.errors import LinnetError
from linnet.listening import is_loopback, listen
from tests.board.conftest import steps, write
from tests.board.web.conftest import HERE, WRITE, client_of

PATHS = ["/", "/api/board", "/api/runs", "/api/series?runs=a&keys=loss", "/api/runs/a", "/api/runs/a/artifacts/1"]


@pytest.fixture
def run(root: Path) -> Path:
    return write(root / "a", steps(5))


@pytest.fixture
def access() -> Access:
    return Access.on("0.0.0.0")


@pytest.fixture
def far(root: Path, access: Access, run: Path) -> Iterator[TestClient]:
    """A browser on another machine."""
    with client_of(root, access, "http://192.168.1.20:6464") as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:6464", "127.0.0.1.evil.example", "localhost.evil.example:6464", "192.168.1.20",
        "127.0.0.1@evil.example", "[::ffff:127.0.0.1]:6464x", "127.0.0.1:6464:80", "", "127.0.0.1:port", "2130706433",
    ],
)  # fmt: skip
def test_a_wrong_host_is_refused(client: TestClient, run: Path, host: str, path: str) -> None:
    assert client.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:6464", "localhost:6464", "localhost", "[::1]:9", "LOCALHOST:8000"])
def test_names_of_this_machine_are_answered_on_any_port(client: TestClient, host: str) -> None:
    assert client.get("/api/board", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:9999", "http://127.0.0.1", "file://", "http://localhost:6464"],
)
def test_a_wrong_origin_is_refused(client: TestClient, run: Path, origin: str, path: str) -> None:
    answer = client.get(path, headers={"Origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_the_own_origin_is_answered(client: TestClient) -> None:
    assert client.get("/api/board", headers={"Origin": HERE}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_the_page_and_ask_for_nothing(client: TestClient, run: Path, site: str) -> None:
    arriving = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=arriving).status_code == 200
    assert client.get("/api/runs", headers=arriving).status_code == 403
    assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status_code == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/api/runs/a"),
        ("DELETE", "/api/runs/a"),
        ("POST", "/api/runs/a/notes"),
        ("POST", "/api/runs/a/restore"),
    ],
)
def test_a_write_needs_the_header_that_other_sites_cannot_send(
    client: TestClient, run: Path, method: str, path: str
) -> None:
    body = b'{"name":"x","text":"x"}'
    for headers in (
        {},
        {"X-Linnet": "0"},
        {**WRITE, "Origin": "http://evil.example"},
        {**WRITE, "Sec-Fetch-Site": "cross-site"},
    ):
        sent = {"Content-Type": "application/json", **headers}
        assert client.request(method, path, content=body, headers=sent).status_code == 403
    assert (run / "events.jsonl").exists()
    assert client.get("/api/runs/a").json()["row"]["name"] == "a"


def test_forms_of_other_sites_write_nothing(client: TestClient, run: Path) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        headers = {"Content-Type": kind, **WRITE}
        assert client.post("/api/runs/a/notes", content=b'{"text":"x"}', headers=headers).status_code == 415


def test_every_answer_carries_the_headers(client: TestClient, run: Path) -> None:
    for path in [*PATHS, "/api/nothing", "/nothing", "/api/runs/nobody"]:
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "'unsafe-inline'" not in policy or "sandbox" in policy
        assert "'unsafe-eval'" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy and "script-src 'self'" in policy and "frame-ancestors 'none'" in policy
    refused = client.get("/api/runs", headers={"Host": "evil.example"})
    assert refused.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
def test_on_the_loopback_no_token_is_needed(host: str) -> None:
    assert is_loopback(host) and Access.on(host).token == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.20", "example.org", "", "127.0.0.1.example"])
def test_any_other_address_needs_a_token(host: str) -> None:
    assert not is_loopback(host) and len(Access.on(host).token) >= 40
    assert Access.on(host).token != Access.on(host).token


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_told(far: TestClient, access: Access, path: str) -> None:
    refused = {
        "nothing": {},
        "another": {"Authorization": "Bearer x"},
        "a part": {"Authorization": f"Bearer {access.token[:-1]}"},
        "more": {"Authorization": f"Bearer {access.token}x"},
        "the token as cookie": {"Cookie": f"{access.cookie_name}={access.token}"},
        "no cookie": {"Cookie": f"{access.cookie_name}=; a=b; ;;="},
        "letters": {"Authorization": "Bearer ütoken".encode()},
    }
    for how, headers in refused.items():
        answer = far.get(path, headers=headers)
        assert answer.status_code == 401, how
        assert access.token not in answer.text
    assert far.get(f"/?token={access.token[:-1]}").status_code == 401
    assert far.get(f"/api/runs?token={access.token}").status_code == 401, "the token opens the page, not the data"


def test_the_address_that_was_printed_gives_a_cookie_that_scripts_cannot_read(far: TestClient, access: Access) -> None:
    answer = far.get(f"/?token={access.token}")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and access.token not in cookie
    assert access.token not in answer.text
    for path in ("/", "/api/runs"):
        assert far.get(path).status_code == 200


def test_a_bearer_is_let_in(far: TestClient, access: Access) -> None:
    assert far.get("/api/runs", headers={"Authorization": f"Bearer {access.token}"}).status_code == 200


def test_with_a_token_too_a_strange_name_is_refused(far: TestClient, access: Access) -> None:
    headers = {"Authorization": f"Bearer {access.token}"}
    assert far.get("/api/runs", headers={**headers, "Host": "evil.example"}).status_code == 403
    assert far.get("/api/runs", headers={**headers, "Host": "10.0.0.7:6464"}).status_code == 200
    assert far.get("/api/runs", headers={**headers, "Origin": "http://evil.example"}).status_code == 403


def test_the_token_is_kept_out_of_logs(far: TestClient, access: Access, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="uvicorn"), caplog.at_level(logging.DEBUG, logger="starlette"):
        far.get(f"/?token={access.token}")
        far.get("/api/runs", headers={"Authorization": f"Bearer {access.token}"})
    assert access.token not in caplog.text


def test_an_address_that_no_host_can_have_is_one_line() -> None:
    with pytest.raises(LinnetError, match=r"cannot listen on bücher\.\.example port 6464: a host has no such name"):
        listen("bücher..example", None, 6464)
