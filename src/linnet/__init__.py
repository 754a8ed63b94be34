"""Linnet trains small transformers. Every run is a folder you can read, watch and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy

if TYPE_CHECKING:
    import os

    from linnet import architectures as architectures
    from linnet import data as data
    from linnet import gguf as gguf
    from linnet import infer as infer
    from linnet import models as models
    from linnet import recipes as recipes
    from linnet import runs as runs
    from linnet.api import chat as chat
    from linnet.api import generate as generate
    from linnet.api import load as load
    from linnet.api import resume as resume
    from linnet.api import train as train
    from linnet.errors import LinnetError as LinnetError
    from linnet.errors import UsageError as UsageError
    from linnet.runs import Run as Run
    from linnet.runs import RunBundle as RunBundle
    from linnet.runs import RunSummary
    from linnet.runs import Session as Session
    from linnet.runs import start as start
    from linnet.train.callback import Callback as Callback

__version__ = "0.1.0"

_names, __getattr__, __dir__ = lazy(__name__, {"train": "linnet"})  # the room, which can be called
__all__ = [*_names, "list_runs", "open"]


def open(run: str | os.PathLike[str], runs: str | os.PathLike[str] | None = None) -> Run:
    """Open a run by path, id, the beginning of an id, or `latest`; `runs` is the folder of runs."""
    from linnet.runs import RunStore

    return RunStore(runs).find(str(run))


def list_runs(
    root: str | os.PathLike[str] | None = None,
    *,
    experiment: str | None = None,
    tag: str | None = None,
    status: str | None = None,
    recipe: str | None = None,
    group: str | None = None,
    where: str | None = None,
) -> list[RunSummary]:
    """Every run below a folder with its status, last step and last loss, oldest first.

    `where`: only runs that fit, as in "loss<2 and lr>=1e-3 and tag:base".
    """
    from linnet.runs import RunStore
    from linnet.runs.selection import Filters, select

    filters = Filters(where, experiment, group, tag, status, recipe)
    return [record.summary for record in select(RunStore(root), filters=filters)]
