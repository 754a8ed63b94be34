"""A trainer that is killed again and again. Torch is loaded once; each attempt is a fork, so that kills come quickly.

python killed_trainer.py KILLS SEED WORDS…      WORDS: the command line of the training

With `--resume auto` among them the same words are said again each time, whatever the kill has left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch  # noqa: F401 - loaded before the forks

import linnet.recipes.training  # noqa: F401
from linnet.cli import main
from linnet.runs import RunStore
from linnet.train.state import steps_with_state


def attempt(words: list[str], seconds: float | None) -> int | None:
    """Run a command in a child; kill it after so many seconds. None: it was killed."""
    child = os.fork()
    if not child:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        os._exit(main(words))
    if seconds is None:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def can_resume() -> bool:
    """Is there a run, with a checkpoint?"""
    run = RunStore().latest()
    return run is not None and bool(steps_with_state(run.path))


def start_over() -> None:
    """Remove what was killed before its first checkpoint; a folder that is no run yet has its name all the same."""
    for found in Path(os.environ["LINNET_RUNS"]).glob("*"):
        shutil.rmtree(found)


def run(kills: int, chance: random.Random, words: list[str]) -> str:
    """Kill, go on, kill; then let it end. Says how often it was killed and how it ended."""
    killed = 0
    again = "--resume" in words
    while killed < kills:
        if again:
            code = attempt(words, chance.uniform(0.1, 1.2))
        elif can_resume():
            code = attempt(["resume", "latest"], chance.uniform(0.05, 0.9))
        else:
            start_over()
            code = attempt(words, chance.uniform(0.3, 1.5))
        if code is None:
            killed += 1
        elif code == 0:
            return f"killed {killed}, last 0"
        else:
            return f"killed {killed}, failed with {code}"
    if can_resume() and not again:
        code = attempt(["resume", "latest"], None)
    else:
        if not again:
            start_over()
        code = attempt(words, None)
    return f"killed {killed}, last {code}"


if __name__ == "__main__":
    print(run(int(sys.argv[1]), random.Random(int(sys.argv[2])), sys.argv[3:]))
