"""`Follower`: a page that looks: which runs and metrics it shows, and how much of them it has."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from linnet.board.curve import AXES, Curve
from linnet.board.web.answer_json import encoded, figure
from linnet.board.web.answers import RequestError
from linnet.board.web.open_runs import OpenRun
from linnet.board.web.parameters import MOST_KEYS, MOST_RUNS, MOST_SERIES, Parameters
from linnet.board.web.series import axis_values
from linnet.runs import Series

_MOST_ROWS = 2_000  # of a metric that are sent one by one; of more the page asks for the series again
_MOST_WAITING = 256  # messages that a page has not taken
_MOST_BYTES = 2 << 20


@dataclass
class SeriesState:
    """How much of a series a page has. `generation`, `resumes`: of the stream that this was read from."""

    position: int
    generation: int
    resumes: int


@dataclass
class Follower:
    """One stream of changes. `queue` is filled by the event loop, and so `drop` is called by it."""

    runs: list[str]
    keys: list[str]
    watched: list[str]  # runs besides, of which it wants to hear and has no series
    axes: list[str]
    columns: str | None
    positions: list[int]
    states: dict[tuple[str, str], SeriesState] = field(default_factory=dict)
    queue: deque[bytes] = field(default_factory=deque)
    waiting: int = 0  # bytes in the queue
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: bool = False

    @classmethod
    def of(cls, parameters: Parameters) -> Follower:
        """From the query of an address."""
        runs, keys = parameters.texts("runs", MOST_RUNS), parameters.texts("keys", MOST_KEYS)
        if len(runs) * len(keys) > MOST_SERIES:
            raise RequestError(400, f"{len(runs)} runs × {len(keys)} keys are more than {MOST_SERIES} series")
        positions = parameters.integers("positions", MOST_SERIES)
        if positions and len(positions) != len(runs) * len(keys):
            raise RequestError(400, f"positions are one for each of {len(runs) * len(keys)} series")
        columns = parameters.text("columns") if parameters.has("columns") else None
        axes = parameters.choices("axis", AXES)
        return cls(runs, keys, parameters.texts("watch", MOST_RUNS), axes, columns, positions)

    def hears_of(self, run_id: str) -> bool:
        """Is it told of a run?"""
        return run_id in self.runs or run_id in self.watched

    def push(self, message: bytes) -> None:
        """Put a message into the queue; a page that does not take its messages is dropped."""
        if self.dropped or not message:
            return
        self.queue.append(message)
        self.waiting += len(message)
        if len(self.queue) > _MOST_WAITING or self.waiting > _MOST_BYTES:
            self.drop()
        self.woken.set()

    def take(self) -> bytes:
        """All that is in the queue."""
        message = b"".join(self.queue)
        self.queue.clear()
        self.waiting = 0
        self.woken.clear()
        return message

    def drop(self) -> None:
        """End it."""
        self.dropped = True
        self.woken.set()

    def series_changes(self, run_id: str, run: OpenRun) -> bytes:
        """What is new in the metrics that the page shows of a run; the run's lock is held."""
        messages = list[bytes]()
        for at, key in enumerate(self.keys if run_id in self.runs else ()):
            series = run.history.series(key)
            if series is None:
                continue
            state = self.states.get((run_id, key))
            if state is None:
                state = SeriesState(self._first_position(run_id, at, len(series)), *_stream_of(run))
                self.states[run_id, key] = state
            messages += [event("series", change) for change in self._changes(run_id, run, series, state)]
        return b"".join(messages)

    def _first_position(self, run_id: str, at: int, rows: int) -> int:
        if not self.positions:
            return rows
        return self.positions[self.runs.index(run_id) * len(self.keys) + at]

    def _changes(self, run_id: str, run: OpenRun, series: Series, state: SeriesState) -> list[dict[str, Any]]:
        """The rows behind those that the page has, on each of its axes."""
        rows, stream = len(series), _stream_of(run)
        from_start = stream != (state.generation, state.resumes) or rows < state.position
        from_start = from_start or rows - state.position > _MOST_ROWS
        if rows == state.position and not from_start:
            return []
        changes = []
        for axis in self.axes:
            x, values = ([], []) if from_start else _new_rows(run, series, state.position, axis)
            named = {"run": run_id, "key": series.name, "axis": axis, "position": rows}
            changes.append({**named, "x": x, "value": values, "again": from_start})
        state.position, (state.generation, state.resumes) = rows, stream
        return changes


def _new_rows(run: OpenRun, series: Series, begin: int, axis: str) -> tuple[list[float], list[Any]]:
    step, t, _, value = series.since(begin)
    if axis == "step":
        x = step.astype(np.float64)
    elif axis == "relative time":
        x = t
    elif axis == "wall time":
        x = t + run.run.manifest.created_at
    else:
        known = run.history.curve(series.name)
        stats = known.stats if known is not None else None
        placed = axis_values(run, run.history, Curve.of(series, slice(begin, None), stats), axis)
        x = placed if placed is not None else np.empty(0)
    shown = np.isfinite(x)
    return x[shown].tolist(), [figure(one) for one in value[: len(x)][shown].tolist()]


def _stream_of(run: OpenRun) -> tuple[int, int]:
    return run.history.generation, run.history.metrics.resumes


def event(name: str, data: object) -> bytes:
    """A server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + encoded(data) + b"\n\n"


@dataclass
class RunState:
    """What a run had besides numbers when pages were last told, by part."""

    marks: dict[str, object] = field(default_factory=dict)

    def changes(self, run: OpenRun, *, first: bool = False) -> list[str]:
        """The parts that are new since the last call; at the first call none, or all. The run's lock is held."""
        journal = run.journal
        artifacts = journal.artifacts()
        marks: dict[str, object] = {
            "metrics": len(run.history.names()),
            "samples": _end_of(journal.samples()),
            "notes": _end_of(journal.notes()),
            "log": _end_of(journal.log_entries()),
            "checkpoints": len(journal.checkpoint_paths()),
            "artifacts": sum(len(series.artifacts) for series in artifacts),
            "inside": journal.looks,
            "manifest": run.watched.summary.manifest,
            "status": run.watched.status,
        }
        known, self.marks = self.marks, marks
        return [part for part, mark in marks.items() if (known and known.get(part) != mark) or (first and not known)]


def _end_of(entries: list[Any]) -> object:
    return len(entries), entries[-1] if entries else None
