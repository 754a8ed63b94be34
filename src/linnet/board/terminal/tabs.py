"""The tabs of the board: name, key and what they show. Keys, help, the line of tabs and `--view` follow from it."""

from __future__ import annotations

from typing import Literal, get_args

View = Literal["metrics", "system", "runs", "samples", "checkpoints", "config", "notes", "log"]
VIEWS: tuple[View, ...] = get_args(View)
TABS: dict[View, tuple[str, str]] = {  # the key, which is a letter of the name, and what the help says
    "metrics": ("m", "metrics"),
    "system": ("y", "the machine"),
    "runs": ("r", "all runs"),
    "samples": ("a", "samples"),
    "checkpoints": ("k", "checkpoints"),
    "config": ("c", "settings and where the run comes from"),
    "notes": ("n", "notes; there, write one"),
    "log": ("g", "the log: turns, warnings, damaged lines"),
}
