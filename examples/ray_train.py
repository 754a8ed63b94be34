"""Train with Ray: its workers are the ranks of one run.

    pip install 'ray[train]'
    python examples/ray_train.py --workers 4 --corpus books/ --runs /shared/runs

Ray Train starts the workers, gives each its GPU and makes the process group; `linnet.train` finds that group and uses
it. A worker or a machine that fails is replaced by Ray, and the same call goes on from the newest checkpoint.
"""

from __future__ import annotations

import argparse
from typing import Any

import linnet


def loop(flags: dict[str, Any]) -> None:
    """What every worker does."""
    run = linnet.train("from-scratch", resume="auto", **flags)
    if run.status != "completed":  # Ray starts the workers again
        raise RuntimeError(f"run {run.id} is {run.status}")


def main() -> None:
    """Read the command line and hand the loop to Ray."""
    parser = argparse.ArgumentParser(description="Train a language model with Ray's workers.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="without GPUs")
    parser.add_argument("--corpus", default="python")
    parser.add_argument("--runs", default="runs", help="on storage that every machine sees")
    parser.add_argument("--run-id", default="ray-1")
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()

    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    flags = {name: getattr(given, name) for name in ("corpus", "runs", "run_id", "preset", "steps")}
    trainer = TorchTrainer(
        loop,
        train_loop_config={**flags, "device": "cpu" if given.cpu else "auto"},
        scaling_config=ScalingConfig(num_workers=given.workers, use_gpu=not given.cpu),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=20)),
    )
    trainer.fit()
    print(linnet.open(given.run_id, given.runs))


if __name__ == "__main__":
    main()
