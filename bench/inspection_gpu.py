"""`--inspect taps,grads,drift@100` costs 2 % of a 15M run on a GPU at most, a looked-at step of 135M five plain ones.

Its processes are compiled side by side and timed in turn.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import inspection
import sample
from report import Report

SHAPES = {  # preset, sequences, what is looked at
    "15M, taps, grads, drift": ("nano", 8, inspection.GROUPS),
    "15M, all": ("nano", 8, inspection.ALL),
    "135M, taps, grads, drift": ("smollm2-135m", 16, inspection.GROUPS),
}


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
    for what, each in found.items():
        plain, looked = each["plain"], each["looked"]
        report.row(what, plain * 1e3, looked * 1e3, looked / plain, (looked - plain) / (every * plain))
    share, _, _ = (row[4] for row in report.rows)
    report.at_most(f"15M: cost of taps,grads,drift@{every}", 100 * float(share or 0), 2, "%")
    report.at_most("135M: a step that is looked at", float(report.rows[2][3] or 0), 5, "× a plain one")
    batches = ", ".join(f"{preset} {batch} sequences" for preset, batch, _ in SHAPES.values())
    report.note(f"Random tokens: {batches}. {found['135M, taps, grads, drift']['why']}.")
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {}))
