"""`RunSummary`: a run's status, last step and last loss, read from the two ends of its files and never from the middle.

A list of thousands of runs needs no more.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from linnet.display import one_line
from linnet.files import is_file, is_locked
from linnet.runs import provenance
from linnet.runs.events import Event, as_number, decode, parse, unix_seconds
from linnet.runs.folder import EVENTS, MANIFEST
from linnet.runs.inspection_lines import is_inspection
from linnet.runs.lines import FARTHEST, first_line, lines_backwards
from linnet.runs.manifest import Manifest, from_run_start
from linnet.runs.manifest import read as read_manifest
from linnet.runs.metric_names import LOSSES, counts_as_training, main_metric, rows

STATUSES = ("live", "completed", "interrupted", "aborted", "errored", "crashed", "stalled")
_ENDED = ("completed", "interrupted", "aborted", "errored")
_PATIENCE = 200  # lines to look back for a loss, after the last line that told something new
_ADDED = ("note", "eval", "artifact")  # what may be added from outside, with `at`, however many
_LATE = 64  # lines that may follow a run_end and not undo it; so many are mostly in the first block that is read
_TURNS = ("run_end", "resume", "run_start")  # what says whether a run has ended
_SILENT_SECONDS = 90.0  # a writer of ours says something at least every twenty
_RESUME_REACH = 256 << 10  # bytes to look back for a resume by which the age of a run is told; a list has thousands
_TIME_FIELDS = {"run_start": "started_at", "resume": "resumed_at", "heartbeat": "at", "run_end": "ended_at"}


class RunSummary(msgspec.Struct, kw_only=True):
    """A run's status, progress and last value.

    - `step`: the highest step of training near the end of the stream, whichever metrics it was logged with.
    - `metric`, `value`: the main metric (the loss, where there is one) and its last value.
    - `latest`: the last value of each metric that was met near the end of the stream, the main one among them.
    - `t`: seconds of training so far; `modified`: Unix time of the last write, also by a note, a copy or a touch.
    - `last_event`: Unix time of the last event that the run itself wrote, as far as the folder tells it.
    - `end`: the `run_end` event's fields, when there is one.
    - `warning`: what is wrong with the folder, as far as its two ends show it.
    """

    run_id: str
    path: str
    status: str
    manifest: Manifest
    step: int | None = None
    metric: str | None = None
    value: float | None = None
    latest: dict[str, float] = {}
    t: float = 0.0
    modified: float = 0.0
    last_event: float = 0.0
    end: dict[str, Any] | None = None
    warning: str | None = None

    def __repr__(self) -> str:
        facts = [self.status, *(() if self.step is None else (f"step {self.step}",))]
        facts += [] if self.metric is None else [f"{self.metric} {self.value}"]
        return one_line("RunSummary", self.run_id, facts)


def summarize(folder: Path, now: float | None = None) -> RunSummary | None:
    """Summarize the run in a folder; None when it holds none."""
    events = f"{folder}/{EVENTS}"  # joining paths takes as long as reading one
    try:
        modified = os.stat(events).st_mtime  # noqa: PTH116
    except OSError:
        modified = 0.0
    manifest = load_manifest(folder)
    if manifest is None:
        return None
    tail = _StreamEnd(manifest.dialect in ("linnet", "toy"))
    tail.read(lines_backwards(events), manifest.origin)
    name = main_metric(tail.metrics)
    summary = RunSummary(
        run_id=manifest.run_id,
        path=str(folder),
        status="",
        manifest=manifest,
        step=tail.step if tail.step is not None else tail.cap,
        metric=name,
        value=tail.metrics[name] if name is not None else None,
        latest=tail.metrics,
        t=tail.t,
        modified=modified or manifest.created_at,
        end=tail.end,
    )
    if manifest.dialect == "toy" and (folder / MANIFEST).exists():  # made from the first event, though there is a file
        summary.warning = f"{MANIFEST} cannot be read as a manifest; what it would say was taken from {EVENTS}"
    summary.status = _status(summary, tail, time.time() if now is None else now)
    summary.last_event = _last_event(summary, tail)
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


def last_event(events: Path, predicate: Callable[[Event], bool] | None = None, origin: float = 0.0) -> Event | None:
    """The last event of a stream, or the last that `predicate` takes, if there is one. `origin` as for `decode`."""
    backwards = (event for line in lines_backwards(events) if (event := decode(line, origin)) is not None)
    return next(filter(predicate or (lambda event: True), backwards), None)


def last_seconds(events: Path, origin: float = 0.0) -> float:
    """The `t` of the last event: where a resumed run's clock goes on. `origin`: when a foreign run began."""
    event = last_event(events, lambda event: 0 < event.t < math.inf, origin)
    return 0.0 if event is None else event.t


