"""Files in which something is wrong: no command that reads one hangs, prints a traceback or steers the terminal.

Each case is a sound file (a GGUF, a run folder, a corpus, images) with one to four faults, and one to three
commands that read it, inside a process that is watched from outside. A case is made from the seed and its number alone:
`--case N` makes it again, runs it and leaves its files.
"""

import json
import mmap
import os
import shutil
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from bench.campaign.cases import Case, Command, make_case, write_seeds

HANG_SECONDS = 10.0  # of CPU time that one command may take
STUCK_SECONDS = 120.0  # without an end, though it takes no CPU time
_A_LIFE = 1_500  # cases after which a worker is replaced
_KEPT = 3  # cases of one kind of failure whose files are kept


@dataclass
class Failure:
    """Something that went wrong: `kind`, what exactly, and in which case and command."""

    kind: str
    text: str
    case: int
    of: str
    words: list[str]


@dataclass
class Tally:
    """What the cases gave."""

    cases: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    ended_well: int = 0
    failures: list[Failure] = field(default_factory=list)

    def groups(self) -> dict[tuple[str, str, str], list[Failure]]:
        """Failures that look the same: kind, command, text."""
        found: dict[tuple[str, str, str], list[Failure]] = {}
        for failure in self.failures:
            found.setdefault((failure.kind, failure.words[0], failure.text), []).append(failure)
        return dict(sorted(found.items(), key=lambda pair: (pair[0][0], -len(pair[1]))))


class Worker:
    """A process that runs cases `first`, `first + step`, … and tells what it finds through a pipe.

    Where it is at stands in a page of shared memory: the case, and how many commands it has begun.
    """

    def __init__(self, campaign: "Campaign", first: int, step: int, last: int) -> None:
        self.page = mmap.mmap(-1, mmap.PAGESIZE)
        self.step, self.last = step, last
        self.note(first, 0)
        self._campaign = campaign
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(reading)
                with os.fdopen(writing, "w") as tell:
                    try:
                        campaign.work(self, first, tell)
                    except BaseException:  # of the campaign's own, not of a command
                        tell.write(json.dumps({"broken": traceback.format_exc()}) + "\n")
            finally:
                os._exit(0)
        os.close(writing)
        self._pipe = os.fdopen(reading, "r")
        os.set_blocking(reading, False)
        self._partial = ""
        self._mark, self._cpu, self._wall = self.place(), 0.0, time.monotonic()

    def note(self, case: int, command: int) -> None:
        """Say where this worker is."""
        struct.pack_into("<qq", self.page, 0, case, command)

    def place(self) -> tuple[int, int]:
        """Where it is."""
        case, command = struct.unpack_from("<qq", self.page, 0)
        return case, command

    def lines(self) -> list[str]:
        """What it has told since the last call."""
        with suppress(OSError, TypeError):  # nothing there yet
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._partial += chunk.decode()
        *whole, self._partial = self._partial.split("\n")
        return whole

    def hangs(self) -> bool:
        """Has the present command taken more than its time?"""
        place, cpu, now = self.place(), _cpu_seconds(self.pid), time.monotonic()
        if place != self._mark:
            self._mark, self._cpu, self._wall = place, cpu, now
        return cpu - self._cpu > HANG_SECONDS or now - self._wall > STUCK_SECONDS

    def ended(self) -> int | None:
        """The exit code, once it has ended; below zero the signal that ended it."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Campaign:
    """`count` cases from `first` on, in `workers` processes at a time. `folder`: where seeds and offenders are kept."""

    def __init__(self, folder: Path, seed: int, count: int, first: int = 0, workers: int = 2) -> None:
        self.folder, self.seed = folder, seed
        self.first, self.last, self.workers = first, first + count, workers
        self.seeds = folder / "seeds"
        self.tally = Tally()

    def run(self) -> Tally:
        """Run all cases; progress goes to stderr."""
        prepare_process()
        write_seeds(self.seeds)
        running = [Worker(self, self.first + n, self.workers, self.last) for n in range(self.workers)]
        try:
            self._watch(running)
        finally:
            for worker in running:
                worker.kill()
        return self.tally

    def _watch(self, running: list[Worker]) -> None:
        """Until all have ended: take what they tell, end what hangs, replace what ended."""
        told = time.monotonic()
        while running:
            time.sleep(0.05)
            for worker in list(running):
                ended = worker.ended()
                if ended is not None:
                    running.remove(worker)
                for line in worker.lines():
                    self._take(json.loads(line))
                if ended is None:
                    if not worker.hangs():
                        continue
                    running.remove(worker)
                    worker.kill()
                if (follower := self._follower(worker, ended)) is not None:
                    running.append(follower)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                done = sum(self.tally.cases.values())
                print(f"  {done:,} cases, {len(self.tally.failures)} failures", file=sys.stderr, flush=True)

    def _follower(self, worker: Worker, ended: int | None) -> Worker | None:
        """The worker that goes on after one that ended or hangs; None when there is nothing left."""
        case, command = worker.place()
        shutil.rmtree(self.folder / f"worker-{worker.pid}", ignore_errors=True)
        if ended == 0:
            following = case
        else:
            kind = "hang" if ended is None else "died"
            text = f"more than {HANG_SECONDS:g} s" if ended is None else f"exit {ended}"
            self._blame(kind, text, case, command)
            following = case + worker.step
        return Worker(self, following, worker.step, worker.last) if following < worker.last else None

    def _blame(self, kind: str, text: str, number: int, command: int) -> None:
        """A case that ended its process: make it again, here, to say and keep what it was."""
        folder = self.folder / "blamed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        case = make_case(self.seed, number, self.seeds, folder)
        words = case.commands[min(max(command - 1, 0), len(case.commands) - 1)].words
        self.tally.cases[case.kind] += 1
        self.tally.commands += command
        self.tally.failures.append(Failure(kind, text, number, case.kind, words))
        self.keep(self.tally.failures[-1], folder, case, "")
        shutil.rmtree(folder, ignore_errors=True)

    def _take(self, record: dict[str, object]) -> None:
        if "broken" in record:
            raise RuntimeError(f"the campaign itself failed:\n{record['broken']}")
        if "kind" in record:
            self.tally.failures.append(Failure(**record))  # type: ignore[arg-type]
        else:
            self.tally.cases[str(record["of"])] += 1
            self.tally.commands += int(str(record["commands"]))
            self.tally.ended_well += int(str(record["ended_well"]))

    # -- in a worker ---------------------------------------------------------------------------------------------

    def work(self, worker: Worker, first: int, tell: TextIO) -> None:
        """Run cases until there are no more, or this process has run enough of them."""
        from bench.campaign.judge import Judge
        from linnet.cli import main

        judge = Judge(main)
        judge.limit_memory()
        home = self.folder / f"worker-{os.getpid()}"
        kept: Counter[tuple[str, str]] = Counter()
        number = first
        for number in range(first, min(worker.last, first + worker.step * _A_LIFE), worker.step):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            worker.note(number, 0)
            case = make_case(self.seed, number, self.seeds, home)
            well = 0
            for index, command in enumerate(case.commands, 1):
                worker.note(number, index)
                found = judge.run(command, case.size)
                well += not found
                for kind, text in found:
                    failure = Failure(kind, text, number, case.kind, command.words)
                    tell.write(json.dumps(vars(failure)) + "\n")
                    kept[kind, text] += 1
                    if kept[kind, text] <= _KEPT:
                        self.keep(failure, home, case, judge.out[-20_000:] + judge.err[-20_000:])
            tell.write(json.dumps({"of": case.kind, "commands": len(case.commands), "ended_well": well}) + "\n")
            tell.flush()
        worker.note(number + worker.step, 0)
        shutil.rmtree(home, ignore_errors=True)

    def keep(self, failure: Failure, files: Path, case: Case, output: str) -> None:
        """Put a case's files aside, with what was run and what it printed."""
        aside = self.folder / "offenders" / f"{failure.kind.replace(' ', '-')}-{case.number}"
        if aside.exists():
            return
        shutil.copytree(files, aside, symlinks=True)
        facts = {"seed": self.seed, **vars(failure), "faults": case.faults}
        (aside / "failure.json").write_text(json.dumps(facts, indent=2) + "\n")
        (aside / "output.txt").write_text(output, errors="backslashreplace")


