"""`linnet note`."""

from __future__ import annotations

from linnet.cli.options import RunName, RunsFolder
from linnet.errors import UsageError
from linnet.runs import RunStore, add_note


def note(run: RunName, text: str, /, *, step: int | None = None, runs: RunsFolder = None) -> int:
    """Add a remark to a run, while it trains or long after.

    Parameters
    ----------
    text
        What to say.
    step
        The step it is about.
    """
    if not text.strip():
        raise UsageError("the note is empty")
    found = RunStore(runs).find(run)
    add_note(found, text, step)
    print(f"noted on {found.id}")
    return 0
