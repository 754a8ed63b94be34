"""`linnet delete`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import RunName, RunsFolder
from linnet.errors import UsageError
from linnet.runs import RunStore
from linnet.runs.place import is_file


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
        Delete even a run that is being written.
    """
    if not run:
        raise UsageError("delete needs the name of a run; `linnet runs` lists them")
    store = RunStore(runs)
    named = [store.find(reference) for reference in run]
    found = list({each.path.resolve(): each for each in named}.values())
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("delete asks before it deletes, and there is nobody to ask here; say --yes")
        for each in found:
            print(f"{words.plain(each.path)}  ({words.size(_bytes_in(each.path))})")
        if not _agreed(f"Delete {'these runs' if len(found) > 1 else 'this run'}? [y/N] "):
            print("nothing was deleted")
            return 1
    for each in found:
        print(f"deleted {words.plain(store.delete(each, force=force))}")
    return 0


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if is_file(file))
