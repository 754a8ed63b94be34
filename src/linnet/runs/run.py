"""`Run`: one run folder, for reading."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from linnet.errors import LinnetError
from linnet.runs import ids, provenance
from linnet.runs.folder import EVENTS, MANIFEST, WEIGHTS
from linnet.runs.glance import Glance, load_manifest, look, origin_of
from linnet.runs.manifest import Manifest
from linnet.runs.metrics import Metrics
from linnet.runs.place import is_folder
from linnet.runs.stream import EventStream

_STEP = re.compile(r"step_([0-9]{1,19})\.gguf")


class RunError(LinnetError):
    """A run that is not there, is not one, or cannot be told from another."""


class Run:
    """A run folder, made by Linnet, Toy, kaun-board or munin."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(
        cls,
        runs_root: str | os.PathLike[str] | None = None,
        *,
        template: str = ids.TEMPLATE,
        arch: str = "run",
        **fields: Any,
    ) -> Run:
        """Claim a new folder and write its manifest; `fields` are the manifest's. Raises when it cannot be made."""
        root = ids.runs_root(runs_root)
        labels = {"arch": arch, **{k: str(fields.get(k) or "") for k in ("recipe", "experiment")}}
        try:
            folder = ids.claim(root, template, labels)
            manifest = Manifest(run_id=folder.name, created_at=time.time(), provenance=provenance.gather(), **fields)
            manifest.write(folder)
        except OSError as error:
            raise RunError(f"cannot make a run in {root}: {error.strerror or error}") from error
        return cls(folder, manifest)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Open a run folder."""
        folder = Path(path)
        manifest = load_manifest(folder) if is_folder(folder) else None
        if manifest is None:
            what = f"a folder without {MANIFEST} or {EVENTS}" if is_folder(folder) else "no such folder"
            raise RunError(f"{folder} is not a run: {what}")
        return cls(folder, manifest)

    @classmethod
    def latest(cls, runs_root: str | os.PathLike[str] | None = None) -> Run | None:
        """The newest run of a root; None when it has none."""
        from linnet.runs.store import RunStore

        return RunStore(runs_root).latest()

    @property
    def id(self) -> str:
        """The run's id."""
        return self.manifest.run_id

    @property
    def events_path(self) -> Path:
        """The event stream."""
        return self.path / EVENTS

    def glance(self) -> Glance:
        """How the run stands now: status, last step, last loss."""
        found = look(self.path)
        if found is None:
            raise RunError(f"{self.path} is gone")
        return found

    @property
    def status(self) -> str:
        """`live`, `completed`, `interrupted`, `aborted`, `errored`, `crashed` or `stalled`."""
        return self.glance().status

    def events(self) -> EventStream:
        """The events, from the beginning, and on as they come."""
        return EventStream(self.events_path, origin=self.origin)

    def metrics(self, *, superseded: bool = False, cached: bool = True) -> Metrics:
        """All metrics; with `superseded` also the steps that a resumed run trained again."""
        goals = self.manifest.goals
        return Metrics(self.events_path, goals=goals, origin=self.origin, superseded=superseded, cached=cached)

    def checkpoints(self) -> list[Path]:
        """The checkpoints there are, by step."""
        found = {file: _STEP.fullmatch(file.name) for file in (self.path / WEIGHTS).glob("step_*.gguf")}
        steps = {file: int(step[1]) for file, step in found.items() if step}
        return sorted(steps, key=lambda file: steps[file])

    @property
    def origin(self) -> float:
        """The Unix time at which a kaun-board or munin run began, to tell seconds from; 0 for ours and Toy's."""
        return origin_of(self.manifest)
