"""Kill a writer of checkpoints again and again, and say after each kill what a reader finds.

    python killed_writer.py WEIGHTS_DIR KILLS

A script, because it forks: it holds no threads and only what a writer needs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from linnet.architectures import LlamaConfig
from linnet.files import STAGED_SUFFIX
from linnet.gguf import GGUFFile, layout, resolve_link, write_step

CFG = LlamaConfig(vocab=4096, d_model=256, n_heads=4, n_kv=4, d_ff=256, n_layers=1, ctx=64)


def params(step: int) -> dict[str, np.ndarray]:
    """Every value is the step's number: a mixture of two steps would show."""
    shapes = {name: param.shape for name, param in layout(CFG).params.items() if not param.optional}
    return {name: np.full(shape, step, np.float32) for name, shape in shapes.items()}


def write_until_killed(weights: Path, first: int) -> None:
    for step in range(first, first + 1000):
        write_step(CFG, params(step), weights, "run", step)


def observe(weights: Path) -> dict[str, object]:
    """What `latest` leads to: its step, and whether it is that step's file from end to end."""
    latest = resolve_link(weights / "latest")
    with GGUFFile.open(latest) as file:
        step = file.metadata["general.step"]
        whole = all((tensor.read() == step).all() for tensor in file.tensors.values())
    names = [path.name for path in weights.iterdir()]
    return {
        "step": step,
        "whole": bool(whole) and latest.name == f"step_{step}.gguf",
        "partial": sum(name.endswith(STAGED_SUFFIX) for name in names),
    }


def main() -> None:
    weights, kills = Path(sys.argv[1]), int(sys.argv[2])
    write_step(CFG, params(1), weights, "run", 1)
    random.seed(0)
    for kill in range(kills):
        child = os.fork()
        if child == 0:
            write_until_killed(weights, 1000 * (kill + 1))
            os._exit(0)
        time.sleep(random.uniform(0.002, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(json.dumps(observe(weights)), flush=True)
        for old in weights.glob("step_*.gguf"):
            if old != resolve_link(weights / "latest"):
                old.unlink()
    write_step(CFG, params(9), weights, "run", 9)
    print(json.dumps(observe(weights)))


if __name__ == "__main__":
    main()
