"""`RunStore`: the runs of a root folder: list, find, filter, delete."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from linnet.errors import UsageError
from linnet.runs import ids
from linnet.runs.folder import EVENTS, MANIFEST
from linnet.runs.glance import STATUSES, Glance, look
from linnet.runs.run import Run, RunError


class RunStore:
    """The runs below `root` (None: `$LINNET_RUNS`, else `./runs`), and munin's in their deeper folders."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = ids.runs_root(root)

    def folders(self) -> Iterator[Path]:
        """Every folder that looks like a run."""
        if _is_run(self.root):
            yield self.root
            return
        yield from filter(_is_run, _folders_in(self.root))
        for experiment in _folders_in(self.root / "experiments"):
            yield from filter(_is_run, _folders_in(experiment / "runs"))

    def list(
        self,
        *,
        experiment: str | None = None,
        tag: str | None = None,
        status: str | None = None,
        recipe: str | None = None,
    ) -> list[Glance]:
        """Every run with its standing, oldest first, as far as it fits the filters."""
        if status is not None and status not in STATUSES:
            raise UsageError(f"status {status!r} does not exist; choose from {', '.join(STATUSES)}")
        found = [glance for folder in self.folders() if (glance := look(folder)) is not None]
        found = [
            glance
            for glance in found
            if (experiment is None or glance.manifest.experiment == experiment)
            and (tag is None or tag in glance.manifest.tags)
            and (status is None or glance.status == status)
            and (recipe is None or glance.manifest.recipe == recipe)
        ]
        return sorted(found, key=lambda glance: (glance.manifest.created_at, glance.run_id))

    def latest(self) -> Run | None:
        """The run that was made last."""
        made = {folder: _made_at(folder) for folder in self.folders()}
        for folder in sorted(made, key=lambda f: (made[f], f.name), reverse=True):
            try:
                return Run.load(folder)
            except RunError:
                continue
        return None

    def find(self, reference: str) -> Run:
        """A run by `latest`, path, id, or the unique beginning of an id."""
        if reference == "latest":
            run = self.latest()
            if run is None:
                raise RunError(f"there are no runs in the folder {self.root}; name another folder with --runs")
            return run
        path = Path(reference)
        if (os.sep in reference or reference.startswith(".")) and path.is_dir():
            return Run.load(path)
        by_name = {folder.name: folder for folder in self.folders()}
        if reference in by_name:
            return Run.load(by_name[reference])
        matches = sorted(name for name in by_name if name.startswith(reference))
        if len(matches) == 1:
            return Run.load(by_name[matches[0]])
        if matches:
            shown = ", ".join(matches[:5]) + (" …" if len(matches) > 5 else "")
            raise RunError(f"{reference!r} could be any of {len(matches)} runs: {shown}")
        if _is_run(path):
            return Run.load(path)
        close = difflib.get_close_matches(reference, by_name, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else f" ({len(by_name)} runs there)" if by_name else ""
        raise RunError(f"no run {reference!r} in the folder {self.root}{hint}")

    def delete(self, reference: str, *, force: bool = False) -> Path:
        """Delete a run's folder; one that is being written only with `force`. Returns where it was."""
        run = self.find(reference)
        if not force and run.status == "live":
            raise RunError(f"run {run.id} is being written; stop it first, or delete it with --force")
        try:
            shutil.rmtree(run.path)
        except OSError as error:
            raise RunError(f"{run.path} was not deleted: {error.strerror or error} ({error.filename})") from error
        return run.path


def _is_run(folder: Path) -> bool:
    return (folder / EVENTS).is_file() or (folder / MANIFEST).is_file()


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in entries if not e.name.startswith(".") and e.is_dir()]
    except OSError:
        return []


def _made_at(folder: Path) -> float:
    """A cheap guess of when a run began; only the newest is then opened."""
    from linnet.runs.glance import load_manifest

    manifest = load_manifest(folder)
    return manifest.created_at if manifest else 0.0
