"""Command lines and paths to copy from a screen: they work as printed, in the folder where they are printed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from linnet.board.words import plain
from linnet.runs.folder import runs_folder


def command(verb: str, run: Path, rest: str = "", *, checkpoint: int | None = None) -> str:
    """`linnet VERB RUN REST`; with `--runs` where the run's folder is not in the folder that is searched by default."""
    run = _absolute(run)
    name = run.name if checkpoint is None else f"{run.name}@{checkpoint}"
    words = ["linnet", verb, shlex.quote(name), rest, runs_flag(run.parent)]
    return plain(" ".join(word for word in words if word))


def listing(root: Path | None) -> str:
    """The command that lists the runs of a folder; None: of the one that is searched by default."""
    return f"linnet runs {runs_flag(root)}".rstrip()


def runs_flag(root: Path | None) -> str:
    """`--runs DIR`; empty where that is the folder that is searched by default."""
    if root is None or os.path.realpath(_absolute(root)) == os.path.realpath(_absolute(runs_folder())):
        return ""
    return plain(f"--runs {shlex.quote(shown_path(root))}")


def shown_path(path: Path) -> str:
    """A path seen from the current folder if it is in it, else in full."""
    path, here = _absolute(path), _absolute(Path())
    return str(path.relative_to(here) if path != here and path.is_relative_to(here) else path)


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except FileNotFoundError:  # the current folder was deleted
        return path
