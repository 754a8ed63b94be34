"""How a run stands, read from the two ends of its files and never from the middle: what a list of runs needs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from linnet.files import is_file, is_locked
from linnet.runs import provenance
from linnet.runs.events import Event, as_number, decode, parse, unix_seconds
from linnet.runs.folder import EVENTS, MANIFEST
from linnet.runs.manifest import Manifest, from_run_start
from linnet.runs.manifest import read as read_manifest
from linnet.runs.metric_names import LOSSES, counts_as_training, main_metric, rows
from linnet.runs.tail import FARTHEST, first_line, lines_backwards

STATUSES = ("live", "completed", "interrupted", "aborted", "errored", "crashed", "stalled")
_ENDED = ("completed", "interrupted", "aborted", "errored")
_PATIENCE = 200  # lines to look back for a loss, after the last line that told something new
_LATE = 64  # lines that may follow a run_end and not undo it; so many are mostly in the first block that is read
_TURNS = ("run_end", "resume", "run_start")  # what says whether a run has ended
_SILENT_SECONDS = 90.0  # a writer of ours says something at least every twenty
_RESUME_REACH = 256 << 10  # bytes to look back for a resume by which the age of a run is told; a list has thousands


class RunSummary(msgspec.Struct, kw_only=True):
    """A run's standing.

    - `step`: the highest step of training near the end of the stream, whichever metrics it was logged with.
    - `metric`, `value`: the main metric (the loss, where there is one) and its last value.
    - `t`: seconds of training so far; `modified`: Unix time of the last write, also by a note, a copy or a touch.
    - `last_event`: Unix time of the last event that the run itself wrote, as far as the folder tells it.
    - `end`: the `run_end` event's fields, when there is one.
    - `warning`: what is wrong with the folder, as far as this shows it.
    """

    run_id: str
    path: str
    status: str
    manifest: Manifest
    step: int | None = None
    metric: str | None = None
    value: float | None = None
    t: float = 0.0
    modified: float = 0.0
    last_event: float = 0.0
    end: dict[str, Any] | None = None
    warning: str | None = None


def summarize(folder: Path, now: float | None = None) -> RunSummary | None:
    """Look at one folder; None when it holds no run."""
    events = f"{folder}/{EVENTS}"  # joining paths takes as long as reading one
    try:
        modified = os.stat(events).st_mtime  # noqa: PTH116
    except OSError:
        modified = 0.0
    manifest = load_manifest(folder)
    if manifest is None:
        return None
    past = _Past(manifest.dialect in ("linnet", "toy"))
    past.read(lines_backwards(events), origin_of(manifest))
    name = main_metric(past.seen)
    summary = RunSummary(
        run_id=manifest.run_id,
        path=str(folder),
        status="",
        manifest=manifest,
        step=past.step if past.step is not None else past.cap,
        metric=name,
        value=past.seen[name][1] if name is not None else None,
        t=past.t,
        modified=modified or manifest.created_at,
        end=past.end,
        warning=_manifest_problem(folder) if manifest.dialect == "toy" else None,
    )
    summary.status = _status(summary, past, time.time() if now is None else now)
    summary.last_event = _last_event(summary, past)
    return summary


def load_manifest(folder: Path) -> Manifest | None:
    """The manifest, or for a run without one what its first event tells; None when the folder holds no run."""
    manifest = read_manifest(folder)
    if manifest is not None:
        return manifest
    events = folder / EVENTS
    if not is_file(events):
        return None
    start = parse(first_line(events)) or {}
    return from_run_start(start if start.get("kind") == "run_start" else {}, folder)


def _manifest_problem(folder: Path) -> str | None:
    """Of a run whose manifest was made from its first event: is there a `run.json`, which could not be made out?"""
    if not (folder / MANIFEST).exists():
        return None
    return f"{MANIFEST} cannot be read as a manifest; what it would say was taken from {EVENTS}"


def origin_of(manifest: Manifest) -> float:
    """Streams of kaun-board and munin tell Unix time; ours and Toy's count from the start."""
    return 0.0 if manifest.dialect in ("linnet", "toy") else manifest.created_at


def last_seconds(events: Path, origin: float = 0.0) -> float:
    """The `t` of the last event: where a resumed run's clock goes on. `origin`: when a foreign run began."""
    for line in lines_backwards(events):
        event = decode(line, origin)
        if event is not None and 0 < event.t < math.inf:
            return event.t
    return 0.0


