"""`SafeStore`: the runs of a root that really lie in it. A link that leads out of the root is no run of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from linnet.board.web.answers import RequestError
from linnet.files import open_regular
from linnet.runs import RunStore
from linnet.runs.folder import EVENTS, MANIFEST


class SafeStore(RunStore):
    """A store for readers on the other side of a socket.

    `named`: folders that its owner named, wherever they lie.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, named: tuple[Path, ...] = ()) -> None:
        super().__init__(root)
        self._real_root = os.path.realpath(self.root)
        self._named = {os.path.realpath(folder): folder for folder in named}

    def folders(self) -> Iterator[Path]:
        """Every run of the root that does not lead out of it, and those that were named."""
        listed = set()
        for folder in super().folders():
            if self.is_inside(folder):
                if self._named:
                    listed.add(os.path.realpath(folder))
                yield folder
        for real, folder in self._named.items():
            if real not in listed and not _leads_out(Path(real), real):
                yield folder

    def is_inside(self, folder: Path) -> bool:
        """Do a folder of the root and what is read of it lie in the root?"""
        if folder.is_symlink() and not _is_within(os.path.realpath(folder), self._real_root):
            return os.path.realpath(folder) in self._named
        return not _leads_out(folder, self._real_root)


def _leads_out(folder: Path, root: str) -> bool:
    """Is its manifest or its stream a link out of the root?"""
    paths = (f"{folder}/{name}" for name in (MANIFEST, EVENTS))
    return any(os.path.islink(path) and not _is_within(os.path.realpath(path), root) for path in paths)  # noqa: PTH114


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def open_inside(folder: Path, relative: str | Path) -> int:
    """A descriptor of a regular file of a run's folder. Refused where its path, links followed, leads out of it."""
    root = os.path.realpath(folder)
    real = os.path.realpath(folder / relative)
    if not _is_within(real, root) or real == root:
        raise RequestError(404, "there is no such file in the run's folder")
    try:
        return open_regular(real, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError):
        raise RequestError(404, "the file is not there (any more), or is no regular file") from None
