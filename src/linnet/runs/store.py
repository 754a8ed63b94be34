"""`RunStore`: the runs of a root folder: list, find, filter, delete."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from linnet.errors import UsageError
from linnet.runs import ids, lock
from linnet.runs.folder import EVENTS, MANIFEST
from linnet.runs.glance import STATUSES, Glance, load_manifest, look
from linnet.runs.place import is_file, is_folder
from linnet.runs.run import Run, RunError

_DATED = re.compile(r"[-_]?\d{4}-?\d{2}-?\d{2}")


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
        if not reference.strip():
            raise RunError("the name of the run is empty; `linnet runs` lists them")
        path = Path(reference)
        if (os.sep in reference or reference.startswith(".")) and is_folder(path):
            return Run.load(path)
        folders = sorted(self.folders())
        found = [folder for folder in folders if folder.name == reference]
        ids_of = {} if found else {folder: _id_of(folder) for folder in folders}
        found = found or [folder for folder in folders if ids_of[folder] == reference]
        found = found or [f for f in folders if f.name.startswith(reference) or ids_of[f].startswith(reference)]
        if found:
            return Run.load(_only(found, reference))
        for place in (path, self.root / path):
            if _is_run(place):
                return Run.load(place)
        hint = _hint(reference, [name for folder in folders for name in {folder.name, ids_of[folder]}])
        raise RunError(f"no run {reference!r} in the folder {self.root}{hint}")

    def delete(self, reference: str | Run, *, force: bool = False) -> Path:
        """Delete a run's folder; one that is being written only with `force`. Returns where it was."""
        run = reference if isinstance(reference, Run) else self.find(reference)
        if not force and (run.status == "live" or lock.is_held(run.events_path)):
            raise RunError(f"run {run.id} is being written; stop it first, or delete it with --force")
        try:
            shutil.rmtree(run.path.resolve())
        except OSError as error:
            raise RunError(f"{run.path} was not deleted: {error.strerror or error} ({error.filename})") from error
        return run.path


def _only(found: list[Path], reference: str) -> Path:
    """The one run that was found; an error that names them when there are more."""
    if len(found) == 1:
        return found[0]
    names = [folder.name for folder in found]
    if len(set(names)) < len(names):  # munin's experiments may hold runs of the same name
        names = [str(folder) for folder in found]
    shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    raise RunError(f"{reference!r} could be any of {len(names)} runs: {shown}")


def _is_run(folder: Path) -> bool:
    return is_file(folder / EVENTS) or is_file(folder / MANIFEST)


def _id_of(folder: Path) -> str:
    manifest = load_manifest(folder)
    return manifest.run_id if manifest else folder.name


def _hint(reference: str, names: Iterable[str]) -> str:
    """What may have been meant: an id like it, or one that is like it before its date; else how many there are."""
    known: dict[str, str] = {}
    for name in sorted(names):  # of runs that differ only in date and number, the newest
        known[_DATED.split(name, maxsplit=1)[0]] = known[name] = name
    if close := difflib.get_close_matches(reference, known, n=1, cutoff=0.5):
        return f"; did you mean {known[close[0]]}?"
    count = len(set(known.values()))
    return f" ({count} {'run' if count == 1 else 'runs'} there)" if count else ""


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in entries if not e.name.startswith(".") and is_folder(Path(e.path))]
    except OSError:
        return []


def _made_at(folder: Path) -> float:
    """A cheap guess of when a run began; only the newest is then opened."""
    manifest = load_manifest(folder)
    return manifest.created_at if manifest else 0.0
