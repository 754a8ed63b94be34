"""`linnet runs` lists 500 runs of 1,000 steps in 0.6 s, in 0.35 s ever after, and 2,000 in 0.6 s: the whole command."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sample
import store
import workload
from report import Report

RUNS = 500
MANY = 2000
STEPS = 1000
TRACKIO_WAYS = {
    "sql": "one SQL query",
    "page": "what its metrics page loads",
    "api": "Api and each run's summary",
}


def list_linnet(root: str, runs: int) -> dict[str, Any]:
    """The command as a person types it: interpreter, imports, reading and the table on a pipe."""
    command = [str(Path(sys.executable).parent / "linnet"), "runs", "--runs", root]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    *_, (_, row) = workload.walk(STEPS)
    loss = f"{row[0]:.6f}"[:4]
    lines = [line for line in done.stdout.splitlines() if "bench-" in line and loss in line]
    assert len(lines) == runs, f"{len(lines)} of {runs} runs listed with their last loss"
    return {"seconds": seconds}


def list_trackio(root: str, way: str) -> dict[str, Any]:
    """Three ways to every run's last loss (the last way: every run's last step; it has no last loss)."""
    os.environ["TRACKIO_DIR"] = root
    import trackio
    from trackio import server
    from trackio.sqlite_storage import SQLiteStorage

    began = time.perf_counter()
    if way == "sql":
        query = (
            "SELECT run_name, MAX(step) AS step, json_extract(metrics, '$.loss') AS loss FROM metrics GROUP BY run_name"
        )
        count = len(server.query_project("bench", query)["rows"])
    elif way == "page":
        records = SQLiteStorage.get_run_records("bench")
        runs = [{"run": record["name"], "run_id": record["id"]} for record in records]
        logs = SQLiteStorage.get_logs_batch("bench", runs, max_points=3000, scalar_only=True)
        count = len([entry["logs"][-1]["loss"] for entry in logs])
    else:
        found = [server.get_run_summary("bench", run.name, run.id) for run in trackio.Api().runs("bench")]
        count = len([summary["last_step"] for summary in found])
    seconds = time.perf_counter() - began
    assert count == RUNS, count
    return {"seconds": seconds}


def list_tensorboard(root: str) -> dict[str, Any]:
    """Its EventMultiplexer over the folder, then the last loss of each run."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    began = time.perf_counter()
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(root)
    multiplexer.Reload()
    last = {run: multiplexer.Scalars(run, "loss")[-1].value for run in multiplexer.Runs()}
    seconds = time.perf_counter() - began
    assert len(last) == RUNS, len(last)
    return {"seconds": seconds}


def list_by_tail(root: str) -> dict[str, Any]:
    """The floor: run.json and the end of events.jsonl of each run, in process, no table."""
    import msgspec

    decode = msgspec.json.decode
    began = time.perf_counter()
    last = []
    for entry in os.scandir(root):
        try:
            with open(f"{entry.path}/run.json", "rb") as file:  # noqa: PTH123 - a floor: no Path objects
                decode(file.read())
            with open(f"{entry.path}/events.jsonl", "rb") as file:  # noqa: PTH123
                file.seek(max(0, file.seek(0, os.SEEK_END) - 1024))
                lines = file.read().splitlines()
        except OSError:
            continue
        last.append(next(event["loss"] for event in map(decode, reversed(lines)) if event["kind"] == "step"))
    seconds = time.perf_counter() - began
    assert len(last) == RUNS, len(last)
    return {"seconds": seconds}


def main() -> Report:
    report = Report(
        name="many_runs",
        claim=f"{__doc__} Five scalars a step. The peers are timed inside their process, import not counted.",
        columns={"listing": "", "seconds": ".3f", "on disk MB": ".0f", "seconds / linnet's first": ".1f"},
    )
    root = store.linnet(__file__, RUNS, STEPS)
    ours = {"root": str(root), "runs": RUNS}

    def first_time() -> dict[str, Any]:
        store.forget_derived(root)
        return ours

    first = measure(report, "linnet runs, first time", "list_linnet", first_time, root)
    again = measure(report, "linnet runs, after that", "list_linnet", lambda: ours, root)
    measure(
        report, "floor: run.json and the stream's end, in process", "list_by_tail", lambda: {"root": str(root)}, root
    )
    many = store.linnet(__file__, MANY, STEPS)

    def many_first_time() -> dict[str, Any]:
        store.forget_derived(many)
        return {"root": str(many), "runs": MANY}

    listed = measure(report, f"linnet runs, {MANY:,} runs, first time", "list_linnet", many_first_time, many)
    report.at_most(f"the whole command, {MANY:,} runs", listed, 0.6, "s")
    report.at_most("the whole command, first time", first, 0.6, "s")
    report.at_most("the whole command, after that", again, 0.35, "s")
    with report.peer("trackio") as python:
        if python:
            kept = store.peer(__file__, "trackio", RUNS, STEPS, python)
            for way, label in TRACKIO_WAYS.items():
                options = partial(dict, root=str(kept), way=way)
                measure(report, f"trackio, {label}", "list_trackio", options, kept, python, repeats=3)
    with report.peer("tensorboard") as python:
        if python:
            kept = store.peer(__file__, "tensorboard", RUNS, STEPS, python)
            options = partial(dict, root=str(kept))
            label = "TensorBoard EventMultiplexer"
            measure(report, label, "list_tensorboard", options, kept, python, repeats=1)
    report.note("Aim and MLflow are left out: their environments take 0.4 and 0.9 GB.")
    return report


def measure(
    report: Report,
    label: str,
    role: str,
    options: Callable[[], dict[str, Any]],
    root: Path,
    python: Path | None = None,
    repeats: int = 5,
) -> float:
    """Take the samples of one listing and put its line into the table."""
    samples = sample.take(__file__, role, options, python=python, repeats=repeats)
    if samples.disturbed:
        report.disturbed.append(label)
    seconds = samples.median("seconds")
    first = report.rows[0][1] if report.rows else None
    ratio = seconds / first if isinstance(first, float) else None
    report.row(label, seconds, store.megabytes(root), ratio)
    return seconds


if __name__ == "__main__":
    roles = {
        "list_linnet": list_linnet,
        "list_trackio": list_trackio,
        "list_tensorboard": list_tensorboard,
        "list_by_tail": list_by_tail,
    }
    sys.exit(sample.start(main, roles | store.ROLES))