def prepare_process() -> None:
    """Everything that commands load, loaded once, before processes are forked; one thread for each of them."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "1", "COLUMNS": "100"}
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "TZ": "UTC"}
    import torch

    torch.set_num_threads(1)
    import PIL.Image
    import tokenizers

    import linnet.board.terminal.views.screen
    import linnet.cli
    import linnet.data
    import linnet.infer.generation
    import linnet.models
    import linnet.recipes.donor

    del torch, PIL, tokenizers, linnet


def repeat(folder: Path, seed: int, number: int) -> int:
    """Run one case again and show everything; its files stay in `folder`. The number of failures."""
    prepare_process()
    write_seeds(folder / "seeds")
    home = folder / f"case-{number}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    case = make_case(seed, number, folder / "seeds", home)
    print(f"case {number}: {case.kind}, {', '.join(case.faults)}; {case.size:,} bytes in {home}")
    failures = 0
    for command in case.commands:
        print(f"\n$ linnet {' '.join(command.words)}{'   (on a terminal)' if command.terminal else ''}", flush=True)
        failures += _run_visibly(command, case)
    return failures


def _run_visibly(command: Command, case: Case) -> int:
    """One command in a process of its own, ended when it hangs."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        from bench.campaign.judge import Judge
        from linnet.cli import main

        judge = Judge(main)
        judge.limit_memory()
        found = judge.run(command, case.size)
        with os.fdopen(writing, "w") as tell:
            tell.write(json.dumps({"found": found, "out": judge.out[:4000], "err": judge.err[:4000]}))
        os._exit(0)
    os.close(writing)
    began = time.monotonic()
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if _cpu_seconds(child) > HANG_SECONDS or time.monotonic() - began > STUCK_SECONDS:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    if not text:
        print(f"  FAILED: {'hangs' if status == -signal.SIGKILL else f'ended with {status}'}")
        return 1
    told = json.loads(text)
    print(told["out"].encode("unicode_escape").decode().replace("\\n", "\n").rstrip())
    print(told["err"].encode("unicode_escape").decode().replace("\\n", "\n").rstrip())
    for kind, what in told["found"]:
        print(f"  FAILED: {kind}: {what}")
    return len(told["found"])


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
