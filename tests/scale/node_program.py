"""A training that waits where a test wants to do something to it: `python node_program.py CORPUS RUNS RANKS@STEP…`.

At `2@20` two ranks go no further than step 20 until there is a file RUNS/go; at `1@30` a rank that trains alone waits
at step 30 until it is asked to stop.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import linnet
from linnet.train import StepMetrics

FLAGS = {"d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv": 2, "d_ff": 64, "ctx": 32, "vocab": 300, "batch": 2}
FLAGS |= {"batch_tokens": 512, "steps": 40, "checkpoint_every": 5, "eval_every": 0, "sample_every": 0, "seed": 2}


class Hold(linnet.Callback):
    """Waits at a step."""

    def __init__(self, step: int, until: Path | None) -> None:
        self._step, self._until = step, until

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == self._step:
            stop = signal.getsignal(signal.SIGTERM).__self__  # type: ignore[union-attr]  # the training's StopSignals
            while stop.caught is None and not (self._until is not None and self._until.exists()):
                time.sleep(0.05)


def train(corpus: str, runs: str, holds: list[str]) -> linnet.Run:
    count = int(os.environ.get("WORLD_SIZE", "1"))
    steps = {int(ranks): int(step) for ranks, step in (hold.split("@") for hold in holds)}
    callbacks = [Hold(steps[count], Path(runs) / "go" if count > 1 else None)] if count in steps else []
    options = {"corpus": corpus, "runs": runs, "run_id": "a", "device": "cpu", "callbacks": callbacks}
    return linnet.train("from-scratch", resume="auto", **options, **FLAGS)


if __name__ == "__main__":
    ended = train(sys.argv[1], sys.argv[2], sys.argv[3:])
    sys.exit(0 if ended.status == "completed" else 1)
