"""`RunStore`: the runs of a root folder: list, find, filter, delete."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from pathlib import Path

from linnet.errors import UsageError
from linnet.files import is_file, is_folder, is_locked
from linnet.runs import ids
from linnet.runs.contents import contents_of, is_proven
from linnet.runs.folder import EVENTS, MANIFEST
from linnet.runs.glance import STATUSES, Glance, load_manifest, look
from linnet.runs.run import Run, RunError

_DATED = re.compile(r"[-_]?\d{4}-?\d{2}-?\d{2}")


class RunStore:
    """The runs below `root` (None: `$LINNET_RUNS`, else `./runs`), and munin's in their deeper folders."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = ids.runs_root(root)

    def folders(self) -> Iterator[Path]:
        """Every folder that looks like a run."""
        if _is_run(self.root) and is_proven(self.root):
            yield self.root
            return
        held = False
        for folder in self._folders_below():
            held = True
            yield folder
        if not held and _is_run(self.root):
            yield self.root

    def _folders_below(self) -> Iterator[Path]:
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
        """A run by `latest`, path, id, its own name, or the unique beginning of an id."""
        if reference == "latest":
            run = self.latest()
            if run is None:
                raise RunError(f"there are no runs in the folder {self.root}; name another folder with `runs`")
            return run
        if not reference.strip():
            raise RunError("the name of the run is empty; `linnet runs` lists them")
        path = Path(reference)
        if (os.sep in reference or reference.startswith(".")) and is_folder(path):
            return Run.load(path)
        folders = sorted(self.folders())
        found = [folder for folder in folders if folder.name == reference]
        manifests = {} if found else {folder: load_manifest(folder) for folder in folders}
        ids_of = {folder: manifest.run_id if manifest else folder.name for folder, manifest in manifests.items()}
        found = found or [folder for folder in folders if ids_of[folder] == reference]
        found = found or [folder for folder, manifest in manifests.items() if manifest and manifest.name == reference]
        found = found or [f for f in folders if f.name.startswith(reference) or ids_of[f].startswith(reference)]
        if found:
            return Run.load(_only(found, reference))
        for place in (path, self.root / path):
            if _is_run(place):
                return Run.load(place)
        known = [name for folder in folders for name in {folder.name, ids_of[folder]}]
        known += [manifest.name for manifest in manifests.values() if manifest and manifest.name]
        hint = _hint(reference, known, len(folders))
        raise RunError(f"no run {reference!r} in the folder {self.root}{hint}")

    def delete(self, reference: str | Run, *, force: bool = False) -> Path:
        """Delete a run's folder. Returns where it was. Of a run that is a link, the link goes and its target stays.

        Refused: a folder that nothing proves to be a run, or that holds other runs. `force` deletes a run that is
        being written, and one with files that no run writes; without it the error names them.
        """
        run = reference if isinstance(reference, Run) else self.find(reference)
        refusal = self.refusal(run, force=force)
        if refusal is not None:
            raise RunError(refusal)
        try:
            if run.path.is_symlink():
                run.path.unlink()
            else:
                shutil.rmtree(run.path.parent.resolve() / run.path.name)
        except OSError as error:
            raise RunError(f"{run.path} was not deleted: {error.strerror or error} ({error.filename})") from error
        return run.path

    def refusal(self, run: Run, *, force: bool = False) -> str | None:
        """Why `delete` would not delete this run; None when it would."""
        named = list(dropwhile(lambda part: part == "..", run.path.parts))
        if ".." in named or (run.path.parts and not named):
            return f"{run.path} was not deleted: its path goes back by '..'; name the run by its id or a plain path"
        if run.path.is_symlink():
            return None
        if not is_proven(run.path):
            return (
                f"{run.path} was not deleted: nothing in it proves that it is a run ({MANIFEST} has no run_id, "
                f"schema_version and created_at, {EVENTS} no run_start); if it is one, remove it yourself"
            )
        contents = contents_of(run.path)
        if contents.runs:
            few = _few(contents.runs)
            return f"{run.path} was not deleted: it holds other runs: {few}; delete those first, by their paths"
        if contents.foreign and not force:
            few = _few(contents.foreign)
            return f"{run.path} was not deleted: no run writes {few}; move that away, or delete all of it with `force`"
        if not force and (run.status == "live" or is_locked(run.events_path)):
            return f"run {run.id} is being written; stop it first, or delete it with `force`"
        return None


def _few(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


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
    return is_file(f"{folder}/{EVENTS}") or is_file(f"{folder}/{MANIFEST}")  # joining paths takes longer than asking


def _hint(reference: str, names: Iterable[str], count: int) -> str:
    """What may have been meant: a name like it, or one like it before its date; else how many runs there are."""
    known: dict[str, str] = {}
    for name in sorted(names):  # of runs that differ only in date and number, the newest
        known[_DATED.split(name, maxsplit=1)[0]] = known[name] = name
    if close := difflib.get_close_matches(reference, known, n=1, cutoff=0.5):
        return f"; did you mean {known[close[0]]}?"
    return f" ({count} {'run' if count == 1 else 'runs'} there)" if count else ""


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if not entry.name.startswith(".") and _is_folder(entry)]
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _made_at(folder: Path) -> float:
    """A cheap guess of when a run began; only the newest is then opened."""
    manifest = load_manifest(folder)
    return manifest.created_at if manifest else 0.0
