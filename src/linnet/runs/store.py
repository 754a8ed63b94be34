"""`RunStore`: the runs of a root folder: list, find, filter, delete."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import dropwhile
from pathlib import Path
from typing import Any

import msgspec

from linnet.errors import UsageError, near_words
from linnet.files import is_file, is_folder, is_locked, open_regular
from linnet.runs.events import parse
from linnet.runs.folder import EVENTS, MANIFEST, SUBFOLDERS, belongs, runs_folder
from linnet.runs.lines import BOM
from linnet.runs.manifest import read_json
from linnet.runs.processes import in_processes
from linnet.runs.run import Run, RunError
from linnet.runs.summary import STATUSES, RunSummary, load_manifest, summarize
from linnet.runs.trash import Trash

_DATED = re.compile(r"[-_]?\d{4}-?\d{2}-?\d{2}")
_FIRST_LINES = 20  # of a stream that are looked at; those of a run say at once what it is
_LONGEST_LINE = 1 << 20


class RunStore:
    """The runs below `root` (None: `$LINNET_RUNS`, else `./runs`), and munin's in their deeper folders."""

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = runs_folder(root)

    def folders(self) -> Iterator[Path]:
        """Every folder that looks like a run."""
        if _is_run(self.root) and is_proven(self.root):
            yield self.root
            return
        is_empty = True
        for folder in self._folders_below():
            is_empty = False
            yield folder
        if is_empty and _is_run(self.root):
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
        group: str | None = None,
        archived: bool = False,
    ) -> list[RunSummary]:
        """Every run with its status, last step and last loss, oldest first, as far as it fits the filters.

        `archived`: also those that were taken out of the lists.
        """
        if status is not None and status not in STATUSES:
            raise UsageError(f"status {status!r} does not exist; choose from {', '.join(STATUSES)}")
        summaries = [
            summary
            for summary in self.summarize_all(list(self.folders()))
            if (experiment is None or summary.manifest.experiment == experiment)
            and (tag is None or tag in summary.manifest.tags)
            and (status is None or summary.status == status)
            and (recipe is None or summary.manifest.recipe == recipe)
            and (group is None or summary.manifest.group == group)
            and (archived or not summary.manifest.archived)
        ]
        return sorted(summaries, key=lambda summary: (summary.manifest.created_at, summary.run_id))

    @staticmethod
    def summarize_all(folders: Sequence[Path]) -> Sequence[RunSummary]:
        """The summaries of the folders that hold a run, in their order."""
        return [summary for summary in in_processes(folders, summarize, RunSummary) if summary is not None]

    def latest(self) -> Run | None:
        """The run that was made last; an archived one only where there is no other."""
        manifests = {folder: load_manifest(folder) for folder in self.folders()}
        order = {
            folder: (not manifest.archived, manifest.created_at, folder.name) if manifest else (True, 0.0, folder.name)
            for folder, manifest in manifests.items()
        }
        for folder in sorted(order, key=order.__getitem__, reverse=True):
            try:
                return Run.load(folder)
            except RunError:
                continue
        return None

    def find(self, reference: str) -> Run:
        """A run by `latest`, path, id, its own name, or the unique beginning, end or part of an id.

        A pattern must fit one run alone.
        """
        return Run.load(_only(self._folders_of(reference), reference))

    def find_all(self, reference: str) -> Sequence[Run]:
        """The runs that a pattern (`xor-*`) fits, oldest first; of any other reference, the one run that it means."""
        folders = self._folders_of(reference)
        if not is_pattern(reference):
            return [Run.load(_only(folders, reference))]
        runs = [Run.load(folder) for folder in folders]
        return sorted(runs, key=lambda run: (run.created_at, run.id))

    def _folders_of(self, reference: str) -> Sequence[Path]:
        """The folders that a reference may mean: one, or several among which it cannot tell; an error for none."""
        if reference == "latest":
            run = self.latest()
            if run is None:
                raise RunError(f"there are no runs in the folder {self.root}; name another folder with `runs`")
            return [run.path]
        if not reference.strip():
            raise RunError("the name of the run is empty; `linnet runs` lists them")
        path = Path(reference)
        if (os.sep in reference or reference.startswith(".")) and is_folder(path):
            return [path]
        folders = sorted(self.folders())
        matches: Sequence[Path] = [folder for folder in folders if folder.name == reference]
        manifests = {} if matches else {folder: load_manifest(folder) for folder in folders}
        ids = {folder: manifest.run_id if manifest else folder.name for folder, manifest in manifests.items()}
        names = {folder: manifest.name for folder, manifest in manifests.items() if manifest and manifest.name}

        def called(fits: Callable[[str], bool]) -> Sequence[Path]:
            return [folder for folder in folders if fits(folder.name) or fits(ids[folder])]

        matches = (
            matches
            or [folder for folder in folders if ids[folder] == reference]
            or [folder for folder, name in names.items() if name == reference]
            or called(lambda name: name.startswith(reference))
            or [folder for folder in (path, self.root / path) if _is_run(folder)][:1]
        )
        if not matches and is_pattern(reference):
            named = {folder for folder, name in names.items() if fnmatchcase(name, reference)}
            fitting = {*called(lambda name: fnmatchcase(name, reference)), *named}
            matches = [folder for folder in folders if folder in fitting]
            if not matches:
                count = f"{len(folders)} {'run' if len(folders) == 1 else 'runs'} there"
                raise RunError(f"no run fits the pattern {reference!r} in the folder {self.root} ({count})")
        matches = (
            matches or called(lambda name: name.endswith(reference)) or called(lambda name: reference in name)
        )  # `015` of llama-20260531-015
        if not matches:
            known = [name for folder in folders for name in {folder.name, ids[folder]}] + list(names.values())
            hint = _hint(reference, known, len(folders))
            raise RunError(f"no run {reference!r} in the folder {self.root}{hint}")
        return matches

    def delete(
        self, reference: str | Run, *, force: bool = False, for_good: bool = False, at: float | None = None
    ) -> Path:
        """Delete a run's folder. Returns where it was. Of a run that is a link, the link goes and its target stays.

        For a day it lies in the trash (`Trash.restore`), deleted `at` that time, unless it is `for_good`.
        Refused: a folder that nothing proves to be a run, or that holds other runs. `force` deletes a run that is being
        written, and one with files that no run writes; without it the error names them.
        """
        run = reference if isinstance(reference, Run) else self.find(reference)
        refusal = self.refusal(run, force=force)
        if refusal is not None:
            raise RunError(refusal)
        if run.path.is_symlink():
            _remove(run.path)
        else:
            folder = run.path.parent.resolve() / run.path.name
            self.discard(run, [folder], contents_of(folder).bytes, for_good=for_good, at=at)
        return run.path

    def discard(
        self, run: Run, paths: Sequence[Path], size: int, *, for_good: bool = False, at: float | None = None
    ) -> None:
        """Delete a run's folder, or some files of it, `size` bytes in all: into the trash, or `for_good`."""
        if for_good:
            for path in paths:
                _remove(path)
            return
        self.trash_of(run).take(paths, run.id, size, at)

    def trash_of(self, run: Run) -> Trash:
        """Where a run goes that is deleted: to the trash of this folder; of its own, where it lies elsewhere."""
        folder, root = run.path.parent.resolve(), self.root.resolve()
        return Trash(root if folder.is_relative_to(root) else folder)

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
            shown = _few(contents.runs)
            return f"{run.path} was not deleted: it holds other runs: {shown}; delete those first, by their paths"
        if contents.foreign and not force:
            shown = _few(contents.foreign)
            return (
                f"{run.path} was not deleted: no run writes {shown}; move that away, or delete all of it with `force`"
            )
        if not force and (run.status == "live" or is_locked(run.events_path)):
            return f"run {run.id} is being written; stop it first, or delete it with `force`"
        return None


