"""One of several ranks: does the trainings of a list, one after the other, in one process group.

The list is a JSON file; RANK and WORLD_SIZE say which rank this is. A job is the words of a command; with `stop` a rank
gets SIGTERM in its step.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch

import linnet
from linnet.cli import main as linnet_main
from linnet.recipes import rank_guard
from linnet.train import StepMetrics


def own_rank() -> int:
    return int(os.environ.get("RANK", "0"))


class Terminated(linnet.Callback):
    """SIGTERM in a step of one rank, as a scheduler sends it."""

    def __init__(self, rank: int, step: int) -> None:
        self._rank, self._step = rank, step

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == self._step and self._rank == own_rank():
            signal.raise_signal(signal.SIGTERM)


class Flipped(linnet.Callback):
    """A bit of a weight changes on one rank, as in a faulty memory."""

    def __init__(self, rank: int, step: int) -> None:
        self._rank, self._step = rank, step

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == self._step and self._rank == own_rank():
            weight = next(self.model.parameters()).detach().view(-1)
            weight.view(torch.int32)[:1] ^= 1 << 18


def run(job: dict[str, Any]) -> object:
    """The exit code of a command, or the status of a run."""
    if "words" in job:
        return linnet_main([word.replace("RANK", str(own_rank())) for word in job["words"]])
    if "version" in job:  # of Linnet, on the last rank
        before, rank_guard.version = rank_guard.version, lambda _: job["version"] if own_rank() else "0"
        try:
            return linnet_main(job["of"])
        finally:
            rank_guard.version = before
    callbacks = [Flipped(**job["flip"])] if "flip" in job else [Terminated(**job["stop"])]
    if "resume" in job:
        return linnet.resume(job["resume"], callbacks=callbacks).status
    status = linnet.train("from-scratch", callbacks=callbacks, **job["flags"]).status
    return (
        "errored" if "flip" in job and own_rank() else status
    )  # where ranks part, rank 0 may still be writing the end


def main(words: list[str]) -> int:
    torch.set_num_threads(1)
    results = [run(job) for job in json.loads(Path(words[0]).read_text())]
    print(json.dumps(results), flush=True)
    return 0
