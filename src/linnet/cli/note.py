"""`linnet note`."""

from __future__ import annotations

from pathlib import Path

from linnet.errors import UsageError
from linnet.runs import RunStore, add_note


def note(run: str, text: str, /, *, step: int | None = None, runs: Path | None = None) -> int:
    """Add a remark to a run, while it trains or long after.

    Parameters
    ----------
    run
        The run: an id, the beginning of one, a path, or `latest`.
    text
        What to say.
    step
        The step it is about.
    runs
        The folder of runs.
    """
    if not text.strip():
        raise UsageError("the note is empty")
    found = RunStore(runs).find(run)
    add_note(found, text, step)
    print(f"noted on {found.id}")
    return 0
