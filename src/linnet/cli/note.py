"""`linnet note`."""

from __future__ import annotations

import shlex

from linnet.board import words
from linnet.board.words import runs_flag
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
        example = f'linnet note {run} "what to say" {runs_flag(runs)}'.rstrip()
        raise UsageError(f"the text of the note is missing: {example}")
    if len(text) > 1:
        example = f"linnet note {run} {shlex.quote(' '.join(text))} {runs_flag(runs)}".rstrip()
        raise UsageError(f"put the note in quotes: {example}")
    if not text[0].strip():
        raise UsageError("the note is empty")
    found = RunStore(runs).find(run)
    add_note(found, text[0], step)
    print(f"noted on {words.bounded(found.id)}")
    return 0
