"""Under torchrun: ranks that are killed and started again, machines that go and come; the run stays the same."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import linnet
from linnet.train.launcher import OWN_STORE
from tests.conftest import digest, losses
from tests.scale import node_program
from tests.scale.forked_ranks import free_port
from tests.scale.killed_ranks import ranks_of
from tests.scale.killed_ranks import run as run_killed

PROGRAM = Path(node_program.__file__)


@pytest.fixture(autouse=True)
def _one_thread(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(OWN_STORE, "1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, corpus: Path, cache: Path) -> Path:
    """The run that nothing happened to."""
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINNET_CACHE", str(cache))
        assert node_program.train(str(corpus), str(root), []).status == "completed"
    return root / "a"


def assert_same(run: Path, whole: Path) -> None:
    assert linnet.open(run).status == "completed"
    assert losses(str(run)) == losses(str(whole))
    assert digest(run / "weights/step_40.gguf") == digest(whole / "weights/step_40.gguf")


def test_killed_ranks_are_started_again_and_change_no_bit(corpus: Path, tmp_path: Path, whole: Path) -> None:
    """`python -m tests.scale.killed_ranks 50 …` does it fifty times; docs/log.md has what came of it."""
    flags = [word for name, value in node_program.FLAGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ["train", "from-scratch", "--corpus", str(corpus), "--runs", str(tmp_path), "--device", "cpu", *flags]
    report = run_killed(1, random.Random(1), 2, tmp_path / "a", [*words, "--run-id", "a", "--resume", "auto"])
    assert (report.code, len(report.killed)) == (0, 1)
    assert_same(tmp_path / "a", whole)


@pytest.fixture
def start_node(corpus: Path, tmp_path: Path) -> Iterator[Callable[[], psutil.Process]]:
    """Start an agent of torchrun that stands for a machine of one rank; the first hosts the rendezvous."""
    started: list[subprocess.Popen[bytes]] = []
    place = f"127.0.0.1:{free_port()}"
    quick = "join_timeout=120,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc-per-node", "1"]
    command += ["--max-restarts", "5", "--rdzv-backend", "c10d", "--rdzv-endpoint", place, "--rdzv-id", "a"]
    command += ["--rdzv-conf", quick, str(PROGRAM), str(corpus), str(tmp_path), "2@20", "1@30"]

    def start() -> psutil.Process:
        with (tmp_path / f"node{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return psutil.Process(started[-1].pid)

    yield start
    for agent in started:
        for rank in ranks_of(psutil.Process(agent.pid)).values() if agent.poll() is None else ():
            rank.kill()
        agent.kill()
        agent.wait()


def _hosts_rendezvous(agent: psutil.Process) -> bool:
    """Whichever agent was the first to open the port; should it go, all others go too."""
    port = int(agent.cmdline()[agent.cmdline().index("--rdzv-endpoint") + 1].rpartition(":")[2])
    listening = [link for link in agent.net_connections("inet") if link.status == psutil.CONN_LISTEN]
    return any(link.laddr.port == port for link in listening)


def test_a_run_goes_on_when_machines_go_and_come(
    start_node: Callable[[], psutil.Process], tmp_path: Path, whole: Path
) -> None:
    """Two machines; one is lost with its rank, the other goes on alone; a third comes, and both train to the end."""
    events = tmp_path / "a/events.jsonl"

    def wait_for(what: str, count: int = 1) -> None:
        deadline = time.monotonic() + 240
        while not (events.exists() and len(re.findall(what, events.read_text())) >= count):
            logs = "\n".join(log.read_text()[-2000:] for log in tmp_path.glob("node*.log"))
            assert time.monotonic() < deadline, logs
            time.sleep(0.1)

    first, second = start_node(), start_node()
    wait_for('"kind":"step".*"step":20,')
    stays, lost = (first, second) if _hosts_rendezvous(first) else (second, first)
    (rank,) = ranks_of(lost).values()
    for process in (lost, rank):
        os.kill(process.pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    wait_for('"kind":"step".*"step":30,')
    start_node()
    assert stays.wait(240) == 0
    assert_same(tmp_path / "a", whole)
    sessions = [event.data["chosen"].get("ranks", 1) for event in linnet.open(tmp_path / "a").events().read_events()
                if event.kind in ("run_start", "resume")]  # fmt: skip
    assert (sessions[0], sessions[-1]) == (2, 2)
    assert 1 in sessions
