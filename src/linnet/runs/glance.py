"""How a run stands, read from the two ends of its files and never from the middle: what a list of runs needs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from linnet.runs import lock, provenance
from linnet.runs.events import Event, as_number, decode, parse
from linnet.runs.folder import EVENTS
from linnet.runs.manifest import Manifest, from_run_start
from linnet.runs.manifest import read as read_manifest
from linnet.runs.metric_names import LOSSES, main_metric, rows
from linnet.runs.place import is_file
from linnet.runs.tail import first_line, lines_backwards

STATUSES = ("live", "completed", "interrupted", "aborted", "errored", "crashed", "stalled")
_ENDED = ("completed", "interrupted", "aborted", "errored")
_PATIENCE = 200  # lines to look back for a loss, after the last line that told something new
_LATE = 64  # lines that may follow a run_end and not undo it; so many are mostly in the first block that is read
_TURNS = ("run_end", "resume", "run_start")  # what says whether a run has ended
_SILENT_SECONDS = 90.0  # a writer of ours says something at least every twenty


class Glance(msgspec.Struct, kw_only=True):
    """A run's standing.

    - `metric`, `value`: the main metric (the loss, where there is one) and its last value.
    - `t`: seconds of training so far; `modified`: Unix time of the last write.
    - `end`: the `run_end` event's fields, when there is one.
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
    end: dict[str, Any] | None = None


def look(folder: Path, now: float | None = None) -> Glance | None:
    """Look at one folder; None when it holds no run."""
    events = folder / EVENTS
    try:
        modified = events.stat().st_mtime
    except OSError:
        modified = 0.0
    manifest = load_manifest(folder)
    if manifest is None:
        return None
    origin = origin_of(manifest)
    past = _Past()
    past.read(lines_backwards(events), origin)
    name = main_metric(past.seen)
    step, value = past.seen[name] if name is not None else (past.cap, None)
    glance = Glance(
        run_id=manifest.run_id,
        path=str(folder),
        status="",
        manifest=manifest,
        step=step,
        metric=name,
        value=value,
        t=past.t,
        modified=modified or manifest.created_at,
        end=past.end,
    )
    glance.status = _status(glance, events, past.epoch, time.time() if now is None else now)
    return glance


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
    """

    def __init__(self) -> None:
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
        self.t = max(self.t, event.t)
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
        fresh = {name: (event.step, value) for name, value in rows(event) if name not in self.seen}
        if fresh:
            self.seen = {**fresh, **self.seen}
            self._since = 0
            self._has_loss = any(name in self.seen for name in LOSSES)


def _status(glance: Glance, events: Path, epoch: float, now: float) -> str:
    """Never from a clock alone where the writer left a lock, a host and a boot id."""
    if glance.end is not None:
        reason = glance.end.get("reason")
        return reason if reason in _ENDED else "errored"
    total = glance.manifest.total_epochs
    if glance.manifest.dialect == "kaun-board" and total and epoch >= total:
        return "completed"
    silent = now - glance.modified > _SILENT_SECONDS
    origin = glance.manifest.provenance
    boot = origin.get("boot_id")
    if boot and boot == provenance.boot_id() and origin.get("lock") == "flock":
        held = lock.is_held(events)
        if held is False:
            return "crashed"
        if held:
            return "stalled" if silent else "live"
    elif boot and provenance.boot_id() not in ("", boot) and origin.get("host") == provenance.host()["name"]:
        return "crashed"  # this machine has started again since
    return "stalled" if silent else "live"
