"""`SafeStore`: the runs of a root that really lie in it. A link that leads out of the root is no run of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from linnet.board.web.answers import RequestError
from linnet.files import open_regular
from linnet.runs import RunStore
from linnet.runs.folder import EVENTS, MANIFEST

_SETTLED_NS = 2_000_000_000  # after a change; another one in the same tick of the clock would not be seen


class SafeStore(RunStore):
    """A store for readers on the other side of a socket.

    `named`: folders that its owner named, wherever they lie.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, named: tuple[Path, ...] = ()) -> None:
        super().__init__(root)
        self.root = Path(os.path.abspath(self.root))  # noqa: PTH100 - links stay as they are; changes are told by full paths
        self._real_root = os.path.realpath(self.root)
        self._named = {os.path.realpath(folder): self.as_listed(folder) for folder in named}
        self._judged: dict[str, tuple[int, bool]] = {}  # by folder, as of its time of change

    def as_listed(self, folder: Path) -> Path:
        """The path by which a run is listed here, however it was named."""
        listed = self.root / folder.name
        same = os.path.realpath(listed) == os.path.realpath(folder)
        return listed if same else Path(os.path.abspath(folder))  # noqa: PTH100

    def folders(self) -> Iterator[Path]:
        """Every run of the root that does not lead out of it, and those that were named."""
        listed = set()
        for folder in super().folders():
            if self.is_inside(folder):
                if self._named:
                    listed.add(os.path.realpath(folder))
                yield folder
        for real, folder in self._named.items():
            if real not in listed and not _leads_out(real, real):
                yield folder

    def is_inside(self, folder: Path) -> bool:
        """Do a folder and what is read of it lie in the root? Asked anew when something in it was replaced."""
        key = str(folder)
        try:
            changed = os.stat(key).st_mtime_ns  # noqa: PTH116 - one for each of thousands of runs
        except OSError:
            return False
        judged = self._judged.get(key)
        if judged is None or judged[0] != changed or time.time_ns() - changed < _SETTLED_NS:
            inside = self._lies_inside(key)
            judged = self._judged[key] = changed, inside and not _leads_out(key, self._real_root)
        return judged[1]

    def _lies_inside(self, folder: str) -> bool:
        if os.path.dirname(folder) == str(self.root) and not os.path.islink(folder):  # noqa: PTH114, PTH120
            return True  # as nearly all of thousands do
        real = os.path.realpath(folder)
        return _is_within(real, self._real_root) or real in self._named


def _leads_out(folder: str, root: str) -> bool:
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
