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

EVERY = 200  # steps between checkpoints; an evaluation comes twice as often
NEAR = 18  # figures come back up to sixteen steps late: a pause shows in the stretch around it, not in one step


def a_run(folder: str, flags: list[str]) -> dict[str, Any]:
    """A run from the command line: when its first step was done, what its pauses cost, its losses."""
    # As after an installation, Python's bytecode is kept; where it is not, each start compiles torch's sources anew.
    kept = {"PYTHONPYCACHEPREFIX": f"{os.environ['LINNET_CACHE']}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
    began = time.time()
    command = [sys.executable, "-m", "linnet", "train", "from-scratch", "--vocab", "8192", "--runs", folder]
    command += ["--sample-every", "0", "--keep", "1", *flags]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | kept)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    (run,) = Path(folder).iterdir()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["kind"] == "step"]
    found: dict[str, Any] = {"losses": [event["loss"] for event in steps]}
    found["first"] = json.loads((run / "run.json").read_text())["created_at"] + steps[0]["t"] - began
    gaps = {b["step"]: b["t"] - a["t"] for a, b in itertools.pairwise(steps)}
    rate = steps[0]["tokens"] / statistics.median(event["wall_us"] for event in steps) * 1e6
    pauses = range(EVERY // 2, len(steps) - NEAR, EVERY // 2)
    near = {step for at in pauses for step in range(at - NEAR, at + NEAR + 1)}
    calm = [gap for step, gap in gaps.items() if step > NEAR and step not in near]
    usual = statistics.mean(calm) if calm else 0.0
    costs = {at: sum(gaps[step] - usual for step in range(at - NEAR, at + NEAR + 1)) for at in pauses}
    return found | {"usual": usual, "rate": rate, "pauses": costs}


def main() -> Report:
    sample.needs_cuda()
    report = Report(
        name="run_gpu",
        claim=__doc__ or "",
        columns={"run": "", "first step s": ".1f", "steps": ",", "tok/s": ",.0f", "last loss": ".4f"},
    )
    large = ["--preset", "smollm2-135m", "--ctx", "1024", "--batch", "32"]
    small = ["--preset", "nano", "--ctx", "256", "--batch", "8", "--steps", "50", "--eval-every", "0"]
    pauses = ["--steps", "640", "--eval-every", str(EVERY // 2), "--checkpoint-every", str(EVERY)]
    runs = {
        "135M, nothing compiled or prepared": [*large, "--steps", "3"],
        "135M, again": [*large, *pauses],
        "15M, --compile off --graph off": [*small, "--compile", "off", "--graph", "off"],
        "15M, --compile on --graph on": [*small, "--compile", "on", "--graph", "on"],
    }
    found = {}
    with sample.scratch() as folder:
        for cache in ("LINNET_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ[cache] = str(folder / cache.lower())
        for i, (name, flags) in enumerate(runs.items()):
            each = sample.play(__file__, "a_run", {"folder": str(folder / str(i)), "flags": flags}, None)
            found[name] = each
            report.row(name, each["first"], len(each["losses"]), each["rate"], each["losses"][-1])
    again, plain, quick = (found[name] for name in list(runs)[1:])
    report.at_most("first step after the command, compiler's cache warm", again["first"], 15, "s")
    usual = again["usual"]
    alone, both = (
        [1e3 * cost for at, cost in again["pauses"].items() if (int(at) % EVERY == 0) is saved]
        for saved in (False, True)
    )
    evaluation, with_checkpoint = statistics.median(alone), statistics.median(both)
    report.at_most("pause of a checkpoint", with_checkpoint - evaluation, 50, "ms")
    report.at_most(
        "logging, evaluation and a checkpoint every 200 steps",
        with_checkpoint / (10 * EVERY * usual),
        1,
        "% of throughput",
    )
    apart = max(abs(a - b) / a for a, b in zip(plain["losses"], quick["losses"], strict=True))
    report.at_most("50 losses, compiled and captured against plain, bf16", apart, 1e-3, "relative")
    told = [", ".join(f"{cost:.0f}" for cost in each) for each in (alone, both)]
    report.note(
        f"Pauses for an evaluation: {told[0]} ms; for one with a checkpoint: {told[1]} ms. The figures are by medians."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"a_run": a_run}))
