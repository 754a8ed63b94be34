"""How a run stands, read from the two ends of its files and never from the middle: what a list of runs needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from linnet.runs import lock, provenance
from linnet.runs.events import Event, as_number, decode, parse
from linnet.runs.folder import EVENTS
from linnet.runs.manifest import Manifest, from_run_start
from linnet.runs.manifest import read as read_manifest
from linnet.runs.metric_names import main_metric, rows
from linnet.runs.tail import first_line, lines_backwards

STATUSES = ("live", "completed", "interrupted", "aborted", "errored", "crashed", "stalled")
_ENDED = ("completed", "interrupted", "aborted", "errored")
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
    origin = 0.0 if manifest.dialect in ("linnet", "toy") else manifest.created_at
    end, last, epoch, t = _from_the_end(events, origin)
    glance = Glance(
        run_id=manifest.run_id,
        path=str(folder),
        status="",
        manifest=manifest,
        step=last[0] if last else None,
        metric=last[1] if last else None,
        value=last[2] if last else None,
        t=t,
        modified=modified or manifest.created_at,
        end=end,
    )
    glance.status = _status(glance, events, epoch, time.time() if now is None else now)
    return glance


def load_manifest(folder: Path) -> Manifest | None:
    """The manifest, or for a run without one what its first event tells; None when the folder holds no run."""
    manifest = read_manifest(folder)
    if manifest is not None:
        return manifest
    events = folder / EVENTS
    if not events.is_file():
        return None
    start = parse(first_line(events)) or {}
    return from_run_start(start if start.get("kind") == "run_start" else {}, folder)


def last_seconds(events: Path) -> float:
    """The `t` of the last event: where a resumed run's clock goes on."""
    for line in lines_backwards(events):
        event = decode(line)
        if event is not None and event.t > 0:
            return event.t
    return 0.0


def _from_the_end(
    events: Path, origin: float
) -> tuple[dict[str, Any] | None, tuple[int | None, str, float] | None, float, float]:
    """Read backwards until both the run's end (or its absence) and its last loss are known."""
    end: dict[str, Any] | None = None
    ending_known = False
    t = 0.0
    seen: dict[str, tuple[int | None, float]] = {}
    epoch = -1.0
    for line in lines_backwards(events):
        event = decode(line, origin)
        if event is None:
            continue
        t = max(t, event.t)
        if event.kind == "run_end" and not ending_known:
            end, ending_known = event.data, True
        elif event.kind in ("resume", "run_start"):
            ending_known = True
        elif event.kind in ("step", "scalars"):
            ending_known = True
            if not _collect(event, seen):
                break  # a metric comes round again: one whole step has been seen
            epoch = max(epoch, as_number(event.data.get("epoch"), -1.0))
    name = main_metric(seen)
    return end, (seen[name][0], name, seen[name][1]) if name else None, epoch, t


def _collect(event: Event, seen: dict[str, tuple[int | None, float]]) -> bool:
    """Note the metrics of an event met on the way back; False once there is nothing new to learn."""
    fresh = {name: value for name, value in rows(event) if name not in seen}
    seen.update({name: (event.step, value) for name, value in fresh.items()})
    return bool(fresh) and "loss" not in seen


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
    elif boot and provenance.boot_id() and origin.get("host") == provenance.host()["name"]:
        return "crashed"  # this machine has started again since
    return "stalled" if silent else "live"
