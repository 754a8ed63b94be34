"""Plain `srun linnet train …` and the batch script, on a real SLURM of two nodes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import linnet
from linnet.train.launcher import first_host
from tests.conftest import digest, losses
from tests.scale.local_slurm import LocalSlurm, local_slurm

SHAPE = "--d-model 32 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 64 --ctx 32 --vocab 300 --batch 2 --batch-tokens 512"
TRAINED = "--device cpu --eval-every 0 --sample-every 0 --checkpoint-every 10"
BATCH_SCRIPT = Path(__file__).parents[2] / "examples/linnet.sbatch"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[LocalSlurm]:
    with local_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        programs = cluster.folder / "bin"
        programs.mkdir()
        (programs / "linnet").write_text(f'#!/bin/sh\nexec {sys.executable} -m linnet "$@"\n')
        (programs / "linnet").chmod(0o755)
        path = f"{programs}:{cluster.environment['PATH']}"
        cluster.environment |= {"LINNET_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PATH": path}
        yield cluster


@pytest.fixture(scope="module")
def words(corpus: Path) -> list[str]:
    return f"--corpus {corpus} {SHAPE} {TRAINED}".split()


def test_the_first_host_is_the_one_that_slurm_says(slurm: LocalSlurm) -> None:
    for nodes in ("n[1-2]", "n2,n1", "gpu-[003-006,9],login", "rack[1,3]node[07-09]"):
        hosts = slurm.call("scontrol", "show", "hostnames", nodes).stdout.split()
        assert first_host(nodes) == hosts[0]


def test_a_job_that_is_stopped_is_queued_again_and_goes_on(
    slurm: LocalSlurm, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes by examples/linnet.sbatch, SIGUSR1 as before a time limit, requeue; then compared with one process."""
    log, runs = tmp_path / "job.log", tmp_path / "runs"
    nodes = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--gpus-per-node=0", "--time=10"]
    steps = ["--steps", "80"]
    variables = {"LINNET_RUNS": str(runs), "RUN_ID": "a"}
    job = slurm.submit(*nodes, f"--output={log}", str(BATCH_SCRIPT), *words, *steps, **variables)
    events = runs / "a/events.jsonl"
    deadline = time.monotonic() + 120
    while not (events.exists() and '"step":12,' in events.read_text()):
        state = slurm.job(job).get("JobState")
        assert time.monotonic() < deadline and state in ("PENDING", "CONFIGURING", "RUNNING"), log.read_text()
        time.sleep(0.1)
    slurm.call("scancel", "--signal=USR1", job)
    slurm.wait(job, "PENDING")
    run = linnet.open(runs / "a")
    assert run.status == "interrupted"
    assert (run.summarize().end or {})["exit_code"] == 138
    # The start is hurried below, but not into nodes that still clear up the first one, nor into the second in which its
    # credential was revoked: the next one would count as revoked too.
    slurm.wait_until_idle()
    time.sleep(2.5)
    slurm.call("scontrol", "update", f"jobid={job}", "starttime=now")  # SLURM itself lets two minutes pass
    done = slurm.wait(job, "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "1"), log.read_text()
    text = log.read_text()
    assert text.count("2 ranks on one machine; losses and weights to the bit as on one rank") == 2
    assert re.search(r"^a: exit code 138, queued again", text, re.M), text
    assert re.search(r"^a completed after 80 steps", text, re.M)
    monkeypatch.setenv("LINNET_CACHE", slurm.environment["LINNET_CACHE"])
    monkeypatch.setenv("LINNET_RUNS", str(tmp_path / "whole"))
    from linnet.cli import main

    assert main(["train", "from-scratch", *words, *steps, "--run-id", "a"]) == 0
    assert losses(str(runs / "a")) == losses(str(tmp_path / "whole/a"))
    name = "weights/step_80.gguf"
    assert digest(runs / "a" / name) == digest(tmp_path / "whole/a" / name)


def test_wrong_flags_are_one_line_from_one_task(slurm: LocalSlurm, words: list[str], tmp_path: Path) -> None:
    done = slurm.call(
        "srun",
        "-N2",
        "-n3",
        "linnet",
        "train",
        "from-scratch",
        *words,
        "--lr",
        "-1",
        seconds=120,
        LINNET_RUNS=str(tmp_path),
    )
    assert done.stderr.count("linnet: --lr must be above 0") == 1, done.stderr
    assert "Traceback" not in done.stderr
