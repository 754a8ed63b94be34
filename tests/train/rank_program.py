"""One of several ranks: does the trainings of a list, one after the other, in one process group.

`python rank_program.py JOBS.json`, started once for each rank with RANK and WORLD_SIZE, or by torchrun. A job is the
words of a command; with `stop` a rank gets SIGTERM in its step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import linnet
from linnet.cli import main
from linnet.train import StepMetrics


class Terminated(linnet.Callback):
    """SIGTERM in a step of one rank, as a scheduler sends it."""

    def __init__(self, rank: int, step: int) -> None:
        self._rank, self._step = rank, step

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == self._step and int(os.environ.get("RANK", "0")) == self._rank:
            signal.raise_signal(signal.SIGTERM)


def run(job: dict[str, Any]) -> object:
    if "stop" not in job:
        return main(job["words"])
    callbacks = [Terminated(**job["stop"])]
    if "resume" in job:
        return linnet.resume(job["resume"], callbacks=callbacks).status
    return linnet.train("from-scratch", callbacks=callbacks, **job["flags"]).status


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = [run(job) for job in json.loads(Path(sys.argv[1]).read_text())]
    print(json.dumps(results), flush=True)