class _StreamEnd:
    """What the end of a stream tells: lines are taken last first, until ending and last loss are known.

    - `metrics`: the last value of each, in the order in which they stand in the stream.
    - `cap`: what was logged before a `resume` for a step beyond it is void.
    - `wall_time`: the last event whose line tells the time of day, as Unix time, and how many seconds the run went on
      after it; None while none was met. Notes added from outside tell no time of the run's.

    `counts_seconds`: times are told in seconds since the start, as Linnet and Toy do; else they are times of day.
    """

    def __init__(self, counts_seconds: bool) -> None:
        self.counts_seconds = counts_seconds
        self.wall_time: tuple[float, float] | None = None
        self.noted_last: bool | None = None  # the last event was added from outside; None: there is no event
        self.step: int | None = None
        self.end: dict[str, Any] | None = None
        self.t = 0.0
        self.epoch = -1.0
        self.cap: int | None = None
        self.metrics: dict[str, float] = {}
        self._has_loss = False
        self._settled = False  # it is known whether the run has ended
        self._since = 0  # lines in which nothing was new

    def read(self, lines: Iterator[bytes], origin: float) -> None:
        """Take lines from the last backwards, until all is known, or too little is new to read on."""
        for line in lines:
            if self._settled and is_inspection(line):
                continue
            event = decode(line, origin)
            if event is not None:
                self._take(event)
            if event is None or event.kind not in _ADDED or "at" not in event.data:
                self._since += bool(self.metrics)
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
        if self.wall_time is None and (moment := _wall_time(event)) is not None:
            self.wall_time = moment, self.t - event.t
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
        new = {name: value for name, value in rows(event) if name not in self.metrics}
        if new:
            self.metrics = {**new, **self.metrics}
            self._since = 0
            self._has_loss = any(name in self.metrics for name in LOSSES)


def _status(summary: RunSummary, tail: _StreamEnd, now: float) -> str:
    """The status, by the last event and the writer's lock. A file's time changes with a note, a copy or a touch too."""
    if summary.end is not None:
        reason = summary.end.get("reason")
        return reason if reason in _ENDED else "errored"
    total = summary.manifest.total_epochs
    if summary.manifest.dialect == "kaun-board" and total and tail.epoch >= total:
        return "completed"
    events = Path(summary.path) / EVENTS
    silent = _is_silent(summary, tail, events, now)
    origin = summary.manifest.provenance
    boot = origin.get("boot_id")
    if boot and boot == provenance.boot_id() and origin.get("lock") == "flock":
        locked = is_locked(events)
        if locked is False:
            return "crashed"
        if locked:
            # The writer lives; is it at work? Its clock may have stood still (a laptop that slept) or been set right:
            # then the time of the last write, if it was the writer's own, tells.
            wrote = not tail.noted_last and abs(now - summary.modified) <= _SILENT_SECONDS
            return "stalled" if silent and not wrote else "live"
    elif boot and provenance.boot_id() not in ("", boot) and origin.get("host") == provenance.host()["name"]:
        return "crashed"  # this machine has started again since
    return "stalled" if silent else "live"


def _is_silent(summary: RunSummary, tail: _StreamEnd, events: Path, now: float) -> bool:
    """Did the run write no event of its own for a while, by the times in its stream?

    A time that lies as far ahead counts as silence too: a clock that is wrong proves nothing, and were it believed, the
    run would be live until that day.
    """
    last = _last_wall_time(summary, tail)
    if last is not None and abs(now - last) <= _SILENT_SECONDS:
        return False
    if tail.wall_time is not None or not tail.counts_seconds or abs(now - summary.modified) > _SILENT_SECONDS:
        return True
    # Seconds since the start leave out the time between a stop and a resume: the latest of these tells the hour.
    moment, t = _latest_start(events)
    return moment is None or abs(now - moment - max(0.0, tail.t - t)) > _SILENT_SECONDS


def _last_event(summary: RunSummary, tail: _StreamEnd) -> float:
    """Unix time of the last event, never later than the last write: by the stream, since a copy has a time of its own.

    Seconds since the start leave out the time between a stop and a resume. Where the file is so much younger, the
    latest resume tells it; a run that is live and was resumed farther back is as old as its file.
    """
    last = _last_wall_time(summary, tail)
    if last is None:
        return summary.modified
    if tail.wall_time is None and tail.counts_seconds and summary.modified - last > _SILENT_SECONDS:
        moment, t = _latest_start(Path(summary.path) / EVENTS, _RESUME_REACH)
        if moment is not None:
            last = moment + max(0.0, tail.t - t)
        elif summary.status == "live":
            last = summary.modified
    return min(last, summary.modified)


def _last_wall_time(summary: RunSummary, tail: _StreamEnd) -> float | None:
    """Unix time of the run's last event; None where nothing in the folder tells it."""
    if tail.wall_time is not None:
        return sum(tail.wall_time)
    if summary.manifest.dialect != "toy":
        return summary.manifest.created_at + tail.t
    start = decode(first_line(Path(summary.path) / EVENTS))
    moment = None if start is None else _wall_time(start)
    return None if moment is None else moment + tail.t


def _latest_start(events: Path, farthest: int = FARTHEST) -> tuple[float | None, float]:
    """Unix time and `t` of the latest start or resume of a stream; None where there is none within reach."""
    for line in lines_backwards(events, farthest):
        if b"run_start" in line or b"resume" in line:
            event = decode(line)
            if event is not None and (moment := _wall_time(event)) is not None:
                return moment, event.t
    return None, 0.0


def _wall_time(event: Event) -> float | None:
    """The time of day that an event of the writer's tells, as Unix time; None for the others."""
    return unix_seconds(event.data.get(_TIME_FIELDS[event.kind])) if event.kind in _TIME_FIELDS else None
