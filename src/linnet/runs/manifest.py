"""`run.json`: what a run is. Written first and atomically; replaced only atomically; read in four dialects."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from pathlib import Path
from typing import Any, SupportsIndex, overload

import msgspec

from linnet import files
from linnet.runs import provenance
from linnet.runs.encode import drop_none, encode_pretty, safe_text
from linnet.runs.events import decode, iso_now, restore_nonfinite, unix_seconds
from linnet.runs.folder import MANIFEST
from linnet.runs.lines import BOM, LineReader

_LARGEST = 64 << 20
_ALWAYS = ("schema_version", "run_id", "created_at", "tags")
_NO_FLAGS: tuple[str, dict[str, Any]] = ("flags", {})  # asked for without any, which is not the same as not known


class Manifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fields of `run.json`. `dialect` tells who wrote it and is not itself written.

    - `summary`: figures that its user declared to be the run's (`run.summary`).
    - `compare_to`: the id of its baseline.
    - `plan`: what it was expected to take. `parent_step`: the step of its parent at which it began.
    - `flags`: what a training was asked for with, by name; None where nobody wrote it down.
    - `archived`: lists leave it out.
    """

    run_id: str
    schema_version: int = 1
    created_at: float = 0.0
    name: str | None = None
    experiment: str | None = None
    group: str | None = None
    parent: str | None = None
    parent_step: int | None = None
    recipe: str | None = None
    compare_to: str | None = None
    tags: list[str] = []
    archived: bool = False
    total_steps: int | None = None
    total_epochs: int | None = None
    goals: dict[str, str] = {}
    model: dict[str, Any] = {}
    config: dict[str, Any] = {}
    provenance: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    plan: dict[str, Any] = {}
    flags: dict[str, Any] | None = None
    dialect: str = "linnet"

    def mask(self, exact: Collection[str] = ()) -> None:
        """Mask secrets in config, flags and labels; config fields in `exact` are read back and stay as they are."""
        self.config = provenance.mask_config(self.config, exact)
        self.flags = None if self.flags is None else provenance.mask_config(self.flags)
        self.tags = provenance.mask_labels(self.tags)
        for name in ("name", "experiment", "group"):
            if (label := getattr(self, name)) is not None:
                setattr(self, name, provenance.mask_labels([label])[0])

    def write(self, folder: Path) -> None:
        """Put the manifest in its place in one step: a reader sees the old one or the new one, whole."""
        fields = msgspec.structs.asdict(self)
        kept = {
            k: v
            for k, v in fields.items()
            if k in _ALWAYS or (k != "dialect" and v is not False and (v not in (None, [], {}) or (k, v) == _NO_FLAGS))
        }
        files.write_file(folder / MANIFEST, encode_pretty(kept), mode=0o644)

    @property
    def origin(self) -> float:
        """The Unix time at which a kaun-board or munin run began, to tell seconds from; 0 for ours and Toy's."""
        return 0.0 if self.dialect in ("linnet", "toy") else self.created_at

    def run_start(self, *, phase: str = "train", device: str | None = None, **extra: Any) -> dict[str, Any]:
        """The first event of a stream, in Toy's order; `extra`: fields the schema leaves open, None for absent."""
        fields = {
            "kind": "run_start",
            "schema": "toy/v1",
            "t": 0.0,
            "started_at": iso_now(),
            "run_id": self.run_id,
            "phase": phase,
            "host": provenance.host(),
            "backend": {"kind": device or provenance.backend()},
            "git": self.provenance.get("git") or None,
            "model": self.model,
            "config": self.config,
        }
        return drop_none(fields | extra)


class LiveFields(MutableMapping[str, Any]):
    """`run.config` or `run.summary`: changes reach `run.json`, atomically and at most once a second; none raises.

    run.summary["best_accuracy"] = 0.97
    run.config.update(vars(args))

    `put` takes the whole new content and may refuse it by raising.
    """

    def __init__(self, get: Callable[[], Mapping[str, Any]], put: Callable[[dict[str, Any]], None]) -> None:
        self._get, self._put = get, put

    def __getitem__(self, name: str) -> Any:
        return self._get()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._get()))

    def __len__(self) -> int:
        return len(self._get())

    def __setitem__(self, name: str, value: Any) -> None:
        self._put({**self._get(), str(name): value})

    def __delitem__(self, name: str) -> None:
        self._put({key: value for key, value in self._get().items() if key != name})

    def update(self, given: object = None, /, **values: Any) -> None:
        """Set several at once: from a mapping, a dataclass, argparse's result, or as keyword arguments.

        W&B's `allow_val_change` is understood and not needed.
        """
        values.pop("allow_val_change", None)
        self._put({**self._get(), **fields_of(given), **values})

    def __repr__(self) -> str:
        return repr(dict(self._get()))


