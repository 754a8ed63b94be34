"""The end of a run of 10,000 steps takes at most 20 ms longer for the points it leaves to readers."""

import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import sample
import workload
from report import Report

STEPS = 10_000
LIMIT = 20.0
LOOPS = {
    "five scalars a step": "plain",
    "and one more every fiftieth": "sparse",
    "five of one's own, without a loss": "own",
    "five scalars, NaN from the half": "diverged",
}


def end(loop: str, folder: str, repeats: int) -> dict[str, Any]:
    """Time the end of runs of one loop, those that leave points and those that do not in turns."""
    import linnet
    from linnet.runs import owned_folder

    keep_points = owned_folder.keep_points
    taken: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * repeats):
        leaves = number % 2 == 0
        owned_folder.keep_points = keep_points if leaves else lambda events: False
        run = linnet.start(folder, run_id=f"{loop}-{number}", system_every=0)
        for step, (loss, lr, grad_norm, tokens_per_s, acc) in workload.walk(STEPS):
            if loop == "own":
                run.log(step, {"a": loss, "b": lr, "c": grad_norm, "d": tokens_per_s, "e": acc})
                continue
            loss = float("nan") if loop == "diverged" and step > STEPS // 2 else loss
            extra = {"score": acc} if loop == "sparse" and step % 50 == 0 else {}
            run.log(step, loss=loss, lr=lr, grad_norm=grad_norm, tokens_per_s=tokens_per_s, acc=acc, **extra)
            if step % 50 == 0:
                run.eval(step, "validation", loss=loss)
        began = time.perf_counter()
        run.finish()
        taken[leaves].append(1e3 * (time.perf_counter() - began))
        assert (Path(folder) / f"{loop}-{number}/.cache/points").exists() == leaves
    return {"with": median(taken[True]), "without": median(taken[False]), "best": min(taken[True]) - min(taken[False])}


def main() -> Report:
    report = Report(
        name="run_end",
        claim=f"{__doc__} `finish()`, in a process that has no numpy; medians of the runs.",
        columns={"loop": "", "without ms": ".1f", "with ms": ".1f", "longer ms": ".1f"},
    )
    for words, loop in LOOPS.items():
        with sample.scratch() as folder:

            def options(loop: str = loop, folder: Path = folder) -> dict[str, Any]:
                return {"loop": loop, "folder": str(folder / str(time.monotonic_ns())), "repeats": 7}

            samples = sample.take(__file__, "end", options)
        if samples.disturbed:
            report.disturbed.append(words)
        longer = samples.median("with") - samples.median("without")
        report.row(words, samples.median("without"), samples.median("with"), longer)
        if loop != "diverged":
            report.at_most(words, longer, LIMIT, "ms")
    report.note(
        "Two megabytes of stream are decoded and half a megabyte of points written; a stream of more than 8 MB leaves "
        "none. Lines with a number JSON cannot spell take longer. Nothing is done during the loop."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"end": end}))
