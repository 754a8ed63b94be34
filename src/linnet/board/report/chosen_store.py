"""`ChosenStore`: a store that lists the runs of a report and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from linnet.board.web.safe_store import SafeStore


class ChosenStore(SafeStore):
    """The runs that a report is of, wherever they lie. What of them leads out of their folders is not read."""

    def __init__(self, root: Path, folders: tuple[Path, ...]) -> None:
        super().__init__(root, folders)
        self._folders = tuple(map(self.as_listed, folders))

    def folders(self) -> Iterator[Path]:
        yield from self._folders
