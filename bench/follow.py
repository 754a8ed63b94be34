"""An event is in a reader's hands within 100 ms of its `log()`.

A writer logs 200 steps a second, each with the moment just before its call on the clock that all processes
share; the reader, in a process of its own, takes the time when each event comes out.
"""

import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sample
from report import Report

RATE = 200
SECONDS = 8
STEPS = RATE * SECONDS
POLL = 0.02  # seconds between two looks into a peer's file: as often as Linnet looks
PATIENCE = 60.0  # seconds without any event after which a watch is given up
LABELS = {
    "linnet": "linnet, `EventStream.follow`",
    "trackio": "trackio, its SQLite file looked at as often",
    "tensorboard": "TensorBoard, its event file looked at as often",
}

Send = Callable[[int, float], None]


def write(name: str, folder: str) -> dict[str, Any]:
    """Log at the rate."""
    with SENDERS[name](folder) as send:
        due = time.monotonic()
        for step in range(1, STEPS + 1):
            send(step, time.monotonic())
            due += 1 / RATE
            time.sleep(max(0.0, due - time.monotonic()))
    return {}


@contextmanager
def send_linnet(folder: str) -> Iterator[Send]:
    import linnet

    with linnet.start(folder, arch="bench", system_every=0) as run:
        yield lambda step, sent: run.log(step, loss=2.5, sent=sent)


@contextmanager
def send_trackio(folder: str) -> Iterator[Send]:
    os.environ["TRACKIO_DIR"] = folder
    import trackio

    run = trackio.init(project="bench", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    yield lambda step, sent: run.log({"loss": 2.5, "sent": sent}, step=step)
    trackio.finish()


@contextmanager
def send_tensorboard(folder: str) -> Iterator[Send]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(folder)
    summary = Summary(value=[Summary.Value(tag="loss", simple_value=2.5)])
    # Its values are float32, too coarse for a moment; the event's own time is not.
    yield lambda step, sent: writer.add_event(Event(wall_time=sent, step=step, summary=summary))
    writer.close()


SENDERS = {"linnet": send_linnet, "trackio": send_trackio, "tensorboard": send_tensorboard}


def watch(name: str, folder: str) -> dict[str, Any]:
    """Start a writer, follow it to its last step, and tell how late each event came."""
    command = sample.command(__file__, "write", {"name": name, "folder": folder}, Path(folder) / "answer")
    began = time.monotonic()
    writer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    delays: list[float] = []
    try:
        for sent in WATCHERS[name](Path(folder)):
            now = time.monotonic()
            delays += [now - moment for moment in sent]
            began = now if sent else began
            if len(delays) >= STEPS:
                break
            if writer.poll() not in (0, None) or now - began > PATIENCE:
                raise sample.RoleFailedError(f"{len(delays)} of {STEPS} events came from {name}")
    finally:
        writer.kill()
        writer.wait()
    used = resource.getrusage(resource.RUSAGE_SELF)
    ordered = sorted(delays)
    return {
        "median": ordered[STEPS // 2] * 1e3,
        "p99": ordered[STEPS * 99 // 100] * 1e3,
        "most": ordered[-1] * 1e3,
        "cpu": (used.ru_utime + used.ru_stime) / SECONDS * 100,
    }


def watch_linnet(folder: Path) -> Iterator[list[float]]:
    from linnet.runs import EventStream

    for stream in _appearing(folder, "*/events.jsonl"):
        with EventStream(stream) as events:
            for batch in events.follow():
                yield [event.data["sent"] for event in batch if event.kind == "step"]


def watch_trackio(folder: Path) -> Iterator[list[float]]:
    for database in _appearing(folder, "bench.db"):
        connection = sqlite3.connect(database)
        last = 0
        while True:
            try:
                rows = connection.execute("SELECT id, metrics FROM metrics WHERE id > ?", (last,)).fetchall()
            except sqlite3.OperationalError:  # the table is not there yet, or being written
                rows = []
            last = rows[-1][0] if rows else last
            yield [json.loads(metrics)["sent"] for _, metrics in rows]
            time.sleep(POLL)


def watch_tensorboard(folder: Path) -> Iterator[list[float]]:
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    for file in _appearing(folder, "events.out.*"):
        loader = RawEventFileLoader(str(file))
        while True:
            events = [Event.FromString(record) for record in loader.Load()]
            yield [event.wall_time for event in events if event.step]
            time.sleep(POLL)


WATCHERS = {"linnet": watch_linnet, "trackio": watch_trackio, "tensorboard": watch_tensorboard}


def _appearing(folder: Path, pattern: str) -> Iterator[Path]:
    """The file, as soon as the writer has made it."""
    while not (found := sorted(folder.glob(pattern))):
        time.sleep(0.001)
    yield found[0]


def main() -> Report:
    report = Report(
        name="follow",
        claim=f"{(__doc__ or '').splitlines()[0]} {STEPS:,} events at {RATE} a second.",
        columns={
            "reader": "",
            "median ms": ".2f",
            "p99 ms": ".1f",
            "longest ms": ".1f",
            "reader's CPU %": ".1f",
            "median / linnet's": ".1f",
        },
    )
    medians: dict[str, float] = {}
    for name in LABELS:
        if name == "linnet":
            samples = measure(report, name, medians)
            report.at_most("longest delay, linnet", samples.worst("most"), 100, "ms")
        else:
            with report.peer(name) as python:
                if python:
                    measure(report, name, medians, python)
    report.note(
        "From just before `log()` to the event in the reader's hands. For the peers this is the delay of "
        "their storage alone: their boards look every 1 s (trackio) and every 5 s or more (TensorBoard)."
    )
    report.note("The reader's CPU includes its start.")
    return report


def measure(report: Report, name: str, medians: dict[str, float], python: Path | None = None) -> sample.Samples:
    with sample.scratch() as home:

        def options() -> dict[str, Any]:
            return {"name": name, "folder": tempfile.mkdtemp(dir=home)}

        samples = sample.take(__file__, "watch", options, python=python, repeats=1 if python else 3)
    if samples.disturbed:
        report.disturbed.append(LABELS[name])
    medians[name] = samples.median("median")
    report.row(
        LABELS[name],
        medians[name],
        samples.median("p99"),
        samples.worst("most"),
        samples.median("cpu"),
        medians[name] / medians["linnet"],
    )
    return samples


if __name__ == "__main__":
    sys.exit(sample.start(main, {"write": write, "watch": watch}))
