"""`linnet train` on a GPU, from the command on: how soon it trains, what its pauses cost, the same losses as plainly.

The model is the 135M llama with a vocabulary of 8,192, trained on the standard library of Python.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import sample
from report import Report

EVERY = 200  # steps between evaluations; a checkpoint comes twice as often


def a_run(folder: str, flags: list[str]) -> dict[str, Any]:
    """A run from the command line: when its first step was done, what its pauses cost, its losses."""
    began = time.time()
    command = [sys.executable, "-m", "linnet", "train", "from-scratch", "--vocab", "8192", "--runs", folder]
    done = subprocess.run([*command, "--sample-every", "0", "--keep", "1", *flags], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    (run,) = Path(folder).iterdir()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["kind"] == "step"]
    found: dict[str, Any] = {"losses": [event["loss"] for event in steps]}
    found["first"] = json.loads((run / "run.json").read_text())["created_at"] + steps[0]["t"] - began
    gaps = {b["step"]: b["t"] - a["t"] for a, b in itertools.pairwise(steps)}
    usual = statistics.median(event["wall_us"] for event in steps) / 1e6
    found |= {"usual": usual, "rate": steps[0]["tokens"] / usual, "pauses": {}}
    # Figures come back up to sixteen steps late: a pause shows in the stretch around it, not in one step.
    for at in range(EVERY // 2, len(steps) - 20, EVERY // 2):
        stretch = [gaps[step] for step in range(at - 18, at + 19)]
        found["pauses"][at] = sum(stretch) - len(stretch) * usual
    return found


def main() -> Report:
    sample.needs_cuda()
    report = Report(
        name="run_gpu",
        claim=__doc__ or "",
        columns={"run": "", "first step s": ".1f", "steps": ",", "tok/s": ",.0f", "last loss": ".4f"},
    )
    large = ["--preset", "smollm2-135m", "--ctx", "1024", "--batch", "32"]
    small = ["--preset", "nano", "--ctx", "256", "--batch", "8", "--steps", "50", "--eval-every", "0"]
    pauses = ["--steps", "320", "--eval-every", str(EVERY), "--checkpoint-every", str(EVERY // 2)]
    runs = {
        "135M, nothing compiled or prepared": [*large, "--steps", "3"],
        "135M, again": [*large, *pauses],
        "15M, --compile off --graph off": [*small, "--compile", "off", "--graph", "off"],
        "15M, --compile on --graph on": [*small, "--compile", "on", "--graph", "on"],
    }
    found = {}
    with sample.scratch() as folder:
        os.environ["LINNET_CACHE"] = str(folder / "cache")
        for i, (name, flags) in enumerate(runs.items()):
            each = sample.play(__file__, "a_run", {"folder": str(folder / str(i)), "flags": flags}, None)
            found[name] = each
            report.row(name, each["first"], len(each["losses"]), each["rate"], each["losses"][-1])
    again, plain, quick = (found[name] for name in list(runs)[1:])
    report.at_most("first step after the command, compiler's cache warm", again["first"], 15, "s")
    usual = again["usual"]
    pause = {at: 1e3 * again["pauses"][str(at)] for at in (EVERY // 2, EVERY)}
    report.at_most("pause of a checkpoint", pause[EVERY // 2], 50, "ms")
    report.at_most(
        "logging, evaluation and a checkpoint every 200 steps",
        pause[EVERY] / (10 * EVERY * usual),
        1,
        "% of throughput",
    )
    apart = max(abs(a - b) / a for a, b in zip(plain["losses"], quick["losses"], strict=True))
    report.at_most("50 losses, compiled and captured against plain, bf16", apart, 1e-3, "relative")
    report.note(f"An evaluation together with a checkpoint takes {pause[EVERY]:.0f} ms.")
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"a_run": a_run}))
