"""`OwnedFolder`: a run folder that this process writes: claimed or reopened, described, and followed when it moves."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from linnet.errors import LinnetError
from linnet.files import StagedFile, is_file, open_regular, sync_folder
from linnet.runs import provenance
from linnet.runs.folder import ARTIFACTS, EVENTS, MANIFEST, claim_or_name, safe_name
from linnet.runs.manifest import Manifest
from linnet.runs.manifest import read as read_manifest
from linnet.runs.point_keeper import PointKeeper
from linnet.runs.sink import Sink
from linnet.runs.summary import last_event, last_seconds, load_manifest

log = logging.getLogger("linnet")


class OwnedFolder:
    """A run folder with its manifest and the one writer of its stream; made by `claim` or `reopen`.

    - `exact`: config fields that are never masked as secrets.
    - `has_events`: the stream had events before this process came to it.
    - `manifest_due`: `run.json` could not be written yet.
    """

    sink: Sink
    points: PointKeeper  # of the stream, collected while it is written

    def __init__(self, path: Path, manifest: Manifest, exact: Collection[str]) -> None:
        self.path = path
        self.run_id = path.name
        self.manifest = manifest
        self.exact = exact
        self.has_events = False
        self.manifest_due = False
        self._written_labels: dict[str, Any] | None = None

    @classmethod
    def claim(
        cls,
        root: Path,
        run_id: str | None,
        template: str,
        labels: Mapping[str, str],
        fields: Mapping[str, Any],
        exact: Collection[str],
    ) -> OwnedFolder:
        """A new folder; its manifest, which has `fields`, is written first. Where nothing can be, it is tried later."""
        path = claim_or_name(root, run_id, template, labels)
        if run_id is not None and not safe_name(run_id):
            log.warning(
                "run id %s has no letter that a folder's name may have (a-z, 0-9); this run is %s", run_id, path.name
            )
        elif run_id is not None and path.name != safe_name(run_id):
            log.warning("run id %s is taken in %s; this run is %s", run_id, root, path.name)
        manifest = Manifest(run_id=path.name, created_at=time.time(), **fields)
        manifest.mask(exact)
        manifest.provenance = provenance.gather()
        folder = cls(path, manifest, exact)
        folder.write_manifest()
        with suppress(OSError):  # the sink meets the same disk and warns
            sync_folder(path.parent)
        folder._open_stream()
        return folder

    @classmethod
    def reopen(
        cls, root: Path, run_id: str, fields: dict[str, Any], exact: Collection[str], strict: bool
    ) -> OwnedFolder | None:
        """Go on in a folder that is there. None, with a word why: there is none, or it is not ours to write.

        With `strict` the latter is a LinnetError; else `fields` are given the run as `parent`.
        """
        path = root / run_id
        manifest = load_manifest(path) if path.parent == root else None
        if manifest is None:
            log.warning("there is no run %s in %s to resume; this is a new one", run_id, root)
            return None
        folder = cls(path, manifest, exact)
        if problem := folder._refusal():
            if strict:
                raise LinnetError(f"run {run_id} cannot be resumed: {path} {problem}")
            log.warning("%s: %s; this run goes on beside it", path, problem)
            fields["parent"] = run_id
            return None
        folder.has_events = last_event(path / EVENTS) is not None
        if not folder.has_events:
            # Made by `Run.create`, or killed before its first event: it is still to be said what the run is.
            for name, value in fields.items():
                if value:
                    setattr(manifest, name, value)
            manifest.mask(exact)
        manifest.provenance = provenance.gather()
        folder.write_manifest()
        return folder

    @property
    def commit(self) -> Mapping[str, object]:
        """What is known of the commit this run is of; empty when there is none."""
        commit = self.manifest.provenance.get("git")
        return commit if isinstance(commit, dict) else {}

    def last_logged(self) -> dict[str, Any]:
        """The step that the stream stands at."""
        logged = ("step", "scalars", "resume")
        event = last_event(self.path / EVENTS, lambda event: event.step is not None and event.kind in logged)
        return {} if event is None else {"step": event.step}

    def write_manifest(self) -> None:
        """Write `run.json`, or note that it is still to be written."""
        try:
            self._adopt_labels()
            self.manifest.write(self.path)
            self._written_labels = _labels_of(self.manifest)
            self.manifest_due = False
        except Exception as error:  # the sink meets the same disk and warns; this is tried again with it
            self.manifest_due = True
            log.debug("run.json was not written: %s", error)

    def end(self) -> None:
        """What is left to do when the last event is written. Never raises."""
        if self.manifest_due:
            self.write_manifest()
        self.points.save()

    def _adopt_labels(self) -> None:
        """Take up what somebody else has changed in `run.json` since this process wrote it last."""
        if self._written_labels is not None and (manifest := read_manifest(self.path)) is not None:
            for name, value in _labels_of(manifest).items():
                if value != self._written_labels[name]:
                    setattr(self.manifest, name, value)

    def subfolder(self, name: str) -> Path:
        """A folder of the run's, made when it is missing."""
        folder = self.path / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.warning("cannot make %s (%s)", folder, error.strerror or error)
        return folder

    def file_fields(self, file: Path) -> dict[str, Any]:
        """A file as events tell of it: its path, from the run folder where it lies in there, and its size."""
        try:
            path = file.resolve().relative_to(self.path.resolve()).as_posix()
        except ValueError:
            path = str(file)
        try:
            size = file.stat().st_size
        except OSError:
            size = None
        return {"path": path, "bytes": size}

    def keep_artifact(self, source: Path, name: str | None = None) -> dict[str, Any]:
        """Copy a file of the user's into `artifacts/`; what its event says. OSError when it cannot be kept."""
        artifacts = self.subfolder(ARTIFACTS)
        target = artifacts / (name or source.name)
        if not target.resolve().is_relative_to(artifacts.resolve()):
            raise OSError(f"{name!r} leads out of the run's artifacts folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.resolve() != target.resolve():
            _copy_whole(source, target)
        with target.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return {"name": name or source.name, **self.file_fields(target), "sha256": digest}

    def _open_stream(self, start_t: float = 0.0) -> None:
        self.sink = Sink(self.path / EVENTS, start_t=start_t, remade=self._move_to)
        self.points = PointKeeper(self.path / EVENTS)

    def _refusal(self) -> str:
        """Why the stream of a folder that is there cannot be written; empty when it can, and it is open then."""
        if self.manifest.dialect != "linnet":
            broken = self.manifest.dialect == "toy" and is_file(self.path / MANIFEST)
            return f"{MANIFEST} cannot be read" if broken else f"was written by {self.manifest.dialect}"
        self._open_stream(last_seconds(self.path / EVENTS))
        if self.sink.locked is False:
            self.sink.close()
            return "is being written by another process"
        return ""

    def _move_to(self, path: Path) -> None:
        """The folder was made again, perhaps under another name."""
        self.path = path
        self.points = PointKeeper(path / EVENTS)
        if path.name != self.run_id:
            self.run_id = self.manifest.run_id = path.name
        self.write_manifest()


def _copy_whole(source: Path, target: Path) -> None:
    """Copy a file: whoever looks at `target` sees what was there before, or all of it."""
    with os.fdopen(open_regular(source), "rb") as stream, StagedFile(target) as out:
        while piece := stream.read(1 << 20):
            out.write(piece)


def _labels_of(manifest: Manifest) -> dict[str, Any]:
    """What `labels.py` changes."""
    return {"name": manifest.name, "tags": list(manifest.tags), "archived": manifest.archived}
