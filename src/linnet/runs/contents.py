"""What lies in a folder that is to be deleted: is it provably a run, and what else is in it?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from linnet.files import is_file, open_regular
from linnet.runs.events import parse
from linnet.runs.folder import EVENTS, MANIFEST, SUBFOLDERS, belongs
from linnet.runs.lines import BOM
from linnet.runs.manifest import read_json

_FIRST_LINES = 20  # of a stream that are looked at; those of a run say at once what it is
_LONGEST_LINE = 1 << 20


class Contents(msgspec.Struct):
    """A folder, counted without following links.

    - `foreign`: entries of the folder that no writer of runs makes, by name, folders with a `/`.
    - `runs`: folders within that are runs themselves, by their path in the folder.
    """

    files: int = 0
    bytes: int = 0
    foreign: list[str] = []
    runs: list[str] = []


def is_proven(folder: Path) -> bool:
    """Does something in the folder prove that it is a run, and not merely a folder with a file of that name?

    A manifest with the fields that its writer never leaves out, or a first event of Linnet, Toy, kaun-board or munin.
    """
    return _is_manifest(read_json(folder) or {}) or any(map(_is_first_event, _first_events(folder / EVENTS)))


def contents_of(folder: Path) -> Contents:
    """Count what is in a folder, and name what does not belong to the run."""
    found = Contents()
    for parent, subfolders, names in os.walk(folder):
        within = Path(parent).relative_to(folder)
        for name in names:
            found.files += 1
            found.bytes += _size(Path(parent, name))
        if not within.parts:
            found.foreign = sorted(name for name in names if not belongs(name))
            found.foreign += sorted(f"{name}/" for name in subfolders if not belongs(name))
        elif _is_run_within(Path(parent), within):
            found.runs.append(str(within))
        links = [name for name in subfolders if Path(parent, name).is_symlink()]
        found.files += len(links)
    found.runs.sort()
    return found


def _is_run_within(folder: Path, within: Path) -> bool:
    """Among the run's own files a name is no proof: an artifact may be called `run.json`."""
    named = is_file(folder / EVENTS) or is_file(folder / MANIFEST)
    return named and (within.parts[0] not in SUBFOLDERS or is_proven(folder))


def _is_manifest(fields: dict[str, Any]) -> bool:
    run_id, began = ("run_id", "created_at") if "run_id" in fields else ("id", "started_at")  # munin's are the latter
    return (
        isinstance(fields.get(run_id), str)
        and isinstance(fields.get("schema_version"), int)
        and isinstance(fields.get(began), int | float)
    )


def _is_first_event(fields: dict[str, Any]) -> bool:
    if fields.get("kind") == "run_start":
        return isinstance(fields.get("t"), int | float) and any(key in fields for key in ("schema", "run_id"))
    name = {"scalar": "tag", "metric": "key", "define_metric": "key"}.get(str(fields.get("type")))
    return name is not None and isinstance(fields.get(name), str)


def _first_events(events: Path) -> Iterator[dict[str, Any]]:
    """The first event that can be read; lines before it may be damaged."""
    try:
        with os.fdopen(open_regular(events), "rb") as file:
            lines = (file.readline(_LONGEST_LINE).removeprefix(BOM) for _ in range(_FIRST_LINES))
            yield from islice((fields for line in lines if (fields := parse(line)) is not None), 1)
    except OSError:
        return


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
