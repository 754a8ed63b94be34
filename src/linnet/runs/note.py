"""A remark or an evaluation added to a run from outside, while it is written or long after."""

from __future__ import annotations

from collections.abc import Mapping

from linnet.runs.clock import iso_now
from linnet.runs.glance import last_seconds
from linnet.runs.run import Run


def add_note(run: Run, text: str, step: int | None = None) -> None:
    """Append a `note` event: one write of a whole line, so it never mixes with a writer's."""
    record = {**_note(run, text), "step": step, "at": iso_now()}
    run.append_event({name: value for name, value in record.items() if value is not None})


def add_evaluation(run: Run, name: str, step: int | None, figures: Mapping[str, object]) -> None:
    """Append an `eval` event to a run of ours or of Toy's that nobody writes; its status, steps and best stay."""
    seconds = last_seconds(run.events_path, run.origin)
    event = {"kind": "eval", "phase": "eval", "t": seconds, "step": step, "name": name, **figures, "at": iso_now()}
    run.append_event({name: value for name, value in event.items() if value is not None})


def _note(run: Run, text: str) -> dict[str, object]:
    """A note as its neighbours spell theirs: kaun-board and munin name a `type`, and tell Unix time."""
    seconds = last_seconds(run.events_path, run.origin)
    if run.manifest.dialect == "kaun-board":
        return {"type": "note", "wall_time": run.origin + seconds, "text": text}
    if run.manifest.dialect == "munin":
        return {"type": "notes", "timestamp": run.origin + seconds, "value": text}
    return {"kind": "note", "t": seconds, "text": text}
