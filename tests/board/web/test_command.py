"""`linnet board --web`: what is typed, and what it says."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.board.conftest import steps, write
from tests.board.web.test_changes import wait_until
from tests.conftest import Said

Started = Callable[..., tuple[subprocess.Popen[str], str, str]]


@pytest.fixture
def started(root: Path) -> Iterator[Started]:
    """Start the command as a shell does: the process, its address, and all that it said until it could be asked."""
    processes = []

    def start(*words: str) -> tuple[subprocess.Popen[str], str, str]:
        command = [sys.executable, "-m", "linnet", "board", "--web", "--no-open", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        said = ""
        while "Ctrl-C" not in said and (line := process.stdout.readline()):
            said += line
        address = re.search(r"http://\S+", said)
        assert address is not None, said
        return process, address[0], said

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_it_prints_its_address_and_ends_with_ctrl_c(started: Started, root: Path) -> None:
    write(root / "wide", steps(5))
    write(root / "narrow", steps(5))
    process, address, said = started("wide", "--port", "0")
    assert address.startswith("http://127.0.0.1:") and "token" not in said
    assert httpx.get(f"{address}api/board").json()["chosen"] == ["wide"]
    assert {row["id"] for row in httpx.get(f"{address}api/runs").json()["rows"]} == {"wide", "narrow"}
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=20)
    assert (process.returncode, complaints) == (0, "")


def test_on_another_address_the_token_is_part_of_what_is_printed_once(started: Started, root: Path) -> None:
    write(root / "a", steps(5))
    process, address, said = started("--port", "0", "--host", "0.0.0.0")
    entrance, _, token = address.partition("?token=")
    port = int(entrance.rstrip("/").rpartition(":")[2])
    here = f"http://127.0.0.1:{port}/"
    assert len(token) > 40 and said.count(token) == 1
    assert httpx.get(f"{here}api/runs").status_code == 401
    with httpx.Client() as browser:
        assert browser.get(f"{here}?token={token}").status_code == 200
        assert browser.get(f"{here}api/runs").status_code == 200
    process.send_signal(signal.SIGINT)
    out, complaints = process.communicate(timeout=20)
    assert token not in out + complaints


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="there the system's own browser is opened")
@pytest.mark.parametrize(
    ("words", "screen", "opens"),
    [((), {"DISPLAY": ":0"}, True), (("--no-open",), {"DISPLAY": ":0"}, False), ((), {}, False),
     ((), {"DISPLAY": ":0", "SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22"}, False)],
)  # fmt: skip
def test_the_browser_is_opened_at_the_address_where_there_is_a_screen(
    root: Path, tmp_path: Path, words: tuple[str, ...], screen: dict[str, str], opens: bool
) -> None:
    root.mkdir()
    asked, browser = tmp_path / "asked", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{asked}"\n')
    browser.chmod(0o755)
    elsewhere = ("SSH_", "DISPLAY", "WAYLAND_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(elsewhere)}
    environment |= {"BROWSER": f"{browser} %s", **screen}
    command = [sys.executable, "-m", "linnet", "board", "--web", "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    address = re.search(r"http://\S+", process.stdout.readline())
    assert address is not None
    if opens:
        wait_until(lambda: asked.exists() and asked.read_text() == f"{address[0]}\n")
    else:
        wait_until(lambda: _answers(address[0]))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)  # what would open a browser is waited for too
    assert asked.exists() == opens


def _answers(address: str) -> bool:
    try:
        return httpx.get(address).status_code == 200
    except httpx.ConnectError:
        return False


def test_a_taken_port_is_an_error_in_one_line(said: Said, root: Path) -> None:
    root.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, complaint = said("board", "--web", "--no-open", "--port", str(port))
    assert code == 1 and f"port {port}: it is taken" in complaint and complaint.count("\n") == 1


@pytest.mark.parametrize("words", [("--port", "8000"), ("--host", "0.0.0.0"), ("--no-open",)])
def test_flags_of_the_browser_need_web(said: Said, root: Path, words: tuple[str, ...]) -> None:
    code, _, complaint = said("board", *words)
    assert code == 2 and "--web" in complaint


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_that_is_none_is_refused(said: Said, root: Path, port: str) -> None:
    code, _, complaint = said("board", "--web", "--port", port)
    assert code == 2 and "port" in complaint


def test_a_run_that_is_not_there_is_told_before_a_server_starts(said: Said, root: Path) -> None:
    write(root / "wide", steps(5))
    code, _, complaint = said("board", "--web", "--no-open", "wied")
    assert code == 1 and "did you mean wide" in complaint


def test_without_the_extra_it_says_what_to_install(said: Said, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    for name in [name for name in sys.modules if name.startswith("linnet.board.web.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, complaint = said("board", "--web", "--no-open")
    assert code == 2 and "pip install 'linnet[web]'" in complaint


def test_the_server_is_loaded_by_nobody_else() -> None:
    code = "import sys, linnet.cli.app, linnet.cli.board, linnet.runs; print([m for m in sys.modules if m in NAMES])"
    names = "NAMES = ('starlette', 'uvicorn', 'watchfiles', 'anyio')\n"
    printed = subprocess.run([sys.executable, "-c", names + code], capture_output=True, text=True, env=dict(os.environ))
    assert printed.stdout.strip() == "[]", printed.stderr
