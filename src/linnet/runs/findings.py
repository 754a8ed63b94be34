"""Is a run folder sound, and what of it was lost or damaged? The answer of `linnet check RUN`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from linnet.runs.events import as_step, decode
from linnet.runs.folder import MANIFEST, WEIGHTS
from linnet.runs.lines import LineReader
from linnet.runs.manifest import read as read_manifest
from linnet.runs.place import is_file
from linnet.runs.run import Run

_REMARKS = ("time", "resume", "checkpoint")  # sorts of finding that harm nothing
_MOST = 20  # of each sort of finding; the rest is counted


class Findings(msgspec.Struct):
    """What an examination found. `faults` make a run unsound; `remarks` are worth knowing and harm nothing."""

    run_id: str
    path: str
    status: str
    lines: int = 0
    events: int = 0
    faults: list[str] = []
    remarks: list[str] = []

    @property
    def sound(self) -> bool:
        """Nothing is damaged or missing."""
        return not self.faults


def examine(run: Run) -> Findings:
    """Read the whole folder and say what is wrong with it."""
    glance = run.glance()
    found = Findings(run.id, str(run.path), glance.status)
    if (run.path / MANIFEST).exists() and read_manifest(run.path) is None:
        found.faults.append(f"{MANIFEST} cannot be read as a manifest")
    elif not (run.path / MANIFEST).exists() and run.manifest.dialect != "toy":
        found.faults.append(f"there is no {MANIFEST}")
    if not is_file(run.events_path):
        found.faults.append(f"there is no {run.events_path.name}")
        return found
    _Stream(run, found).examine()
    _examine_weights(run.path / WEIGHTS, found)
    if glance.status == "crashed":
        whole = "" if found.faults else "; every event it had logged is here"
        found.remarks.append(f"the writer died without a run_end{whole}")
    return found


class _Stream:
    """One pass over the events, remembering what the next line is to be judged by."""

    def __init__(self, run: Run, found: Findings) -> None:
        self._run = run
        self._found = found
        self._counts: dict[str, int] = {}
        self._t = 0.0
        self._step: int | None = None
        self._ends = 0
        self._lost = 0

    def examine(self) -> None:
        reader = LineReader(self._run.events_path)
        while block := reader.read_block():
            for line in block.split(b"\n")[:-1]:
                self._found.lines += 1
                if line and not line.isspace():
                    self._judge(line)
        if reader.oversized:
            self._found.faults.append(f"{reader.oversized} lines longer than 16 MB were passed over")
        if reader.unfinished:
            text = f"the last line has no end ({reader.unfinished} bytes)"
            (self._found.remarks if self._found.status == "live" else self._found.faults).append(text)
        reader.close()
        for text, count in self._counts.items():
            if count > _MOST:
                (self._found.remarks if text in _REMARKS else self._found.faults).append(
                    f"{text}: {count - _MOST} more"
                )

    def _judge(self, line: bytes) -> None:
        number = self._found.lines
        event = decode(line)
        if event is None:
            self._fault("damaged", f"line {number} is damaged: {line[:60]!r}{'…' if len(line) > 60 else ''}")
            return
        self._found.events += 1
        toy = "type" not in event.data
        if toy and self._found.events == 1 and event.kind != "run_start":
            self._fault("start", f"line {number}: the first event is {event.kind or 'of no kind'}, not run_start")
        if toy and event.t < self._t:
            self._remark("time", f"line {number}: t goes back from {self._t} to {event.t}")  # two processes logged
        self._t = max(self._t, event.t)
        if event.kind == "resume":
            self._step, self._ends = event.step, 0
            self._remark("resume", f"line {number}: resumed from step {event.step}")
        elif event.kind == "run_end":
            self._ends += 1
            if self._ends > 1:
                self._fault("end", f"line {number}: a second run_end")
        elif event.kind == "step" and event.step is not None:
            if self._step is not None and event.step < self._step:
                self._fault("step", f"line {number}: step goes back from {self._step} to {event.step} with no resume")
            self._step = event.step
            if self._ends:
                self._fault("late", f"line {number}: step {event.step} after run_end")
        elif event.kind == "checkpoint":
            self._judge_checkpoint(number, event.data.get("path"), event.data.get("bytes"))
        lost = as_step(event.data.get("lost_events")) or 0
        if event.kind in ("note", "run_end") and lost > self._lost:  # a count of all so far; run_end repeats the last
            self._lost = lost
            self._fault("lost", f"line {number}: the writer says that {lost} events were lost")

    def _judge_checkpoint(self, number: int, path: object, size: object) -> None:
        if not isinstance(path, str) or "\0" in path:
            return
        file, shown = self._run.path / path, path if len(path) <= 200 else f"{path[:200]}…"
        if not is_file(file):
            self._remark("checkpoint", f"line {number}: checkpoint {shown} is no longer there")
        elif isinstance(size, int) and file.stat().st_size != size:
            self._fault("size", f"line {number}: checkpoint {shown} has {file.stat().st_size} bytes, not {size}")

    def _fault(self, sort: str, text: str) -> None:
        self._say(self._found.faults, sort, text)

    def _remark(self, sort: str, text: str) -> None:
        self._say(self._found.remarks, sort, text)

    def _say(self, where: list[str], sort: str, text: str) -> None:
        self._counts[sort] = self._counts.get(sort, 0) + 1
        if self._counts[sort] <= _MOST:
            where.append(text)


def _examine_weights(weights: Path, found: Findings) -> None:
    for link in (weights / "latest", weights / "best"):
        if link.is_symlink() and not is_file(link):
            found.faults.append(f"{WEIGHTS}/{link.name} leads to {link.readlink()}, which is not there")
    for file in sorted(weights.glob(".*.tmp")) if weights.is_dir() else []:
        found.remarks.append(f"{WEIGHTS}/{file.name} is left over from a writer that was stopped")
