"""Is a run folder sound, and what of it was lost or damaged? The answer of `linnet check RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from linnet.files import STAGED_SUFFIX, is_file, is_folder, sha256_of
from linnet.runs.decoding import Segment, decoded_blocks, workers_for
from linnet.runs.events import as_step, decode
from linnet.runs.folder import ARTIFACTS, LEFTOVERS, MANIFEST, WEIGHTS, is_leftover
from linnet.runs.lines import LineReader
from linnet.runs.manifest import read as read_manifest
from linnet.runs.metric_names import counts_as_training
from linnet.runs.run import Run

_REMARKS = ("time", "resume", "checkpoint", "artifact")  # sorts of finding that harm nothing
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


def examine(run: Run, workers: int | None = None) -> Findings:
    """Read the whole folder and say what is wrong with it; `workers` as for `Metrics`."""
    findings = Findings(run.id, str(run.path), run.status)
    if (run.path / MANIFEST).exists() and read_manifest(run.path) is None:
        findings.faults.append(f"{MANIFEST} cannot be read as a manifest")
    elif not (run.path / MANIFEST).exists() and run.manifest.dialect != "toy":
        findings.faults.append(f"there is no {MANIFEST}")
    if not is_file(run.events_path):
        findings.faults.append(f"there is no {run.events_path.name}")
        return findings
    _StreamCheck(run, findings).examine(workers)
    for link in (run.path / WEIGHTS / "latest", run.path / WEIGHTS / "best"):
        if link.is_symlink() and not is_file(link):
            findings.faults.append(f"{WEIGHTS}/{link.name} leads to {link.readlink()}, which is not there")
    if findings.status != "live":  # a living writer may be at work on such a file
        leftovers = [file for name in LEFTOVERS for file in _files_in(run.path / name) if is_leftover(name, file.name)]
        leftovers += (file for file in (run.path / ARTIFACTS).rglob(f".*{STAGED_SUFFIX}") if is_file(file))
        for file in leftovers:
            path = file.relative_to(run.path)
            findings.remarks.append(f"{path} is left over from a writer that was stopped; it can be deleted")
    if findings.status == "crashed":
        whole = "" if findings.faults else "; every event it had logged is here"
        findings.remarks.append(f"the writer died without a run_end{whole}")
    return findings


class _StreamCheck:
    """One pass over the events, remembering what the next line is to be judged by."""

    def __init__(self, run: Run, findings: Findings) -> None:
        self._run = run
        self._findings = findings
        self._counts: dict[str, int] = {}
        self._t = 0.0
        self._step: int | None = None
        self._ends = 0
        self._lost = 0
        self._files: dict[str, tuple[int, str, dict[str, Any]]] = {}  # by path: line, kind and fields of the last event

    def examine(self, workers: int | None) -> None:
        findings, reader = self._findings, LineReader(self._run.events_path)
        for block, segments in decoded_blocks(reader, workers_for(reader.unread()) if workers is None else workers):
            for segment in segments:
                if not self._pass_steps(segment):
                    self._judge_lines(block[segment.begin : segment.end])
        if reader.oversized:
            findings.faults.append(f"{reader.oversized} lines longer than 16 MB were passed over")
        if reader.unfinished:
            text = f"the last line has no end ({reader.unfinished} bytes)"
            (findings.remarks if findings.status == "live" else findings.faults).append(text)
        reader.close()
        for path, (number, kind, fields) in self._files.items():
            self._judge_file(number, kind, path, fields)
        for sort, count in self._counts.items():
            if count > _MOST:
                self._list_of(sort).append(f"{sort}: {count - _MOST} more")

    def _pass_steps(self, segment: Segment) -> bool:
        """Count steps of one schema in which nothing goes back; False, with nothing done: judge each line."""
        if segment.columns is None or not self._findings.events or self._ends:
            return False
        step, t, *_ = segment.columns
        if t[0] < self._t or np.any(t[1:] < t[:-1]) or np.any(step[1:] < step[:-1]):
            return False
        if self._step is not None and step[0] < self._step:
            return False
        self._findings.lines += len(step)
        self._findings.events += len(step)
        self._t, self._step = float(t[-1]), int(step[-1])
        return True

    def _judge_lines(self, lines: bytes) -> None:
        for line in lines.split(b"\n")[:-1]:
            self._findings.lines += 1
            if line and not line.isspace():
                self._judge(line)

    def _judge(self, line: bytes) -> None:
        number = self._findings.lines
        event = decode(line)
        if event is None:
            self._say("damaged", f"line {number} is damaged: {line[:60]!r}{'…' if len(line) > 60 else ''}")
            return
        self._findings.events += 1
        toy = "type" not in event.data
        if toy and self._findings.events == 1 and event.kind != "run_start":
            self._say("start", f"line {number}: the first event is {event.kind or 'of no kind'}, not run_start")
        if toy and event.t < self._t:
            self._say("time", f"line {number}: t goes back from {self._t} to {event.t}")  # two processes logged
        self._t = max(self._t, event.t)
        if event.kind == "resume":
            self._step, self._ends = event.step, 0
            self._say("resume", f"line {number}: resumed from step {event.step}")
        elif event.kind == "run_end":
            self._ends += 1
            if self._ends > 1:
                self._say("end", f"line {number}: a second run_end")
        elif event.kind == "step" and event.step is not None and counts_as_training(event):
            if self._step is not None and event.step < self._step:
                self._say("step", f"line {number}: step goes back from {self._step} to {event.step} with no resume")
            self._step = event.step
            if self._ends:
                self._say("late", f"line {number}: step {event.step} after run_end")
        elif event.kind in ("checkpoint", "artifact"):
            path = event.data.get("path")
            if isinstance(path, str) and "\0" not in path:
                # A resumed run writes a checkpoint of the same name again: the last event is the one that holds.
                self._files[path] = number, event.kind, event.data
        lost = as_step(event.data.get("lost_events")) or 0
        if event.kind in ("note", "run_end") and lost > self._lost:  # a count of all so far; run_end repeats the last
            self._lost = lost
            self._say("lost", f"line {number}: the writer says that {lost} events were lost")

    def _judge_file(self, number: int, kind: str, path: str, fields: dict[str, Any]) -> None:
        file, shown = self._run.path / path, f"{kind} {path if len(path) <= 200 else f'{path[:200]}…'}"
        if not is_file(file):
            self._say(kind, f"line {number}: {shown} is no longer there")
            return
        expected, size = fields.get("bytes"), file.stat().st_size
        if isinstance(expected, int) and size != expected:
            self._say("size", f"line {number}: {shown} has {size} bytes, not {expected}")
            return
        written = fields.get("sha256")
        if not isinstance(written, str) or not file.resolve().is_relative_to(self._run.path.resolve()):
            return  # an event may name any file of the machine
        digest = _sha256(file)
        if digest is None:
            self._say("digest", f"line {number}: {shown} cannot be read")
        elif digest != written.lower():
            self._say("digest", f"line {number}: {shown} is not what was written: its SHA-256 differs")

    def _say(self, sort: str, text: str) -> None:
        self._counts[sort] = self._counts.get(sort, 0) + 1
        if self._counts[sort] <= _MOST:
            self._list_of(sort).append(text)

    def _list_of(self, sort: str) -> list[str]:
        return self._findings.remarks if sort in _REMARKS else self._findings.faults


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if not is_folder(file))
    except OSError:
        return []


def _sha256(file: Path) -> str | None:
    """The digest of a file; None when it cannot be read."""
    try:
        return sha256_of(file)
    except OSError:
        return None
