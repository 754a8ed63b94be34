"""`run.json`: what a run is. Written first and atomically; replaced only atomically; read in four dialects."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from linnet import files
from linnet.runs import provenance
from linnet.runs.encode import encode_pretty
from linnet.runs.events import decode, respell, unix_seconds
from linnet.runs.folder import MANIFEST
from linnet.runs.lines import BOM, LineReader

_LARGEST = 64 << 20
_ALWAYS = ("schema_version", "run_id", "created_at", "tags")


class Manifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fields of `run.json`. `dialect` tells who wrote it and is not itself written.

    `summary`: figures that its user declared to be the run's (`run.summary`).
    """

    run_id: str
    schema_version: int = 1
    created_at: float = 0.0
    name: str | None = None
    experiment: str | None = None
    group: str | None = None
    parent: str | None = None
    recipe: str | None = None
    tags: list[str] = []
    total_steps: int | None = None
    total_epochs: int | None = None
    goals: dict[str, str] = {}
    model: dict[str, Any] = {}
    config: dict[str, Any] = {}
    provenance: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    dialect: str = "linnet"

    def mask(self, exact: Collection[str] = ()) -> None:
        """Mask secrets in config and labels; the config fields named in `exact` are read back and stay as they are."""
        self.config = provenance.mask_config(self.config, exact)
        self.tags = provenance.mask_labels(self.tags)
        for name in ("name", "experiment", "group"):
            if (label := getattr(self, name)) is not None:
                setattr(self, name, provenance.mask_labels([label])[0])

    def write(self, folder: Path) -> None:
        """Put the manifest in its place in one step: a reader sees the old one or the new one, whole."""
        fields = msgspec.structs.asdict(self)
        kept = {k: v for k, v in fields.items() if k in _ALWAYS or (k != "dialect" and v not in (None, [], {}))}
        files.write_file(folder / MANIFEST, encode_pretty(kept), mode=0o644)


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder; None when there is none or it cannot be made out."""
    found = read_json(folder)
    return None if found is None else from_json(found, folder.name)


def read_json(folder: Path) -> dict[str, Any] | None:
    """The object in a folder's `run.json`, whoever wrote it; None when there is none."""
    try:
        fd = files.open_regular(f"{folder}/{MANIFEST}")
        try:
            size = os.fstat(fd).st_size
            if size > _LARGEST:
                return None
            content = files.read_at(fd, size + 1, 0)
        finally:
            os.close(fd)
        found = msgspec.json.decode(content.removeprefix(BOM))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def from_json(found: dict[str, Any], folder_name: str) -> Manifest:
    """Read Linnet's, kaun-board's and munin's manifests; a field of the wrong type counts as absent."""
    respell(found)
    munin = "id" in found and "run_id" not in found
    return Manifest(
        run_id=_text(found.get("id" if munin else "run_id")) or folder_name,
        schema_version=_integer(found.get("schema_version")) or 1,
        created_at=_number(found.get("started_at" if munin else "created_at")) or 0.0,
        name=_text(found.get("name")),
        experiment=_text(found.get("experiment")),
        group=_text(found.get("group")),
        parent=_text(found.get("parent_id" if munin else "parent")),
        recipe=_text(found.get("recipe")),
        tags=[tag for tag in found["tags"] if isinstance(tag, str)] if isinstance(found.get("tags"), list) else [],
        total_steps=_integer(found.get("total_steps")),
        total_epochs=_integer(_object(found.get("params")).get("epochs") if munin else found.get("total_epochs")),
        goals={k: v for k, v in _object(found.get("goals")).items() if v in ("min", "max")},
        model=_object(found.get("model")),
        config=_object(found.get("params" if munin else "config")),
        provenance=_munin_origin(_object(found.get("provenance"))) if munin else _object(found.get("provenance")),
        summary=_object(found.get("summary")),
        dialect="munin" if munin else "linnet" if _object(found.get("provenance")) else "kaun-board",
    )


def _munin_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Munin's provenance, with host and commit under the names that ours has for them too."""
    host, sha = _text(origin.get("hostname")), _text(origin.get("git_commit"))
    commit = {"git": {"sha": sha, "branch": "", "dirty": bool(origin.get("git_dirty"))}} if sha else {}
    return {**origin, **({"host": host} if host else {}), **commit}


def take_munin_events(manifest: Manifest, events: Path) -> None:
    """Add the tags and the summary that a munin run was given while it ran: they stand in its stream."""
    reader = LineReader(events)
    while block := reader.read_block():
        if b'"tags"' not in block and b'"summary"' not in block:
            continue
        for line in block.split(b"\n"):
            event = decode(line) if b'"tags"' in line or b'"summary"' in line else None
            values = event.data.get("values") if event is not None else None
            if event is not None and event.kind == "tags" and isinstance(values, list):
                new = [tag for tag in values if isinstance(tag, str) and tag not in manifest.tags]
                manifest.tags = [*manifest.tags, *new]
            elif event is not None and event.kind == "summary":
                manifest.summary = {**manifest.summary, **_object(values)}
    reader.close()


def from_run_start(start: dict[str, Any], folder: Path) -> Manifest:
    """The manifest a Toy run never had, from its first event."""
    host = _object(start.get("host"))
    config = _object(start.get("config"))
    return Manifest(
        run_id=_text(start.get("run_id")) or folder.name,
        created_at=unix_seconds(start.get("started_at")) or _birth(folder),
        name=_text(start.get("name")),
        total_steps=_integer(config.get("steps")),
        model=_object(start.get("model")),
        config=config,
        provenance={"host": host.get("name", ""), "os": host.get("os", ""), "git": _object(start.get("git"))},
        dialect="toy",
    )


def _birth(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and abs(value) < 2**63 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
