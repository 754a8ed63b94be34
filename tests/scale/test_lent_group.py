"""A process group that a program has made already, as Ray does, is used; and what its ranks tell each other."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.runs.straggler import slowdowns
from linnet.train.ranks import RankLostError, Ranks
from tests.conftest import digest, losses
from tests.scale.forked_ranks import free_port

EXAMPLE = Path(__file__).parents[2] / "examples/ray_train.py"
FLAGS: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv": 2, "d_ff": 64, "ctx": 32, "vocab": 300}
FLAGS |= {"batch": 2, "batch_tokens": 512, "steps": 12, "eval_every": 0, "sample_every": 0, "device": "cpu"}


def worker(rank: int, port: int, flags: dict[str, Any], fails_at: int | None, told: Path) -> None:
    """What a worker of Ray does: the group is there, the loop of the example is called in it, or one that fails."""
    import torch.distributed as dist

    class Fails(linnet.Callback):
        def on_step(self, metrics: Any) -> None:
            if rank == 1 and metrics.step == fails_at:
                raise MemoryError("no room for one more")

    os.environ["OMP_NUM_THREADS"] = "1"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    fact: object
    try:
        if fails_at is None:
            runpy.run_path(str(EXAMPLE))["loop"]({"run_id": "a", **flags})
        else:
            linnet.train("from-scratch", run_id="a", resume="auto", callbacks=[Fails()], **flags)
        run = linnet.open("a", flags["runs"])
        end = run.summarize().end or {}
        fact = [run.status, end.get("error"), dist.is_initialized()]
    except linnet.LinnetError:  # what a callback raises comes as one
        fact = ["failed", None, True]
    told.write_text(json.dumps(fact))


def train_in_group(folder: Path, flags: dict[str, Any], fails_at: int | None = None) -> list[Any]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "linnet.cli", "linnet.recipes.training", "linnet.cli.training"])
    port, files = free_port(), [folder / f"{rank}.json" for rank in range(2)]
    workers = [context.Process(target=worker, args=(r, port, flags, fails_at, files[r]), daemon=True) for r in range(2)]
    for process in workers:
        process.start()
    for process in workers:
        process.join(120)
        process.kill()
    return [json.loads(file.read_text()) for file in files]


def test_a_group_that_exists_is_used_and_a_rank_that_fails_is_named(
    corpus: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 has no memory left in step 7: rank 0 says so; the same call goes on, to the bit."""
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    flags = {**FLAGS, "corpus": str(corpus), "checkpoint_every": 5, "runs": str(tmp_path / "runs")}
    first, second = train_in_group(tmp_path, flags, fails_at=7)
    assert second == ["failed", None, True]
    host = os.uname().nodename
    assert first[0] == "errored"
    assert first[1].startswith(f"rank 1 on {host}: ")
    assert "no room for one more" in first[1]
    assert train_in_group(tmp_path, flags) == [["completed", None, True]] * 2
    whole = linnet.train("from-scratch", run_id="a", **{**flags, "runs": str(tmp_path / "whole")})
    assert losses(str(tmp_path / "runs/a")) == losses(str(whole.path))
    assert digest(tmp_path / "runs/a/weights/step_12.gguf") == digest(whole.path / "weights/step_12.gguf")


def test_a_failed_collective_is_told_of_without_a_place_in_c() -> None:
    text = (
        "[/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:33170."
        " This is typically caused by a remote worker crashing."
    )
    with (
        pytest.raises(
            RankLostError, match=r"^a rank is gone, or hangs: Connection closed by peer \[127.0.0.1\]:33170$"
        ),
        Ranks().collective(torch.zeros(1)),
    ):
        raise RuntimeError(text)


def test_a_rank_is_slow_by_the_median_of_the_others() -> None:
    assert slowdowns({0: 10.0, 1: 15.0}) == {0: 0.67, 1: 1.5}
    assert slowdowns({0: 10.0, 1: 10.0, 2: 10.0, 3: 13.0})[3] == 1.3
    assert slowdowns({0: 10.0}) == {}
    assert slowdowns({0: 0.0, 1: 5.0}) == {0: 0.0}


def test_a_training_without_a_step_is_ended_by_its_watchdog(corpus: Path, cache: Path, tmp_path: Path) -> None:
    """As if a captured collective never ended: one process that believes to be one of two."""
    context = multiprocessing.get_context("forkserver")
    err = tmp_path / "err"
    process = context.Process(target=hang, args=(free_port(), err, tmp_path / "line"), daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 75
    assert "has had no step for" in (tmp_path / "line").read_text()
    assert "Thread 0x" in err.read_text()
    assert "linnet: rank 0 on" in err.read_text()


def hang(port: int, err: Path, line: Path) -> None:
    import torch.distributed as dist

    from linnet.train import rank_monitor
    from linnet.train.ranks import Ranks

    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    monitor = rank_monitor.RankMonitor(
        Ranks(), work=1, unit="tokens", figures_of_device=dict, hang_seconds=0.5, on_hang=lambda text: _note(line, text)
    )
    rank_monitor._SILENT_SECONDS = 0.1
    with monitor:
        monitor.stepped(1, 0.01)
        with monitor.paused():
            time.sleep(2.0)  # an evaluation may take its time
        time.sleep(60)


def test_a_thread_that_waits_for_a_silent_store_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """The process of rank 0, which keeps the store, is stopped; at the end of another its thread is still asking."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=leave_while_asking, args=(free_port(),), daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 138


def test_threads_of_a_group_that_was_joined_do_not_change_the_exit_code() -> None:
    """A call of C++ that comes back while the interpreter is taken down ends a process with 134."""
    program = """
import sys, threading
from linnet.train import process, ranks
import torch.distributed as dist

def ask():
    while True:
        store.check(["nothing"])

ranks.join("cpu")
store = dist.distributed_c10d._get_default_store()
threading.Thread(target=ask, daemon=True).start()
process.end_process(138)
sys.exit(1)
"""
    placed = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = os.environ | placed
    other = subprocess.Popen([sys.executable, "-c", program], env=environment | {"RANK": "1"})
    first = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60)
    assert (first.returncode, other.wait(60)) == (138, 138)


def leave_while_asking(port: int) -> None:
    import threading

    import torch.distributed as dist

    from linnet.train import process, rank_monitor
    from linnet.train.ranks import Ranks

    class SilentStore:
        """Answers when the test is over; as C++ does, it holds no lock of Python's meanwhile."""

        asked = threading.Event()

        def set(self, key: str, text: str) -> None:
            if threading.current_thread() is not threading.main_thread():
                self.asked.set()
                time.sleep(60)

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    rank_monitor._BEAT_SECONDS = rank_monitor._JOIN_SECONDS = 0.05
    monitor = rank_monitor.RankMonitor(
        Ranks(), work=1, unit="tokens", figures_of_device=dict, hang_seconds=60, on_hang=print
    )
    process.end_process(1)  # nobody was: it goes on
    monitor._store = SilentStore()
    with monitor:
        assert SilentStore.asked.wait(10)
    process.end_process(138)
    os._exit(1)


def _note(file: Path, text: str) -> None:
    file.write_text(text)
