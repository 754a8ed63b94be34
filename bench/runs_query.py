"""`linnet runs` filters and sorts 1,000 runs of 1,000 steps by any setting or metric in 0.6 s."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import sample
import store
from report import Report

RUNS = 1000
STEPS = 1000
LIMIT = 0.6
QUESTIONS: dict[str, list[str]] = {
    "settings": ["--where", "lr>=1e-3 and tag:third and d_model<512", "--sort", "-lr"],
    "last values": ["--where", "loss<6 and status:completed", "--sort", "validation/loss"],
    "best of a metric": ["--where", "best(validation/loss)<7 and tag:base", "--sort", "best(loss)"],
    "at a step": ["--where", "loss@500<9", "--sort", "validation/loss@500"],
    "groups": ["--by", "lr,d_model", "--columns", "best(loss),best(validation/loss)"],
}


def ask(root: str, question: str) -> dict[str, Any]:
    """The command as a person types it: interpreter, imports, reading and the table on a pipe."""
    command = [str(Path(sys.executable).parent / "linnet"), "runs", "--runs", root, *QUESTIONS[question]]
    # An installed package is compiled, so this one may be too.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "rows": len(done.stdout.splitlines()) - 1}


def end_again(root: str) -> dict[str, Any]:
    """Leave beside every stream what its writer left there when the run ended."""
    from linnet.runs.point_keeper import PointKeeper

    kept = 0
    for events in Path(root).glob("*/events.jsonl"):
        keeper = PointKeeper(events)
        for _ in range(events.stat().st_size >> 20):
            keeper.collect()
        kept += keeper.save()
    return {"kept": kept}


def main() -> Report:
    report = Report(
        name="runs_query",
        claim=f"{__doc__} Five scalars a step and a held-out loss every fiftieth; the whole command, on a pipe.",
        columns={
            "question": "", "rows": ",d", "never asked s": ".3f", "after that s": ".3f", "caches deleted s": ".3f",
        },
    )  # fmt: skip
    root = store.sweep(__file__, RUNS, STEPS)
    # When a run ends its writer leaves `.cache/points` beside the stream; what a question leaves is in `.cache/` of
    # the folder of runs.
    sample.play(__file__, "end_again", {"root": str(root)}, None)
    sample.play(__file__, "ask", {"root": str(root), "question": "settings"}, None)
    clearings = {
        "never asked": lambda: shutil.rmtree(root / ".cache", ignore_errors=True),
        "after that": lambda: None,
        "caches deleted": lambda: store.forget_derived(root),
    }
    try:
        seconds: dict[tuple[str, str], float] = {}
        rows = {}
        for state, clear in clearings.items():
            for question in QUESTIONS:

                def options(question: str = question, clear: Any = clear) -> dict[str, Any]:
                    clear()
                    return {"root": str(root), "question": question}

                samples = sample.take(__file__, "ask", options, repeats=5)
                rows[question], seconds[question, state] = int(samples.median("rows")), samples.median("seconds")
                if samples.disturbed:
                    report.disturbed.append(f"{question}, {state}")
    finally:
        sample.play(__file__, "end_again", {"root": str(root)}, None)
    for question, words in QUESTIONS.items():
        report.row(f"{question}: {' '.join(words)}", rows[question], *(seconds[question, state] for state in clearings))
        for state in ("never asked", "after that"):
            report.at_most(f"{question}, {state}", seconds[question, state], LIMIT, "s")
    report.note(
        f"{store.megabytes(root):.0f} MB of streams and caches. Never asked: the runs ended as they do, each with its "
        "points in `.cache/points`, and nobody has asked anything. After that: the same question again, answered from "
        "`.cache/figures` of the folder. Caches deleted: those of the folder and of every run are gone (or the runs "
        "are from a version that left none, or crashed), and of each stream the metrics asked for are decoded, by as "
        "many processes as there are cores, two here: the figure does not hold for that, it takes 1.2 s of one core."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"ask": ask, "end_again": end_again} | store.ROLES))