class LiveTags(MutableSequence[str]):
    """`run.tags`: a list whose changes reach `run.json`: `run.tags += ["good"]`, `run.tags.append("seed 3")`.

    `put` takes the whole new list and keeps each tag once.
    """

    def __init__(self, get: Callable[[], list[str]], put: Callable[[list[str]], None]) -> None:
        self._get, self._put = get, put

    @overload
    def __getitem__(self, at: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> str | list[str]:
        return self._get()[at]

    @overload
    def __setitem__(self, at: SupportsIndex, value: str) -> None: ...
    @overload
    def __setitem__(self, at: slice, value: Iterable[str]) -> None: ...
    def __setitem__(self, at: Any, value: Any) -> None:
        tags = list(self._get())
        tags[at] = value
        self._put(tags)

    def __delitem__(self, at: SupportsIndex | slice) -> None:
        tags = list(self._get())
        del tags[at]
        self._put(tags)

    def __len__(self) -> int:
        return len(self._get())

    def __eq__(self, other: object) -> bool:
        return self._get() == (list(other) if isinstance(other, LiveTags | tuple) else other)

    def insert(self, at: SupportsIndex, value: str) -> None:
        """Add a tag at a place."""
        tags = list(self._get())
        tags.insert(at, value)
        self._put(tags)

    def __repr__(self) -> str:
        return repr(self._get())


def clean_tags(tags: str | Iterable[object]) -> list[str]:
    """Tags as they are kept: each once, without blanks around it, masked where it looks like a secret."""
    texts = [tags] if isinstance(tags, str) else [safe_text(tag) for tag in tags if tag is not None]
    return list(dict.fromkeys(provenance.mask_labels([text.strip() for text in texts if text.strip()])))


def fields_of(given: object) -> dict[str, Any]:
    """Settings in whatever form a program has them: a mapping, a dataclass, the result of argparse."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if dataclasses.is_dataclass(given):
        return {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    try:
        return dict(vars(given))
    except TypeError:
        import logging  # who only reads runs does without

        message = "a config of type %s is not understood and left out"
        logging.getLogger("linnet").warning(message, type(given).__name__)
        return {}


# -- reading -------------------------------------------------------------------------------------------------------


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder; None when there is none or it cannot be made out."""
    fields = read_json(folder)
    return None if fields is None else from_json(fields, folder.name)


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
        fields = msgspec.json.decode(content.removeprefix(BOM))
    except (OSError, ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def from_json(fields: dict[str, Any], folder_name: str) -> Manifest:
    """Read Linnet's, kaun-board's and munin's manifests; a field of the wrong type counts as absent."""
    restore_nonfinite(fields)
    munin = "id" in fields and "run_id" not in fields
    if munin:
        fields = _from_munin(fields)
    known = {name: read_field(fields[name]) for name, read_field in _FIELDS.items() if name in fields}
    return Manifest(
        run_id=_text(fields.get("run_id")) or folder_name,
        schema_version=_integer(fields.get("schema_version")) or 1,
        created_at=_number(fields.get("created_at")) or 0.0,
        dialect="munin" if munin else "linnet" if known.get("provenance") else "kaun-board",
        **known,
    )


def _from_munin(fields: dict[str, Any]) -> dict[str, Any]:
    """Munin's manifest under our names; of its provenance host and commit."""
    params, origin = _object(fields.get("params")), _object(fields.get("provenance"))
    host, sha = _text(origin.get("hostname")), _text(origin.get("git_commit"))
    commit = {"git": {"sha": sha, "branch": "", "dirty": bool(origin.get("git_dirty"))}} if sha else {}
    return {
        **fields,
        "run_id": fields["id"],
        "created_at": fields.get("started_at"),
        "parent": fields.get("parent_id"),
        "total_epochs": params.get("epochs"),
        "config": params,
        "provenance": {**origin, **({"host": host} if host else {}), **commit},
    }


def from_run_start(start: dict[str, Any], folder: Path) -> Manifest:
    """The manifest a Toy run never had, from its first event."""
    host = _object(start.get("host"))
    config = _object(start.get("config"))
    return Manifest(
        run_id=_text(start.get("run_id")) or folder.name,
        created_at=unix_seconds(start.get("started_at")) or _modified(folder),
        name=_text(start.get("name")),
        compare_to=_text(start.get("compare_to")),
        total_steps=_count(config.get("steps")),
        model=_object(start.get("model")),
        config=config,
        provenance={"host": host.get("name", ""), "os": host.get("os", ""), "git": _object(start.get("git"))},
        dialect="toy",
    )


def take_munin_events(manifest: Manifest, events: Path) -> None:
    """Add the tags and the summary that a munin run was given while it ran: they stand in its stream."""
    reader = LineReader(events)
    while block := reader.read_block():
        if b'"tags"' not in block and b'"summary"' not in block:
            continue
        for line in block.split(b"\n"):
            event = decode(line) if b'"tags"' in line or b'"summary"' in line else None
            values = event.data.get("values") if event is not None else None
            if event is not None and event.kind == "tags":
                manifest.tags = [*manifest.tags, *(tag for tag in _texts(values) if tag not in manifest.tags)]
            elif event is not None and event.kind == "summary":
                manifest.summary = {**manifest.summary, **_object(values)}
    reader.close()


def _modified(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and abs(value) < 2**63 else None


def _count(value: object) -> int | None:
    """A whole number from 1: other tools spell a run without an end as -1."""
    count = _integer(value)
    return count if count is not None and count > 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _goals(value: object) -> dict[str, str]:
    return {name: goal for name, goal in _object(value).items() if goal in ("min", "max")}


_FIELDS: dict[str, Callable[[object], Any]] = {
    **dict.fromkeys(("name", "experiment", "group", "parent", "recipe", "compare_to"), _text),
    **dict.fromkeys(("total_steps", "total_epochs"), _count),
    "parent_step": _integer,
    **dict.fromkeys(("model", "config", "provenance", "summary", "plan"), _object),
    "flags": lambda value: value if isinstance(value, dict) else None,
    "tags": _texts,
    "archived": lambda value: value is True,
    "goals": _goals,
}
