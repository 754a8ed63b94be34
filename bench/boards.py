"""The boards in the browser that are compared: how each is served, where its charts are, and when one is drawn."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import browser

_UP_WITHIN = 60.0


@dataclass(frozen=True)
class Board:
    """One of them.

    - `command`: from its interpreter, a folder and a port; `environment`: from the folder and the port.
    - `charts`: the address of a run's charts; `drawn`: the condition, in the words of `browser.look`, on which the
      first of them is on the screen; `waited_for`: the same in words.
    - `ready`: whether the server has what is asked for; a server that still loads answers at once, with nothing.
    """

    name: str
    label: str
    command: Callable[[Path, str, int], list[str]]
    environment: Callable[[str, int], dict[str, str]]
    charts: Callable[[str], str]
    drawn: str
    waited_for: str
    ready: Callable[[str], bool]


class Served:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        import psutil

        self.address = f"http://127.0.0.1:{port}/"
        self._process = psutil.Process(process.pid)

    def cpu_seconds(self) -> float:
        """What it and its children have used."""
        return sum(sum(process.cpu_times()[:2]) for process in self._family())

    def settle(self) -> None:
        """Wait until it has nothing to do: what it reads at its start is read."""
        end, quiet = time.monotonic() + _UP_WITHIN, 0
        while time.monotonic() < end and quiet < 8:
            time.sleep(0.05)
            quiet = 0 if self._is_busy() else quiet + 1

    def _is_busy(self) -> bool:
        """Does one of its threads run, or wait for a processor or a disk?"""
        states = []
        for process in self._family():
            for stat in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                with suppress(OSError):
                    states.append(stat.read_text().rpartition(")")[2].split()[0])
        return any(state in "RD" for state in states)

    def memory(self) -> float:
        """What it and its children have resident, in MB."""
        return sum(process.memory_info().rss for process in self._family()) / 1e6

    def peak(self) -> float:
        """The most that the server itself has had resident, in MB."""
        status = Path(f"/proc/{self._process.pid}/status")
        for line in status.read_text().splitlines() if status.exists() else ():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        return self.memory()

    def _family(self) -> list[Any]:
        return [self._process, *self._process.children(recursive=True)]


@contextmanager
def serve(board: Board, root: str, python: Path | None = None) -> Iterator[Served]:
    """The board's server over a folder, as soon as it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = board.command(python or Path(sys.executable), root, port)
    environment = os.environ | {"BROWSER": "true"} | board.environment(root, port)
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        served = Served(process, port)
        _wait(board, served.address, process)
        yield served
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def looking(board: Board, root: str, python: Path | None = None) -> Iterator[tuple[Served, Any]]:
    """A server over a folder, and a browser that has cached nothing."""
    with browser.chromium() as chromium, serve(board, root, python) as served, browser.fresh(chromium) as context:
        yield served, context


def _wait(board: Board, address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _UP_WITHIN
    while time.monotonic() < end and process.poll() is None:
        try:
            if board.ready(address):
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.05)
    raise TimeoutError(f"the server of {board.label} was not up within {_UP_WITHIN:.0f} s")


def answer(address: str) -> Any:
    """JSON of a GET."""
    with urllib.request.urlopen(address, timeout=10) as response:
        return json.loads(response.read())


def _is_up(address: str) -> bool:
    with urllib.request.urlopen(address, timeout=10) as response:
        return bool(response.status == 200)


LINNET = Board(
    name="linnet",
    label="linnet",
    command=lambda python, root, port: [
        str(python.parent / "linnet"),
        "board",
        "--web",
        "--no-open",
        "--runs",
        root,
        "--port",
        str(port),
    ],
    environment=lambda root, port: {},
    charts=lambda run: f"#/charts?runs={run}",
    drawn="shown(CHART).length && shown(CHART).every((chart) => Number(chart.dataset.drawn) >= ROWS)".replace(
        "CHART", "'.chart-surface'"
    ),
    waited_for="every chart in sight has drawn the last row (`data-drawn`)",
    ready=lambda address: _is_up(address),
)
TENSORBOARD = Board(
    name="tensorboard",
    label="TensorBoard",
    command=lambda python, root, port: [
        str(python.parent / "tensorboard"),
        "--logdir",
        root,
        "--port",
        str(port),
        "--load_fast=true",
    ],
    environment=lambda root, port: {},
    charts=lambda run: "#timeseries",
    drawn="shown('line-chart canvas').some(hasLine)",
    waited_for="the canvas of its first card has something in colour",
    ready=lambda address: bool(answer(f"{address}data/plugin/scalars/tags")),
)
TRACKIO = Board(
    name="trackio",
    label="trackio",
    command=lambda python, root, port: [str(python.parent / "trackio"), "show", "--project", "bench"],
    environment=lambda root, port: {"TRACKIO_DIR": root, "GRADIO_SERVER_PORT": str(port)},
    charts=lambda run: "?project=bench",
    drawn="shown('canvas.marks').some(hasLine)",
    waited_for="the canvas of its first plot has something in colour",
    ready=lambda address: _is_up(address),
)
AIM = Board(
    name="aim",
    label="aim",
    command=lambda python, root, port: [str(python.parent / "aim"), "up", "--repo", root, "--port", str(port), "--yes"],
    environment=lambda root, port: {},
    charts=lambda run: f"runs/{run}/metrics",
    drawn="shown('path.Line').some((path) => (path.getAttribute('d') ?? '').length > 1000)",
    waited_for="the path of its first line has some hundred points",
    ready=lambda address: _is_up(address),
)

PEERS = {board.name: board for board in (TENSORBOARD, TRACKIO, AIM)}
