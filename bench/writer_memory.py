"""A writer's memory does not grow with the number of steps: at most 3 MB between 10,000 and 1,000,000."""

import sys
from pathlib import Path
from typing import Any

import machine
import sample
import workload
import writers
from report import Report

MARKS = {
    "linnet": (10_000, 100_000, 1_000_000),
    "trackio": (10_000, 100_000),
    "tensorboard": (10_000, 100_000),
}
LABELS = {"linnet": "linnet", "trackio": "trackio", "tensorboard": "TensorBoard writer"}


def write(name: str, folder: str) -> dict[str, Any]:
    """Log to the last mark; the resident memory at each."""
    marks = MARKS[name]
    resident = {}
    with writers.BY_NAME[name](Path(folder)) as log:
        for step, row in workload.walk(marks[-1]):
            log(step, row)
            if step in marks:
                resident[str(step)] = machine.memory_now() / 1e6
    return resident


def main() -> Report:
    report = Report(
        name="writer_memory",
        claim=__doc__ or "",
        columns={
            "writer": "",
            "at 10k MB": ".1f",
            "at 100k MB": ".1f",
            "at 1M MB": ".1f",
            "growth MB": ".1f",
            "growth per 100k steps MB": ".2f",
        },
    )
    measure(report, "linnet")
    for name in ("trackio", "tensorboard"):
        with report.peer(name) as python:
            if python:
                measure(report, name, python)
    report.note("Resident memory while logging flat out. The peers are followed to 100,000 steps only.")
    return report


def measure(report: Report, name: str, python: Path | None = None) -> None:
    # Memory is not disturbed by others' use of the processor: one sample each.
    with sample.scratch() as folder:
        found = sample.play(__file__, "write", {"name": name, "folder": str(folder)}, python)
    marks = MARKS[name]
    growth = found[str(marks[-1])] - found[str(marks[0])]
    at = [found.get(str(mark)) for mark in MARKS["linnet"]]
    report.row(LABELS[name], *at, growth, growth / (marks[-1] - marks[0]) * 100_000)
    if name == "linnet":
        report.at_most("growth from 10,000 to 1,000,000 steps, linnet", growth, 3, "MB")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"write": write}))
