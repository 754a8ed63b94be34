"""Logging five scalars costs the training loop at most 3 µs a step, 7 to 40 times less than the peers."""

import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

import machine
import sample
import workload
import writers
from report import Report

STEPS = 100_000
AT_LEAST = {"trackio": 7, "tensorboard": 15, "wandb": 40}
LABELS = {
    "nothing": "the measuring itself",
    "floor": "floor: one encode, one write",
    "linnet": "linnet",
    "trackio": "trackio",
    "tensorboard": "TensorBoard writer",
    "wandb": "W&B offline",
}


def write(name: str, folder: str, steps: int) -> dict[str, Any]:
    """Log `steps` steps and time each call, then the closing."""
    costs = array("q", bytes(8 * steps))
    clock = time.perf_counter_ns
    table = workload.rows()
    last = len(table) - 1
    before = machine.memory_now()
    with writers.BY_NAME[name](Path(folder)) as log:
        for step in range(1, steps + 1):
            row = table[step & last]
            began = clock()
            log(step, row)
            costs[step - 1] = clock() - began
        closing = clock()
    closed = clock() - closing
    ordered = sorted(costs)
    return {
        "mean": sum(costs) / steps / 1e3,
        "median": ordered[steps // 2] / 1e3,
        "p99": ordered[steps * 99 // 100] / 1e3,
        "worst": ordered[-1] / 1e6,
        "closed": (sum(costs) + closed) / steps / 1e3,
        "bytes": sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / steps,
        "memory": (machine.memory_peak() - before) / 1e6,
    }


def main() -> Report:
    report = Report(
        name="log_overhead",
        claim=f"{__doc__} {STEPS:,} steps, a fresh process each time, medians of the runs.",
        columns={
            "writer": "",
            "mean µs": ".2f",
            "median µs": ".2f",
            "p99 µs": ".1f",
            "worst ms": ".2f",
            "until closed µs": ".2f",
            "bytes a step": ".0f",
            "memory MB": ".0f",
            "mean / linnet's": ".1f",
        },
    )
    means: dict[str, float] = {}
    for name in LABELS:
        if name in AT_LEAST:
            with report.peer(name) as python:
                if python:
                    means[name] = measure(report, name, means, python)
        else:
            means[name] = measure(report, name, means)
    for name, times in AT_LEAST.items():
        ratio = means[name] / means["linnet"] if name in means else None
        report.at_least(f"in-loop mean, {LABELS[name]} / linnet", ratio, times, "x")
    report.note(
        "Mean and median are of the time one call takes in the loop, dict building included. The peers hand "
        "their work to a thread that then competes for the interpreter, which their mean shows and their "
        "median hides; the ratios are of means."
    )
    report.note("The time of the measuring itself is in every figure; it is not taken off.")
    report.note("Memory is what the process grew by from before the logger's import to its highest.")
    return report


def measure(report: Report, name: str, means: dict[str, float], python: Path | None = None) -> float:
    with sample.scratch() as home:

        def options() -> dict[str, Any]:
            return {"name": name, "folder": tempfile.mkdtemp(dir=home), "steps": STEPS}

        samples = sample.take(__file__, "write", options, python=python)
    mean = samples.median("mean")
    if samples.disturbed:
        report.disturbed.append(LABELS[name])
    report.row(
        LABELS[name],
        mean,
        samples.median("median"),
        samples.median("p99"),
        samples.worst("worst"),
        samples.median("closed"),
        samples.median("bytes"),
        samples.median("memory"),
        mean / means.get("linnet", mean) if name not in ("nothing", "floor") else None,
    )
    if name == "linnet":
        report.at_most("in-loop median, linnet", samples.median("median"), 3.0, "µs")
    return mean


if __name__ == "__main__":
    sys.exit(sample.start(main, {"write": write}))
