"""`linnet note`."""

from __future__ import annotations

from linnet.board import words
from linnet.cli.options import RunName, RunsFolder
from linnet.errors import UsageError
from linnet.runs import RunStore, add_note


def note(run: RunName, /, *text: str, step: int | None = None, runs: RunsFolder = None) -> int:
    """Add a remark to a run, while it trains or long after.

    Parameters
    ----------
    text
        What to say, in quotes.
    step
        The step it is about.
    """
    if not text:
        raise UsageError(f'the text of the note is missing: linnet note {run} "what to say"')
    if len(text) > 1:
        raise UsageError(f'put the note in quotes: linnet note {run} "{" ".join(text)}"')
    if not text[0].strip():
        raise UsageError("the note is empty")
    found = RunStore(runs).find(run)
    add_note(found, text[0], step)
    print(f"noted on {words.plain(found.id)}")
    return 0
