"""Ranks of a training that are killed again and again under `torchrun --max-restarts`.

python -m tests.scale.killed_ranks KILLS SEED RANKS RUN WORDS…

WORDS: the command line of the training; RUN: the folder of its run. Says as JSON which ranks were killed, how torchrun
ended, how many seconds each kill cost until the next step, and how many the first start took.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from linnet.train.launcher import OWN_STORE

PATIENCE = 180.0  # seconds without a step, and something is wrong


@dataclass
class Report:
    """What came of it."""

    killed: list[int] = field(default_factory=list)  # ranks
    recovery: list[float] = field(default_factory=list)  # seconds from a kill to the next step
    start_up: float = 0.0  # seconds from the command to the first step
    code: int | None = None


def steps_logged(events: Path) -> int:
    """How many lines of steps a run has written so far."""
    try:
        return events.read_bytes().count(b'"kind":"step"')
    except OSError:
        return 0


def ranks_of(torchrun: psutil.Process) -> dict[int, psutil.Process]:
    """The ranks that torchrun has started and that live."""
    ranks = {}
    for process in torchrun.children():
        try:
            if (rank := process.environ().get("RANK")) is not None and process.status() != psutil.STATUS_ZOMBIE:
                ranks[int(rank)] = process
        except psutil.Error:
            continue
    return ranks


def run(kills: int, chance: random.Random, ranks: int, run_dir: Path, words: list[str]) -> Report:
    """Train, kill one rank after the other, and let torchrun start them again; then let it end."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["--max-restarts", str(kills + 3), "-m", "linnet", *words]
    report, events = Report(), run_dir / "events.jsonl"
    environment = {**os.environ, OWN_STORE: "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=sys.stderr) as torchrun:
        try:
            known, since, killed_at = 0, time.monotonic(), None
            began = since
            while torchrun.poll() is None:
                time.sleep(0.02)
                if (logged := steps_logged(events)) > known:
                    report.start_up = report.start_up or round(time.monotonic() - began, 2)
                    known, since = logged, time.monotonic()
                    if killed_at is not None:
                        report.recovery.append(round(since - killed_at, 2))
                        killed_at = None
                    if len(report.killed) < kills:
                        time.sleep(chance.uniform(0.0, 1.5))
                        living = ranks_of(psutil.Process(torchrun.pid))
                        if len(living) == ranks:
                            rank = chance.randrange(ranks)
                            os.kill(living[rank].pid, signal.SIGKILL)
                            killed_at = time.monotonic()
                            report.killed.append(rank)
                            known = steps_logged(events)
                if time.monotonic() - since > PATIENCE:
                    torchrun.send_signal(signal.SIGTERM)
                    break
            report.code = torchrun.wait(60)
        finally:
            torchrun.kill()
    return report


if __name__ == "__main__":
    kills, seed, ranks, folder, *words = sys.argv[1:]
    print(json.dumps(asdict(run(int(kills), random.Random(int(seed)), int(ranks), Path(folder), words))))
