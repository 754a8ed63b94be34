"""A writer killed with SIGKILL at a random moment has lost no step whose `log()` had returned.

The writer counts each returned call in a page of memory shared with the judge, which outlives it. Half of the
kills hit a writer that logs a step every 2 ms, half one that logs as fast as it can.
"""

import json
import mmap
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sample
import workload
import writers
from report import Report

KILLS = {"linnet": 50, "trackio": 6, "tensorboard": 6}
PACE = 0.002  # seconds between two steps of a paced writer
LONGEST = 1.5  # a kill comes at most so many seconds after the first step
_START = 60.0  # seconds a writer may take to its first step


def write(name: str, folder: str, pace: float, counter: str) -> dict[str, Any]:
    """Log until killed; the number of the last step that was logged stands in the shared page."""
    with shared_page(Path(counter)) as page, writers.BY_NAME[name](Path(folder)) as log:
        table = workload.rows()
        step = 0
        while True:
            step += 1
            log(step, table[step % len(table)])
            struct.pack_into("<q", page, 0, step)
            if pace:
                time.sleep(pace)


@contextmanager
def shared_page(path: Path) -> Iterator[mmap.mmap]:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE) as page:
        yield page


@dataclass
class Tally:
    """What was found after a number of kills."""

    kills: int = 0
    logged: int = 0
    lost: int = 0
    most_lost: int = 0
    unreadable: int = 0
    torn: int = 0

    def add(self, returned: int, found: set[int], unreadable: int, torn: int) -> None:
        """Count one kill: `returned` steps were logged, `found` can be read."""
        lost = set(range(1, returned + 1)) - found
        self.kills += 1
        self.logged += returned
        self.lost += len(lost)
        self.most_lost = max(self.most_lost, len(lost))
        self.unreadable += unreadable
        self.torn += torn


def kill_once(name: str, pace: float, moment: random.Random, python: Path | None, tally: Tally) -> None:
    with sample.scratch() as home:
        counter, folder = home / "counter", home / "written"
        counter.write_bytes(bytes(mmap.PAGESIZE))
        folder.mkdir()
        options = {"name": name, "folder": str(folder), "pace": pace, "counter": str(counter)}
        command = sample.command(__file__, "write", options, home / "answer", python)
        with (home / "stderr").open("w") as errors, shared_page(counter) as page:
            writer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            began = time.monotonic()
            while not struct.unpack_from("<q", page)[0]:
                if writer.poll() is not None or time.monotonic() - began > _START:
                    writer.kill()
                    raise sample.RoleFailedError(f"{name} never logged:\n{(home / 'stderr').read_text()}")
                time.sleep(0.001)
            time.sleep(moment.uniform(0, LONGEST))
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            returned = struct.unpack_from("<q", page)[0]
        tally.add(returned, *FIND[name](folder, python))


def find_linnet(folder: Path, python: Path | None) -> tuple[set[int], int, int]:
    """The steps in the stream, by a plain reading of its lines and by Linnet's reader, which must agree."""
    import linnet.runs

    (stream,) = folder.glob("*/events.jsonl")
    *lines, rest = stream.read_bytes().split(b"\n")
    found, unreadable = set(), 0
    for line in lines:
        try:
            event = json.loads(line, parse_constant=_refuse)
        except ValueError:
            unreadable += 1
            continue
        if event.get("kind") in ("step", "scalars"):
            found.add(event["step"])
    columns = linnet.open(stream.parent, runs=folder).metrics()
    for name in workload.NAMES:
        read = set(columns[name].step.tolist())
        found &= read
    return found, unreadable, bool(rest)


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def find_with_peer(role: str) -> Callable[[Path, Path | None], tuple[set[int], int, int]]:
    def find(folder: Path, python: Path | None) -> tuple[set[int], int, int]:
        answer = sample.play(__file__, role, {"folder": str(folder)}, python)
        return set(answer["steps"]), 0, 0

    return find


def read_trackio(folder: str) -> dict[str, Any]:
    import os

    os.environ["TRACKIO_DIR"] = folder
    from trackio.sqlite_storage import SQLiteStorage

    return {"steps": [entry["step"] for entry in SQLiteStorage.get_logs("bench", "run")]}


def read_tensorboard(folder: str) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0})
    accumulator.Reload()
    logged = "loss" in accumulator.Tags()["scalars"]
    return {"steps": [event.step for event in accumulator.Scalars("loss")] if logged else []}


FIND: dict[str, Callable[[Path, Path | None], tuple[set[int], int, int]]] = {
    "linnet": find_linnet,
    "trackio": find_with_peer("read_trackio"),
    "tensorboard": find_with_peer("read_tensorboard"),
}


def kill_all(report: Report, name: str, label: str, python: Path | None = None) -> list[Tally]:
    moment = random.Random()
    tallies = []
    for pace, manner in ((PACE, "paced"), (0.0, "flat out")):
        tally = Tally()
        for _ in range(KILLS[name] // 2):
            kill_once(name, pace, moment, python, tally)
        report.row(f"{label}, {manner}", tally.kills, tally.logged, tally.lost, tally.most_lost, tally.unreadable)
        tallies.append(tally)
    return tallies


def main() -> Report:
    report = Report(
        name="crash",
        claim=(__doc__ or "").splitlines()[0],
        columns={
            "writer": "",
            "kills": "d",
            "steps logged": ",d",
            "lost": ",d",
            "most lost in one kill": ",d",
            "unreadable lines": "d",
        },
    )
    ours = kill_all(report, "linnet", "linnet")
    for name, label in (("trackio", "trackio"), ("tensorboard", "TensorBoard writer")):
        with report.peer(name) as python:
            if python:
                kill_all(report, name, label, python)
    report.at_most("logged steps lost, linnet", sum(tally.lost for tally in ours), 0, "steps")
    report.at_most("complete lines that do not parse, linnet", sum(t.unreadable for t in ours), 0, "lines")
    torn = sum(tally.torn for tally in ours)
    report.note(
        f"Paced: a step every {PACE * 1000:g} ms. Each kill comes 0 to {LONGEST:g} s after the first step. "
        f"Streams of Linnet's that ended inside a line: {torn}. "
        "A peer's unreadable lines are not counted: it reads its file itself."
    )
    report.note(
        "trackio hands its rows over in batches every half second, and falls behind when logging flat out: of "
        "so short a burst often nothing has reached its file."
    )
    return report


if __name__ == "__main__":
    roles = {"write": write, "read_trackio": read_trackio, "read_tensorboard": read_tensorboard}
    sys.exit(sample.start(main, roles))