class _Past:
    """What the lines of a stream tell, taken last first, until how the run ended and its last loss are known.

    - `seen`: step and value of each metric, in the order in which they stand in the stream.
    - `cap`: what was logged before a `resume` for a step beyond it is void.
    - `moment`: the last event whose line tells the time of day, as Unix time, and how many seconds the run went on
      after it; None while none was met. Notes added from outside tell no time of the run's.

    `counts_seconds`: times are told in seconds since the start, as Linnet and Toy do; else they are times of day.
    """

    def __init__(self, counts_seconds: bool) -> None:
        self.counts_seconds = counts_seconds
        self.moment: tuple[float, float] | None = None
        self.noted_last: bool | None = None  # the last event was added from outside; None: there is no event
        self.step: int | None = None
        self.end: dict[str, Any] | None = None
        self.t = 0.0
        self.epoch = -1.0
        self.cap: int | None = None
        self.seen: dict[str, tuple[int | None, float]] = {}
        self._has_loss = False
        self._settled = False  # it is known whether the run has ended
        self._since = 0  # lines in which nothing was new

    def read(self, lines: Iterator[bytes], origin: float) -> None:
        """Take lines, each the one before the last, until nothing more is to be learnt, or too little to read on."""
        for line in lines:
            if (event := decode(line, origin)) is not None:
                self._take(event)
            self._since += bool(self.seen)
            if self._has_loss or self._since > _PATIENCE:
                break
        if self._settled or not self._has_loss:
            return
        for line in islice(lines, _LATE):  # only what says whether the run has ended is worth decoding
            if b"run_" in line or b"resume" in line or b"finished" in line:
                event = decode(line, origin)
                if event is not None and event.kind in _TURNS:
                    self._turn(event)
                    return

    def _take(self, event: Event) -> None:
        if self.noted_last is None:
            self.noted_last = event.kind == "note" and "at" in event.data
        self.t = max(self.t, event.t)
        if self.moment is None and (moment := moment_of(event)) is not None:
            self.moment = moment, self.t - event.t
        if event.kind in _TURNS:
            self._turn(event)
        elif event.kind in ("step", "scalars", "eval"):
            self._collect(event)

    def _turn(self, event: Event) -> None:
        if event.kind == "run_end" and not self._settled:
            self.end = event.data
        self._settled = True
        if event.kind == "resume" and event.step is not None:
            self.cap = event.step if self.cap is None else min(self.cap, event.step)

    def _collect(self, event: Event) -> None:
        self.epoch = max(self.epoch, as_number(event.data.get("epoch"), -1.0))
        if self.cap is not None and event.step is not None and event.step > self.cap:
            self._since = 0
            return
        if event.step is not None and counts_as_training(event):
            self.step = event.step if self.step is None else max(self.step, event.step)
        fresh = {name: (event.step, value) for name, value in rows(event) if name not in self.seen}
        if fresh:
            self.seen = {**fresh, **self.seen}
            self._since = 0
            self._has_loss = any(name in self.seen for name in LOSSES)


def _status(summary: RunSummary, past: _Past, now: float) -> str:
    """By the last event and the writer's lock. A file's time also changes with a note, a copy or a touch."""
    if summary.end is not None:
        reason = summary.end.get("reason")
        return reason if reason in _ENDED else "errored"
    total = summary.manifest.total_epochs
    if summary.manifest.dialect == "kaun-board" and total and past.epoch >= total:
        return "completed"
    events = Path(summary.path) / EVENTS
    silent = _is_silent(summary, past, events, now)
    origin = summary.manifest.provenance
    boot = origin.get("boot_id")
    if boot and boot == provenance.boot_id() and origin.get("lock") == "flock":
        held = is_locked(events)
        if held is False:
            return "crashed"
        if held:
            # The writer lives; is it at work? Its clock may have stood still (a laptop that slept) or been set right:
            # then the time of the last write, if it was the writer's own, tells.
            wrote = not past.noted_last and abs(now - summary.modified) <= _SILENT_SECONDS
            return "stalled" if silent and not wrote else "live"
    elif boot and provenance.boot_id() not in ("", boot) and origin.get("host") == provenance.host()["name"]:
        return "crashed"  # this machine has started again since
    return "stalled" if silent else "live"


def _is_silent(summary: RunSummary, past: _Past, events: Path, now: float) -> bool:
    """Did the run write no event of its own for a while, by the times in its stream?

    A time that lies as far ahead counts as silence too: a clock that is wrong proves nothing, and were it believed, the
    run would be live until that day.
    """
    last = _last_moment(summary, past)
    if last is not None and abs(now - last) <= _SILENT_SECONDS:
        return False
    if past.moment is not None or not past.counts_seconds or abs(now - summary.modified) > _SILENT_SECONDS:
        return True
    # Seconds since the start leave out the time between a stop and a resume: the latest of these tells the hour.
    moment, t = _moment_before(events)
    return moment is None or abs(now - moment - max(0.0, past.t - t)) > _SILENT_SECONDS


def _last_event(summary: RunSummary, past: _Past) -> float:
    """Unix time of the last event, never later than the last write: by the stream, since a copy has a time of its own.

    Seconds since the start leave out the time between a stop and a resume. Where the file is so much younger, the
    latest resume tells it; a run that is live and was resumed farther back is as old as its file.
    """
    last = _last_moment(summary, past)
    if last is None:
        return summary.modified
    if past.moment is None and past.counts_seconds and summary.modified - last > _SILENT_SECONDS:
        moment, t = _moment_before(Path(summary.path) / EVENTS, _RESUME_REACH)
        if moment is not None:
            last = moment + max(0.0, past.t - t)
        elif summary.status == "live":
            last = summary.modified
    return min(last, summary.modified)


def _last_moment(summary: RunSummary, past: _Past) -> float | None:
    """Unix time of the run's last event; None where nothing in the folder tells it."""
    if past.moment is not None:
        return past.moment[0] + past.moment[1]
    if summary.manifest.dialect != "toy":
        return summary.manifest.created_at + past.t
    start = decode(first_line(Path(summary.path) / EVENTS))
    moment = None if start is None else moment_of(start)
    return None if moment is None else moment + past.t


def _moment_before(events: Path, farthest: int = FARTHEST) -> tuple[float | None, float]:
    """Unix time and `t` of the latest start or resume of a stream; None where there is none within reach."""
    for line in lines_backwards(events, farthest):
        if b"run_start" in line or b"resume" in line:
            event = decode(line)
            if event is not None and (moment := moment_of(event)) is not None:
                return moment, event.t
    return None, 0.0


def moment_of(event: Event) -> float | None:
    """The time of day that an event of the writer's tells, as Unix time; None for the others."""
    names = {"run_start": "started_at", "resume": "resumed_at", "heartbeat": "at", "run_end": "ended_at"}
    return unix_seconds(event.data.get(names[event.kind])) if event.kind in names else None