def is_pattern(reference: str) -> bool:
    """Does it have one of the wildcards of a shell?"""
    return any(letter in reference for letter in "*?[")


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise RunError(f"{path} was not deleted: {error.strerror or error} ({error.filename})") from error


def _few(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _only(matches: Sequence[Path], reference: str) -> Path:
    """The one folder there is; an error that names them when there are more."""
    if len(matches) == 1:
        return matches[0]
    names = [folder.name for folder in matches]
    if len(set(names)) < len(names):  # munin's experiments may hold runs of the same name
        names = [str(folder) for folder in matches]
    shown = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    if is_pattern(reference):
        several = "`linnet compare`, `linnet plot` and `linnet metrics` take several"
        raise RunError(f"the pattern {reference!r} fits {len(names)} runs, expected one: {shown}; {several}")
    raise RunError(f"{reference!r} could be any of {len(names)} runs: {shown}")


def _is_run(folder: Path) -> bool:
    return is_file(f"{folder}/{EVENTS}") or is_file(f"{folder}/{MANIFEST}")  # joining paths takes longer than asking


def _hint(reference: str, names: list[str], count: int) -> str:
    """What may have been meant; where nothing is near, how many runs there are."""
    known: dict[str, str] = {}
    for name in sorted(names):  # of runs that differ only in date and number, the newest
        known[_DATED.split(name, maxsplit=1)[0]] = known[name] = name
    if close := near_words(reference, known):
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


# -- is it provably a run, and what else is in it ------------------------------------------------------------------


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
    return _is_manifest(read_json(folder) or {}) or _is_first_event(_first_event(folder / EVENTS))


def contents_of(folder: Path) -> Contents:
    """Count what is in a folder, and name what does not belong to the run."""
    contents = Contents()
    for parent, subfolders, names in os.walk(folder):
        within = Path(parent).relative_to(folder)
        contents.files += len(names) + sum(Path(parent, name).is_symlink() for name in subfolders)
        contents.bytes += sum(_size(Path(parent, name)) for name in names)
        if not within.parts:
            contents.foreign = sorted(name for name in names if not belongs(name))
            contents.foreign += sorted(f"{name}/" for name in subfolders if not belongs(name))
        elif _is_run_within(Path(parent), within):
            contents.runs.append(str(within))
    contents.runs.sort()
    return contents


def _is_run_within(folder: Path, within: Path) -> bool:
    """Among the run's own files a name is no proof: an artifact may be called `run.json`."""
    return _is_run(folder) and (within.parts[0] not in SUBFOLDERS or is_proven(folder))


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


def _first_event(events: Path) -> dict[str, Any]:
    """The first event that can be read; lines before it may be damaged."""
    try:
        with os.fdopen(open_regular(events), "rb") as file:
            lines = (file.readline(_LONGEST_LINE).removeprefix(BOM) for _ in range(_FIRST_LINES))
            return next((fields for line in lines if (fields := parse(line)) is not None), {})
    except OSError:
        return {}


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
