"""Arguments that several commands share, with the words that explain them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.errors import UsageError

RunName = Annotated[str, Parameter(help="The run: an id or the unique beginning of one, a name, a path, or 'latest'.")]
RunsFolder = Annotated[Path | None, Parameter(help="The folder of runs; else $LINNET_RUNS, else ./runs.")]
ConfigPath = Annotated[Path | None, Parameter(help="A TOML file of flags, as in lr = 3e-4; the command line wins.")]
AsJson = Annotated[bool, Parameter(help="As JSON, for other programs.")]


def require_metrics(keys: Iterable[str], known: list[str], whose: str) -> None:
    """Refuse a `--key` that is no metric, by name, with what may have been meant. `whose`: `run first has`."""
    for key in keys:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=3, cutoff=0.4)
            shown = [name for name in known if not name.startswith("sys/")][:8]
            hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(shown) or 'none'}"
            raise UsageError(f"{whose} no metric {key!r}; {hint}")


def unless_off(value: object) -> str | None:
    """A default for `--help`; none where a flag is simply off, or where its text says what happens without it."""
    return None if value is None or value is False or value == () else str(value)
