"""What a person chose to see first on the board: remembered for each folder of runs, outside of it.

The file is in the user's state folder, since folders of runs may be read-only, on another machine or shared by people
who like other charts first. Damage costs the choices and nothing else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from linnet.files import read_bounded, write_file

_LARGEST = 1 << 20  # bytes
_MOST_NAMES = 2000


class ChartPreferences(msgspec.Struct, frozen=True):
    """Metrics by name. `order`: those that were moved, and their neighbours; `constants`: they have charts too."""

    pinned: list[str] = []
    hidden: list[str] = []
    order: list[str] = []
    filter: str = ""
    constants: bool = False


class PreferenceFile:
    """The choices for one folder of runs; `root` None: they are kept in memory only."""

    def __init__(self, root: Path | None) -> None:
        self.path = None if root is None else preferences_path(root)
        self.preferences = self._load() or ChartPreferences()

    def change(self, changed: Callable[[ChartPreferences], ChartPreferences]) -> str:
        """Apply a change to what is in the file now, which another board may have written; why it was not kept, or ''.

        The file is replaced whole: of two boards that write at once, one finds the other's choices or writes its own.
        """
        self.preferences = _bounded(changed(self._load() or self.preferences))
        if self.path is None:
            return ""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path, msgspec.json.encode(self.preferences), mode=0o600, sync=False)
        except OSError as error:
            return f"shown so, but not remembered: {self.path}: {error.strerror or error}"
        return ""

    def _load(self) -> ChartPreferences | None:
        """What is in the file; None where it is not there, damaged or not ours."""
        if self.path is None:
            return None
        try:
            return msgspec.json.decode(read_bounded(self.path, _LARGEST), type=ChartPreferences)
        except (OSError, msgspec.MsgspecError, RecursionError, ValueError):
            return None


def preferences_path(root: Path) -> Path:
    """`$XDG_STATE_HOME/linnet/board/NAME-HASH.json`, by default below `~/.local/state`."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path(os.environ.get("HOME") or "~").expanduser() / ".local/state")
    real = os.path.realpath(root)
    digest = hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in Path(real).name)[:40]
    return home / "linnet" / "board" / f"{name}-{digest}.json"


def _bounded(preferences: ChartPreferences) -> ChartPreferences:
    return msgspec.structs.replace(
        preferences,
        pinned=preferences.pinned[-_MOST_NAMES:],
        hidden=preferences.hidden[-_MOST_NAMES:],
        order=preferences.order[:_MOST_NAMES],
        filter=preferences.filter[:1000],
    )
