"""Ranks that die, hang, fail or do not meet: one line that names rank and host, and the same command goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import linnet
from linnet.cli import main
from tests.conftest import digest, losses
from tests.scale.forked_ranks import ForkedRank, fork_ranks

SHAPE = "--d-model 32 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 64 --ctx 32 --vocab 300 --batch 2 --batch-tokens 512"
QUIET = "--device cpu --eval-every 0 --sample-every 0"
HOST = socket.gethostname()
Start = Callable[..., list[ForkedRank]]


@pytest.fixture(autouse=True)
def _away_from_home(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def words(corpus: Path) -> list[str]:
    return f"train from-scratch --corpus {corpus} {SHAPE} {QUIET} --run-id a --resume auto".split()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ranks; those that still live at the end are killed."""
    started: list[ForkedRank] = []

    def begin(words: list[str], count: int = 2, port: int | None = None) -> list[ForkedRank]:
        started.extend(fork_ranks(words, tmp_path, count, port))
        return started[-count:]

    yield begin
    for rank in started:
        rank.process.kill()
        rank.process.join()


def wait_for_step(step: int, run: str = "runs/a") -> None:
    deadline = time.monotonic() + 90
    events = Path(run) / "events.jsonl"
    while not (events.exists() and re.search(rf'"kind":"step".*"step":{step},', events.read_text())):
        assert time.monotonic() < deadline, f"no step {step}"
        time.sleep(0.05)


def end(ranks: list[ForkedRank]) -> list[tuple[int | None, str, str]]:
    """Exit code, output and errors of each."""
    return [rank.end() for rank in ranks]


def send(rank: ForkedRank, number: signal.Signals) -> None:
    assert rank.process.pid is not None
    os.kill(rank.process.pid, number)


def test_a_killed_rank_is_named_and_the_same_command_goes_on(start: Start, words: list[str]) -> None:
    """First rank 1 is killed, then rank 0, which writes the run; then both are left in peace."""
    words = [*words, "--steps", "60", "--checkpoint-every", "10"]
    ranks = start(words)
    wait_for_step(12)
    ranks[1].process.kill()
    (code, out, _), (_, out_1, err_1) = end(ranks)
    assert code == 75
    assert re.search(rf"rank 1 on {HOST} is gone after step \d+; the last checkpoint stands", out)
    assert (out_1, err_1) == ("", "")
    run = linnet.open("a")
    assert run.status == "errored"
    assert (run.summarize().end or {})["exit_code"] == 75
    assert f"rank 1 on {HOST} is gone" in (run.summarize().end or {})["error"]

    ranks = start(words)
    wait_for_step(25)
    ranks[0].process.kill()
    (_, _, _), (code, out, err) = end(ranks)
    assert (code, out) == (75, "")
    assert re.fullmatch(rf"linnet: rank 0 on {HOST} is gone after step \d+; the last checkpoint stands\n", err)
    assert linnet.open("a").status == "crashed"

    assert [code for code, _, _ in end(start(words))] == [0, 0]
    alone = [word for word in words if word not in ("--resume", "auto")]
    assert main([*alone, "--runs", "whole"]) == 0
    assert losses("a") == losses("whole/a")
    assert digest(Path("runs/a/weights/step_60.gguf")) == digest(Path("whole/a/weights/step_60.gguf"))


def test_a_rank_that_hangs_is_named_after_the_timeout(start: Start, words: list[str]) -> None:
    """Here in a collective of FSDP's; a sum of ours that fails is above."""
    ranks = start([*words, "--steps", "4000", "--rank-timeout", "0.05", "--shard", "weights"])
    wait_for_step(3)
    send(ranks[1], signal.SIGSTOP)
    code, out, _ = end(ranks[:1])[0]
    send(ranks[1], signal.SIGCONT)
    assert code == 75
    assert re.search(rf"rank 1 on {HOST} (is gone|hangs) after step \d+; the last checkpoint stands", out)


def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(start: Start, words: list[str]) -> None:
    ranks = start([*words, "--steps", "4000", "--checkpoint-every", "0"])
    wait_for_step(3)
    send(ranks[1], signal.SIGUSR1)
    (code, out, err), (code_1, out_1, err_1) = end(ranks)
    assert (code, code_1) == (128 + signal.SIGUSR1,) * 2, err + err_1
    assert "a interrupted after" in out
    assert (out_1, err_1) == ("", "")
    run = linnet.open("a")
    assert run.status == "interrupted"
    assert run.checkpoints()


def test_a_port_in_use_is_one_line_from_rank_0(start: Start, words: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        ranks = start(words, port=port)
        code, _, err = end(ranks[:1])[0]
    place = f"127.0.0.1:{port}"
    assert code == 1
    assert err == f"linnet: the ranks cannot meet at {place}: the port is in use; choose another with MASTER_PORT\n"


DROPOUT = f"rank 1 on {HOST}: --dropout is a share of the residual stream, from 0 to below 1, found 1"
WRONG = {  # RANK is the number of each
    "on both": ("--lr -1 --resume never", 2, "--lr must be above 0, found -1.0"),
    "on rank 1": ("--dropout RANK --resume never", 2, DROPOUT),
    "on rank 0": ("--lr RANK --resume never", 2, "--lr must be above 0, found 0.0"),
    "once they have met": ("--dropout RANK --resume auto", 2, DROPOUT),
    "no run": (
        "--from missing --resume auto",
        1,
        "there is no file 'missing', and no run 'missing' in the folder ROOT/",
    ),
}


def of_this_rank(words: list[str]) -> int:
    return main([word.replace("RANK", os.environ["RANK"]) for word in words])


@pytest.mark.parametrize("where", WRONG)
def test_what_is_wrong_with_the_flags_of_a_rank_is_one_line_of_rank_0(
    words: list[str], tmp_path: Path, where: str
) -> None:
    """Whether the ranks have met by then, to look for the run (`--resume auto`), or not."""
    flags, code, line = WRONG[where]
    ranks = fork_ranks([*words[:-2], "--steps", "2", *flags.split()], tmp_path, program=of_this_rank)
    (code_0, _, err_0), ended_1 = end(ranks)
    assert (code_0, ended_1) == (code, (code, "", "")), err_0
    assert err_0.startswith(f"linnet: {line.replace('ROOT', str(tmp_path))}") and err_0.count("\n") == 1
    assert not Path("runs/a").exists()


def test_figures_of_every_rank_are_logged_and_the_slow_one_is_found(start: Start, words: list[str]) -> None:
    ranks = start([*words, "--steps", "100000"])
    wait_for_step(3)
    deadline = time.monotonic() + 60
    events = Path("runs/a/events.jsonl")
    while '"ranks":[' not in events.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    send(ranks[0], signal.SIGTERM)
    end(ranks)
    lines = [json.loads(line) for line in events.read_text().splitlines() if '"ranks":[' in line]
    figures = next(line["ranks"] for line in lines if line["kind"] == "system")
    assert [rank["rank"] for rank in figures] == [0, 1]
    assert {rank["host"] for rank in figures} == {HOST}
    for name in ("tokens_per_s", "busy_percent", "rss", "cpu", "slowdown"):
        assert all(rank[name] >= 0 for rank in figures), name
    run = linnet.open("a")
    assert run.manifest.provenance["hosts"] == [HOST, HOST]
    assert {"sys/rank0/tokens_per_s", "sys/rank1/slowdown"} <= set(run.metrics())
