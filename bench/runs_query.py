"""`linnet runs` filters and sorts 1,000 runs of 1,000 steps by any setting or metric in 0.6 s."""

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
# What is asked, and whether whole streams must be read for it.
QUESTIONS: dict[str, tuple[list[str], bool]] = {
    "settings": (["--where", "lr>=1e-3 and tag:third and d_model<512", "--sort", "-lr"], False),
    "last values": (["--where", "loss<6 and status:completed", "--sort", "validation/loss"], False),
    "best of a metric": (["--where", "best(validation/loss)<7 and tag:base", "--sort", "best(loss)"], True),
    "at a step": (["--where", "loss@500<9", "--sort", "validation/loss@500"], True),
    "groups": (["--by", "lr,d_model", "--columns", "best(loss),best(validation/loss)"], True),
}


def ask(root: str, question: str) -> dict[str, Any]:
    """The command as a person types it: interpreter, imports, reading and the table on a pipe."""
    words = QUESTIONS[question][0]
    command = [str(Path(sys.executable).parent / "linnet"), "runs", "--runs", root, *words]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "rows": len(done.stdout.splitlines()) - 1}


def main() -> Report:
    report = Report(
        name="runs_query",
        claim=f"{__doc__} Five scalars a step and a held-out loss every fiftieth; the whole command, on a pipe.",
        columns={"question": "", "rows": ",d", "first time s": ".3f", "after that s": ".3f"},
    )
    root = store.sweep(__file__, RUNS, STEPS)
    for question, (words, reads) in QUESTIONS.items():

        def anew(question: str = question) -> dict[str, Any]:
            store.forget_derived(root)
            return {"root": str(root), "question": question}

        first = sample.take(__file__, "ask", anew, repeats=5)
        again = sample.take(
            __file__, "ask", lambda question=question: {"root": str(root), "question": question}, repeats=5
        )
        if first.disturbed or again.disturbed:
            report.disturbed.append(question)
        report.row(
            f"{question}: {' '.join(words)}",
            int(first.median("rows")),
            first.median("seconds"),
            again.median("seconds"),
        )
        report.at_most(f"{question}, first time", first.median("seconds"), LIMIT, "s")
        if reads:
            report.at_most(f"{question}, after that", again.median("seconds"), LIMIT, "s")
    report.note(
        f"{store.megabytes(root):.0f} MB of streams. First time: `.cache/` of the folder and of every run is gone, and "
        "of each stream the metrics asked for are decoded, by as many processes as there are cores, two here. "
        "After that they come from `.cache/figures`. The first time of whole streams is not within the figure: "
        "decoding two metrics of 206 MB takes 1.2 s of one core."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"ask": ask} | store.ROLES))
