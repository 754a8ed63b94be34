"""The end of a run of 10,000 steps takes at most 20 ms longer for the points it leaves to readers."""

import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import sample
import workload
from report import Report

LIMIT = 20.0
# Steps, and how many a second; 0: as many as there can be.
LOOPS: dict[str, tuple[int, int]] = {
    "10,000 steps in 5 seconds": (10_000, 2000),
    "4,500 steps at once, all of which are taken in at the end": (4500, 0),
    "10,000 steps at once, which are too many for that": (10_000, 0),
}


def end(steps: int, rate: int, folder: str, repeats: int) -> dict[str, Any]:
    """Time the end of runs, those that leave points and those that do not in turns."""
    import linnet
    from linnet.runs.point_keeper import PointKeeper

    collect, leave = PointKeeper.collect, PointKeeper.leave
    taken: dict[bool, list[float]] = {True: [], False: []}
    kept = 0
    for number in range(2 * repeats):
        leaves = number % 2 == 0
        PointKeeper.collect = collect if leaves else lambda self: None
        PointKeeper.leave = leave if leaves else lambda self, most=None: False
        run = linnet.start(folder, run_id=f"run-{number}", system_every=0)
        began = time.perf_counter()
        for step, (loss, lr, grad_norm, tokens_per_s, acc) in workload.walk(steps):
            run.log(step, loss=loss, lr=lr, grad_norm=grad_norm, tokens_per_s=tokens_per_s, acc=acc)
            if step % 50 == 0:
                run.eval(step, "validation", loss=loss)
                if rate:
                    time.sleep(max(0.0, step / rate - (time.perf_counter() - began)))
        began = time.perf_counter()
        run.finish()
        taken[leaves].append(1e3 * (time.perf_counter() - began))
        kept += (Path(folder) / f"run-{number}/.cache/points").exists()
    return {"with": median(taken[True]), "without": median(taken[False]), "kept": kept / repeats}


def main() -> Report:
    report = Report(
        name="run_end",
        claim=f"{__doc__} Five scalars a step, a held-out loss every fiftieth; medians of `finish()`.",
        columns={"loop": "", "without ms": ".1f", "with ms": ".1f", "longer ms": ".1f", "left points": ".0%"},
    )
    for words, (steps, rate) in LOOPS.items():
        with sample.scratch() as folder:

            def options(steps: int = steps, rate: int = rate, folder: Path = folder) -> dict[str, Any]:
                home = folder / str(time.monotonic_ns())
                return {"steps": steps, "rate": rate, "folder": str(home), "repeats": 3 if rate else 9}

            samples = sample.take(__file__, "end", options)
        if samples.disturbed:
            report.disturbed.append(words)
        longer = samples.median("with") - samples.median("without")
        report.row(words, samples.median("without"), samples.median("with"), longer, samples.median("kept"))
        report.at_most(words, longer, LIMIT, "ms")
    report.note(
        "The thread that looks after a run takes in what was written, up to 1 MB every two seconds: 10 ms of a core "
        "for 2,500 steps a second, nothing to speak of for a training. The end takes in the rest, where that is 1 MB "
        "or less; else the run leaves no points, and whoever asks first decodes its stream."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"end": end}))
