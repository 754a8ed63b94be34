"""`Trash`: what was deleted from a folder of runs, kept for a day in its `.trash`, so that it can be taken back.

    .trash/20261116T101500-3fa9/entry.json     when, of which run, and where everything lay
    .trash/20261116T101500-3fa9/0, 1, …        the folder, or the files, as they were

Everything goes there and back by renaming: that takes no time and no room, and is whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from linnet.files import sync_folder, write_file
from linnet.runs.run import RunError

TRASH = ".trash"
KEPT_SECONDS = 24 * 3600.0
_ENTRY = "entry.json"
_LARGEST = 1 << 24


class Deletion(msgspec.Struct, kw_only=True):
    """Something that was deleted.

    - `run_id`: of which run; `paths`: where it lay, seen from the folder of runs.
    - `deleted_at`: Unix time; `bytes`: how much it is.
    """

    run_id: str
    paths: list[str]
    deleted_at: float
    bytes: int = 0
    folder: str = ""  # its own in the trash


class Trash:
    """The trash of a folder of runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / TRASH

    def take(self, paths: Sequence[Path], run_id: str, size: int, at: float | None = None) -> Deletion:
        """Move these files or folders, which lie below the root, into the trash; all of them or none.

        `at`: the Unix time; what is deleted together has the same.
        """
        relative = [os.path.relpath(path, self.root) for path in paths]
        if any(Path(name).parts[:1] in ((), (os.pardir,)) for name in relative):
            raise RunError(f"{paths[0]} is not below {self.root}, whose trash it would go to")
        deletion = Deletion(run_id=run_id, paths=relative, deleted_at=time.time() if at is None else at, bytes=size)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.localtime(deletion.deleted_at))
        deletion.folder = f"{stamp}-{os.urandom(2).hex()}"
        entry = self.folder / deletion.folder
        moved: list[tuple[Path, Path]] = []
        try:
            self._make_folder()
            entry.mkdir()
            write_file(entry / _ENTRY, msgspec.json.format(msgspec.json.encode(deletion), indent=2) + b"\n")
            for number, path in enumerate(paths):
                path.rename(entry / str(number))
                moved.append((path, entry / str(number)))
            for parent in {path.parent for path in paths}:
                sync_folder(parent)
        except OSError as error:
            for path, kept in moved:
                kept.rename(path)
            shutil.rmtree(entry, ignore_errors=True)
            reason = error.strerror or error
            raise RunError(
                f"{paths[len(moved) % len(paths)]} cannot go to {self.folder}: {reason}; see `for_good`"
            ) from error
        return deletion

    def _make_folder(self) -> None:
        if self.folder.is_symlink():
            raise OSError(f"{self.folder} is a link to elsewhere")
        self.folder.mkdir(exist_ok=True)

    def deletions(self) -> list[Deletion]:
        """What is there, the oldest first; damaged entries are passed over."""
        known = []
        if not self.folder.is_symlink() and self.folder.is_dir():
            for entry in sorted(self.folder.iterdir()):
                try:
                    if entry.is_symlink() or (entry / _ENTRY).stat().st_size > _LARGEST:
                        continue
                    deletion = msgspec.json.decode((entry / _ENTRY).read_bytes(), type=Deletion)
                except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                    continue
                deletion.folder = entry.name
                known.append(deletion)
        return sorted(known, key=lambda deletion: deletion.deleted_at)

    def last(self) -> list[Deletion]:
        """What was deleted last, together."""
        deletions = self.deletions()
        return [deletion for deletion in deletions if deletion.deleted_at == deletions[-1].deleted_at]

    def restore(self, deletion: Deletion) -> list[Path]:
        """Put everything back where it lay. RunError where something else lies there now."""
        entry, back = self.folder / deletion.folder, []
        for number, name in enumerate(deletion.paths):
            kept, path = entry / str(number), self.root / name
            if not _is_there(kept):  # deleting was cut short: it never left its place
                continue
            if Path(name).is_absolute() or os.pardir in Path(name).parts:
                raise RunError(f"{entry / _ENTRY} names a path that leads out of {self.root}: {name}")
            if _is_there(path):
                raise RunError(f"{path} is there again; move it away to restore what was deleted")
            back.append((kept, path))
        try:
            for kept, path in back:
                path.parent.mkdir(parents=True, exist_ok=True)
                kept.rename(path)
        except OSError as error:
            raise RunError(f"{path} was not restored: {error.strerror or error}") from error
        shutil.rmtree(entry, ignore_errors=True)
        return [path for _, path in back]

    def empty(self, older: float = KEPT_SECONDS) -> list[Deletion]:
        """Remove for good what was deleted more than so many seconds ago; what that was."""
        now = time.time()
        expired = [deletion for deletion in self.deletions() if now - deletion.deleted_at >= older]
        for deletion in expired:
            shutil.rmtree(self.folder / deletion.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.rmdir()  # an empty one
        return expired


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()
