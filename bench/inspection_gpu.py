"""`--inspect taps,grads,drift@100` costs 2 % of a 15M run on a GPU at most, a looked-at step of 135M five plain ones.

The former is the time of whole runs, with looks and without: while one is prepared, the GPU has steps to do. A look by
itself is timed with the GPU waited for before and after it; its processes are compiled side by side, timed in turn.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import inspection
import sample
from report import Report

SHAPES = {  # preset, sequences, what is looked at
    "15M, taps, grads, drift": ("nano", 8, inspection.GROUPS),
    "15M, all": ("nano", 8, inspection.ALL),
    "135M, taps, grads, drift": ("smollm2-135m", 16, inspection.GROUPS),
}


STEPS, FROM = 1200, 200  # of a run, and from which on it is timed


def a_run(folder: str, flags: list[str]) -> dict[str, Any]:
    """Seconds of a step of a run from the command line, with all that happens between steps."""
    command = [sys.executable, "-m", "linnet", "train", "from-scratch", "--preset", "nano", "--vocab", "8192"]
    command += ["--runs", folder, "--steps", str(STEPS), "--eval-every", "0", "--sample-every", "0"]
    done = subprocess.run([*command, "--checkpoint-every", "100000", *flags], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    (run,) = Path(folder).iterdir()
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    times = {event["step"]: event["t"] for event in events if event["kind"] == "step"}
    return {"seconds": (times[STEPS] - times[FROM]) / (STEPS - FROM)}


def runs(report: Report, folder: Path) -> float:
    """The share that looks add to a run's time: the same run without and with them, by turns."""
    found: dict[str, list[float]] = {"plain": [], "looked at": []}
    looks = ["--inspect", f"{','.join(sorted(inspection.GROUPS))}@{inspection.EVERY}"]
    for turn in range(4):
        name, flags = ("looked at", looks) if turn % 2 else ("plain", [])
        place = folder / f"run{turn}"
        place.mkdir()
        found[name].append(sample.play(__file__, "a_run", {"folder": str(place), "flags": flags})["seconds"])
    plain, looked = (min(each) for each in found.values())
    report.row(f"15M, whole runs, a look each {inspection.EVERY}", plain * 1e3, looked * 1e3, looked / plain, None)
    return looked / plain - 1


def main() -> Report:
    """Begin all, wait for all."""
    sample.needs_cuda()
    every = inspection.EVERY
    report = Report(
        name="inspection_gpu",
        claim=(__doc__ or "").split("\n")[0],
        columns={"what": "", "plain ms": ".2f", "looked at ms": ".2f", "factor": ".2f", f"share @{every}": ".2%"},
    )
    script = str(Path(inspection.__file__))
    with sample.scratch() as folder, ExitStack() as stack:
        environment = {"BENCH_LOCK": str(folder / "lock"), **os.environ}
        begun = []
        for number, (preset, batch, groups) in enumerate(SHAPES.values()):
            place = folder / str(number)
            place.mkdir()
            options = {"preset_name": preset, "device": "cuda", "batch": batch, "groups": sorted(groups)}
            command = sample.command(script, "looks", {**options, "folder": str(place)}, place / "answer")
            begun.append(stack.enter_context(subprocess.Popen(command, env=environment)))
        found = {}
        for number, (what, process) in enumerate(zip(SHAPES, begun, strict=True)):
            if process.wait():
                raise SystemExit(f"{what}: ended with {process.returncode}")
            found[what] = json.loads((folder / str(number) / "answer").read_text())
        share = runs(report, folder)
    for what, each in found.items():
        plain, looked = each["plain"], each["looked"]
        report.row(what, plain * 1e3, looked * 1e3, looked / plain, (looked - plain) / (every * plain))
    report.at_most(f"15M: cost of taps,grads,drift@{every}, of a run's time", 100 * share, 2, "%")
    report.at_most("135M: a step that is looked at", float(report.rows[-1][3] or 0), 5, "× a plain one")
    batches = ", ".join(f"{preset} {batch} sequences" for preset, batch, _ in SHAPES.values())
    report.note(f"Random tokens: {batches}. {found['135M, taps, grads, drift']['why']}.")
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"a_run": a_run}))
