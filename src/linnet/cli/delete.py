"""`linnet delete`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import RunName, RunsFolder
from linnet.errors import UsageError
from linnet.runs import RunStore


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
    found = [store.find(reference) for reference in run]
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("delete asks before it deletes, and there is nobody to ask here; say --yes")
        for each in found:
            held = sum(file.stat().st_size for file in each.path.rglob("*") if file.is_file())
            print(f"{each.path}  ({words.size(held)})")
        if input(f"Delete {'these runs' if len(found) > 1 else 'this run'}? [y/N] ").strip().lower() not in (
            "y",
            "yes",
        ):
            print("nothing was deleted")
            return 1
    for each in found:
        print(f"deleted {store.delete(str(each.path.resolve()), force=force)}")
    return 0
