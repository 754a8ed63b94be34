"""Writers killed with SIGKILL at random moments: every call that had returned is in the stream, and no line is torn.

Each run is written by one to three processes, one after the other, each killed; the later ones resume it. They log
steps, scalars, nested values, evaluations, notes, samples, checkpoints and artifacts, from one thread or two, flat
out or not. What has returned is counted in a page of memory shared with the judge, which outlives the writer.
"""

import json
import mmap
import os
import random
import re
import shutil
import signal
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.runs.session import Session

MANNERS = ("flat out", "a step a millisecond", "two threads")
_THREADS = 2
_LONGEST = 0.05  # seconds from a writer's first event to its end
_START = 60.0  # seconds that it may take to its first event
_KINDS = {
    "step": 40,
    "scalars": 15,
    "nested": 10,
    "eval": 8,
    "note": 8,
    "sample": 5,
    "hard": 10,
    "checkpoint": 3,
    "artifact": 1,
}
_MARK = re.compile(rb"mark\D{1,4}(\d+)")  # as a metric, within others, and in a text


@dataclass
class Tally:
    """What the kills of one manner gave."""

    kills: int = 0
    before_start: int = 0  # killed before `linnet.start` had returned
    logged: int = 0
    lost: int = 0
    cut: int = 0  # calls within which the writer was killed, so that their line has no end: they had not returned
    torn: int = 0  # all other lines that do not parse
    unsound: int = 0  # runs that `check` finds another fault with
    not_crashed: int = 0
    faults: list[str] = field(default_factory=list)


class Page:
    """Memory that a writer shares with its judge: whether it has started, and how many calls of a thread returned."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def clear(self) -> None:
        """For the next writer."""
        self._memory[: 8 * (_THREADS + 1)] = bytes(8 * (_THREADS + 1))

    def start(self) -> None:
        """`linnet.start` has returned."""
        struct.pack_into("<q", self._memory, 0, 1)

    @property
    def started(self) -> bool:
        """Has it?"""
        return bool(struct.unpack_from("<q", self._memory, 0)[0])

    def count(self, thread: int, calls: int) -> None:
        """So many calls of a thread have returned."""
        struct.pack_into("<q", self._memory, 8 * (thread + 1), calls)

    def returned(self) -> list[int]:
        """How many, by thread."""
        return list(struct.unpack_from(f"<{_THREADS}q", self._memory, 8))


def mark_of(life: int, thread: int, call: int) -> int:
    """The number by which the judge finds a call again."""
    return life * 10**9 + thread * 10**8 + call


def write(root: Path, life: int, manner: str, seed: str, page: Page) -> None:
    """Log until killed."""
    import linnet

    dice = random.Random(seed)
    begun = (root / "run" / "run.json").exists()
    run = linnet.start(
        root,
        run_id="run",
        resume="run" if begun else None,
        system_every=dice.choice((0.0, 0.01)),
        goals={"mark": "max"},
    )
    page.start()

    def log_marks(thread: int, dice: random.Random) -> None:
        call = 0
        while True:
            _log(run, dice, mark_of(life, thread, call), life * 10**6 + call, thread)
            call += 1
            page.count(thread, call)
            if manner == "a step a millisecond":
                time.sleep(0.001)

    if manner == "two threads":
        Thread(target=log_marks, args=(1, random.Random(f"{seed}/1")), daemon=True).start()
    log_marks(0, dice)


def _log(run: "Session", dice: random.Random, mark: int, step: int, thread: int) -> None:
    """One call of a session that carries the mark; steps, which go only forward, are the first thread's alone."""
    often = _KINDS if thread == 0 else {"note": 5, "sample": 3, "artifact": 1}
    match dice.choices(list(often), list(often.values()))[0]:
        case "step":
            run.log(step, loss=dice.random(), lr=1e-3, mark=mark)
        case "scalars":
            run.log(step, {"train/mark": mark, "acc": dice.random()})
        case "nested":
            run.log(step, {"train": {"mark": mark, "loss": dice.random()}})
        case "eval":
            run.eval(step, "validation", loss=dice.random(), mark=mark)
        case "note":
            run.note(f"mark {mark}", step)
        case "sample":
            run.sample(step, "the whale", "rose\n" * dice.choice((1, 1_000)) + f"mark {mark}")
        case "checkpoint":
            path = run.weights_dir / f"step_{step}.gguf"
            path.write_bytes(b"GGUF" + bytes(dice.choice((10, 100_000))))
            run.checkpoint(path, step, mark=mark)
        case "artifact":
            source = Path(run.run_dir).parent / "source.txt"
            source.write_text("kept")
            run.artifact(source, f"mark-{mark}.txt", step)
        case "hard":
            run.log(step, loss=float("nan"), mark=mark, text="x" * dice.choice((1, 70_000)), odd=float("inf"))


