"""Labels of a run that are changed long after it began: its name, its tags, and whether it is archived."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from linnet import files
from linnet.runs import provenance
from linnet.runs.encode import encode_pretty
from linnet.runs.folder import MANIFEST
from linnet.runs.manifest import clean_tags, read, read_json
from linnet.runs.run import Run, RunError


def rename(run: Run, name: str) -> None:
    """Give a run another name; an empty one takes it away. Its id, which is its folder, stays."""
    _change(run, {"name": provenance.mask_labels([name.strip()])[0] or None})


def tag(run: Run, add: Collection[str] = (), remove: Collection[str] = ()) -> list[str]:
    """Add tags to a run and take others away; the tags it has then."""
    remaining = [tag for tag in run.manifest.tags if tag not in remove]
    tags = clean_tags([*remaining, *add])
    _change(run, {"tags": tags})
    return tags


def retag(run: Run, tags: Iterable[str]) -> None:
    """Give a run these tags in place of those it has."""
    _change(run, {"tags": clean_tags(tags)})


def archive(run: Run, archived: bool = True) -> None:
    """Take a run out of the lists, or put it back; its folder stays as it is."""
    _change(run, {"archived": archived or None})


def _change(run: Run, labels: dict[str, Any]) -> None:
    """Put the labels into `run.json`, in one step; all else in it stays, whoever wrote it. None takes one away.

    A writer that is at work takes labels up from there before it writes the file again.
    """
    fields = read_json(run.path)
    if fields is None:
        raise RunError(f"run {run.id} has no {MANIFEST} that can be read, which would hold its labels")
    changed = {name: value for name, value in {**fields, **labels}.items() if labels.get(name, value) is not None}
    try:
        files.write_file(run.path / MANIFEST, encode_pretty(changed), mode=0o644)
    except OSError as error:
        raise RunError(f"{run.path / MANIFEST} cannot be written: {error.strerror or error}") from error
    if (manifest := read(run.path)) is not None:
        run.manifest = manifest
