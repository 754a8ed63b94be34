"""`run_start`: the first event of a stream, made from the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linnet.runs import provenance
from linnet.runs.clock import iso_now
from linnet.runs.events import decode
from linnet.runs.manifest import Manifest
from linnet.runs.tail import lines_backwards


def run_start(manifest: Manifest, *, phase: str = "train", device: str | None = None, **more: Any) -> dict[str, Any]:
    """The event's fields in Toy's order; `more` are those the schema leaves open, None standing for absent."""
    fields = {
        "kind": "run_start",
        "schema": "toy/v1",
        "t": 0.0,
        "started_at": iso_now(),
        "run_id": manifest.run_id,
        "phase": phase,
        "host": provenance.host(),
        "backend": {"kind": device or provenance.backend()},
        "git": manifest.provenance.get("git") or None,
        "model": manifest.model,
        "config": manifest.config,
    }
    return {name: value for name, value in (fields | more).items() if value is not None}


def has_events(events: Path) -> bool:
    """Is there a whole event in the stream? A run that was made and never logged into has none."""
    return any(decode(line) is not None for line in lines_backwards(events))