def kill_one(root: Path, life: int, manner: str, seed: str, page: Page, dice: random.Random) -> None:
    """A writer, and its end: a quarter at any moment from its birth on, the others after the first event."""
    page.clear()
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 2)
            write(root, life, manner, seed, page)
        os._exit(3)
    began = time.monotonic()
    if dice.random() < 0.25:
        time.sleep(dice.uniform(0, 0.06))
    else:
        while not page.returned()[0] and time.monotonic() - began < _START and _is_alive(child):
            time.sleep(0.0005)
        time.sleep(dice.uniform(0, _LONGEST) ** dice.choice((1, 2)))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _is_alive(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def run_case(home: Path, seed: int, number: int, tally: Tally, manner: str, most_kills: int) -> None:
    """One run: written, killed, resumed, killed; then judged."""
    import linnet
    from linnet.runs import examine

    dice = random.Random(f"{seed}/{number}")
    root = home / "runs"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    page = Page()
    expected: set[int] = set()
    started = False
    for life in range(min(most_kills, dice.choice((1, 1, 1, 2, 3)))):
        if not (root / "run" / "run.json").exists():  # killed before there was a run: the name is given anew
            shutil.rmtree(root / "run", ignore_errors=True)
        kill_one(root, life, manner, f"{seed}/{number}/{life}", page, dice)
        tally.kills += 1
        tally.before_start += not page.started
        started |= page.started
        expected |= {mark_of(life, thread, n) for thread, calls in enumerate(page.returned()) for n in range(calls)}
    tally.logged += len(expected)
    if not started:
        return  # nothing was promised
    cut, torn, marks = read_stream(root / "run" / "events.jsonl")
    run = linnet.open(root / "run")
    metrics = run.metrics()
    series = [metrics[name] for name in metrics.names() if name.endswith("mark")]
    misread = {int(value) for column in series for value in column.value.tolist()} - marks
    findings = examine(run)
    # Lines without an end are counted above, by our own reading.
    faults = [text for text in findings.faults if "has no end" not in text and "is damaged" not in text]
    lost = len(expected - marks) + len(misread)
    tally.lost += lost
    tally.cut += cut
    tally.torn += torn
    tally.unsound += bool(faults)
    tally.not_crashed += findings.status != "crashed"
    if lost or torn or faults or findings.status != "crashed":
        facts = f"case {number}: {lost} lost, {torn} torn, {findings.status}, {'; '.join(faults[:3])}"
        tally.faults.append(facts)
        print(f"  {facts}", file=sys.stderr)
        shutil.copytree(root, home / f"case-{number}", symlinks=True, dirs_exist_ok=True)


def read_stream(path: Path) -> tuple[int, int, set[int]]:
    """Lines cut off where a writer was killed, other lines that do not parse, and the marks in all that do.

    By a plain reading. A long line is written page by page, and a kill may come in between: then it has no end, and
    is the last of its writer. The next thing is the `resume` of another, or nothing.
    """
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    cut = torn = 0
    marks: set[int] = set()
    for line, after in zip(lines, [*lines[1:], b""], strict=True):
        try:
            if line or after:
                json.loads(line)
        except ValueError:
            is_last = not after or after.startswith(b'{"kind":"resume"')
            cut, torn = (cut + 1, torn) if is_last and line.startswith(b'{"kind"') else (cut, torn + 1)
        else:
            marks |= {int(found) for found in _MARK.findall(line)}
    return cut, torn, marks


def run_campaign(home: Path, seed: int, count: int) -> dict[str, Tally]:
    """Kill `count` writers; what came of it, by the manner of writing."""
    import linnet

    assert linnet.start  # loaded before the forks
    tallies = {manner: Tally() for manner in MANNERS}
    number = 0
    while (left := count - sum(tally.kills for tally in tallies.values())) > 0:
        manner = MANNERS[number % len(MANNERS)]
        run_case(home, seed, number, tallies[manner], manner, left)
        number += 1
        if number % 50 == 0:
            print(f"  {count - left:,} of {count:,} writers killed", file=sys.stderr, flush=True)
    shutil.rmtree(home / "runs", ignore_errors=True)
    return tallies
