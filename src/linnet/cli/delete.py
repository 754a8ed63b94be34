"""`linnet delete`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.board.words import listing
from linnet.cli.options import RunName, RunsFolder
from linnet.errors import UsageError
from linnet.runs import Run, RunError, RunStore
from linnet.runs.store import contents_of


def delete(
    *run: RunName,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False,
    force: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Delete runs, with their checkpoints.

    Parameters
    ----------
    yes
        Do not ask.
    force
        Delete even a run that is being written, or that holds files which no run writes.
    """
    if not run:
        raise UsageError(f"delete needs the name of a run; `{listing(runs)}` lists them")
    store = RunStore(runs)
    named = [store.find(reference) for reference in run]
    chosen = list({each.path.parent.resolve() / each.path.name: each for each in named}.values())
    for each in chosen:
        refusal = store.refusal(each, force=force)
        if refusal is not None:
            raise RunError(refusal)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("delete asks before it deletes, and there is nobody to ask here; say --yes")
        for each in chosen:
            print(f"{words.plain(each.path)}  ({words.plain(_about(each))})")
        if not _agreed(f"Delete {'these runs' if len(chosen) > 1 else 'this run'}? [y/N] "):
            print("nothing was deleted")
            return 1
    for each in chosen:
        print(f"deleted {words.plain(store.delete(each, force=force))}")
    return 0


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False


def _about(run: Run) -> str:
    """What would go with a run: files and bytes, and by name what no run writes."""
    if run.path.is_symlink():
        return f"a link to {run.path.readlink()}, which stays"
    contents = contents_of(run.path)
    facts = f"{words.number(contents.files)} {'file' if contents.files == 1 else 'files'}, {words.size(contents.bytes)}"
    return f"{facts}, also {', '.join(contents.foreign)}" if contents.foreign else facts
