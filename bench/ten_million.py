"""A run of ten million steps is shown in 8 s and 300 MB the first time, in 0.5 s ever after, and checked in 20 s."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sample
import store
from report import Report

STEPS = 10_000_000


def command(words: list[str], expected: str) -> dict[str, Any]:
    """The command as a person types it, the whole process: seconds, processor seconds, the most memory it had."""
    linnet = str(Path(sys.executable).parent / "linnet")
    began = time.perf_counter()
    with subprocess.Popen([linnet, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    assert process.returncode == 0, text
    assert expected in text, text
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": seconds,
        "processor": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss * unit / 1e6,
    }


def main() -> Report:
    report = Report(
        name="ten_million",
        claim=f"{__doc__} The whole command, a warm page cache. The goals are for a loss and a learning rate a step.",
        columns={
            "command": "",
            "seconds": ".2f",
            "processor s": ".2f",
            "memory MB": ".0f",
            "stream MB": ".0f",
        },
    )
    for scalars in (2, 5):
        root = store.linnet(__file__, 1, STEPS, scalars)
        (stream,) = root.glob("*/events.jsonl")
        megabytes = stream.stat().st_size / 1e6
        show, check = (
            ["show", stream.parent.name, "--runs", str(root)],
            ["check", stream.parent.name, "--runs", str(root)],
        )

        def first_time(root: Path = root, show: list[str] = show) -> dict[str, Any]:
            store.forget_derived(root)
            return {"words": show, "expected": f"{STEPS:,}"}

        def again(show: list[str] = show) -> dict[str, Any]:
            return {"words": show, "expected": f"{STEPS:,}"}

        def checked(check: list[str] = check) -> dict[str, Any]:
            return {"words": check, "expected": "sound"}

        label = f"{scalars} scalars a step"
        first = measure(report, f"linnet show, first time, {label}", first_time, megabytes)
        later = measure(report, f"linnet show, after that, {label}", again, megabytes)
        judged = measure(report, f"linnet check, {label}", checked, megabytes)
        if scalars == 2:
            report.at_most("linnet show, first time", first.median("seconds"), 8, "s")
            report.at_most("memory of linnet show, first time", first.worst("memory"), 300, "MB")
            report.at_most("linnet show, after that", later.median("seconds"), 0.5, "s")
            report.at_most("linnet check", judged.median("seconds"), 20, "s")
        else:
            report.at_most("memory of linnet show, first time, five scalars", first.worst("memory"), 300, "MB")
            report.at_most("linnet show, after that, five scalars", later.median("seconds"), 0.5, "s")
            report.at_most("linnet check, five scalars", judged.median("seconds"), 20, "s")
    return report


def measure(report: Report, label: str, options: Callable[[], dict[str, Any]], megabytes: float) -> sample.Samples:
    """Take the samples of one command and put its line into the table."""
    samples = sample.take(__file__, "command", options, repeats=3)
    if samples.disturbed:
        report.disturbed.append(label)
    report.row(label, samples.median("seconds"), samples.median("processor"), samples.worst("memory"), megabytes)
    return samples


if __name__ == "__main__":
    sys.exit(sample.start(main, {"command": command} | store.ROLES))
