"""The one place that writes numbers, times, sizes, foreign text and command lines for people."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

from linnet.display import is_steering as is_steering
from linnet.display import plain as plain
from linnet.runs.folder import absolute, runs_folder

_LONGEST = 10_000  # letters
_FIELD = re.compile("`([a-z][a-z0-9_]*)(?:=([^`]+))?`")


def number(value: float | int | None, digits: int = 4) -> str:
    """A number to `digits` significant figures, without needless zeros; a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{value:.{digits - 1}e}"
    if not math.isfinite(value):
        return "NaN" if value != value else "∞" if value > 0 else "-∞"
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e9):
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if size >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    places = digits - 1 - math.floor(math.log10(size)) if size else 0
    text = f"{value:.{max(0, places)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """A stretch of time in its two largest units: `1 d 4 h`, `3 m 12 s`, `4.2 s`."""
    if not math.isfinite(seconds) or seconds < 0:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} m"
    return f"{hours // 24} d {hours % 24} h"


def device_time(us: float) -> str:
    """Microseconds in their unit: `85 µs`, `12.3 ms`, `1.2 s`."""
    if not math.isfinite(us):
        return "–"
    if abs(us) < 1000:
        return f"{us:.0f} µs"
    return f"{number(us / 1e3, 3)} ms" if abs(us) < 1e6 else f"{number(us / 1e6, 3)} s"


def compact(value: float) -> str:
    """A large count in few characters: `1.25M`, `870k`."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * 10 or (abs(value) >= size and size > 1e3):
            return f"{number(value / size, 3)}{unit}"
    return number(round(value)) if math.isfinite(value) else "–"


def moment(seconds: float, layout: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A Unix time as date and time of day, local; a dash for one beyond every calendar."""
    try:
        return time.strftime(layout, time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "–"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def bounded(text: object) -> str:
    """The same of a name or a finding, cut to what a person may read; for programs there is `--json`."""
    return shorten(plain(text), _LONGEST)


def flags(message: str) -> str:
    """A message of the library for the command line: the fields it names in backticks are flags there.

    `lr` becomes --lr, `batch_tokens=64` becomes --batch-tokens 64.
    """
    return _FIELD.sub(_flag, message)


def _flag(field: re.Match[str]) -> str:
    flag = f"--{field[1].replace('_', '-')}"
    return flag if field[2] is None else f"{flag} {field[2]}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 file`, `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_coloured() -> bool:
    """Does the output take colours? A pipe takes none, nor a terminal where `NO_COLOR` is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def visible_blanks(text: str, tab: str = "⇥") -> str:
    """A text in which blanks, tabs and line ends are seen as marks."""
    return text.replace("\n", "⏎").replace("\t", tab).replace(" ", "·")


def shorten(text: str, width: int) -> str:
    """Cut to `width` columns of a terminal, with a mark where something is left out."""
    if cells(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while cells(kept) >= width > 0:
        kept = kept[:-1]
    return kept + "…"


def shorten_front(text: str, width: int) -> str:
    """The same with the end kept: of paths, of which that tells most."""
    return shorten(text[::-1], width)[::-1]


def shorten_apart(texts: Sequence[str], width: int) -> list[str]:
    """Cut to `width` columns so that they stay apart: to beginnings, else ends, else from where they first differ."""
    shared = os.path.commonprefix(texts)  # noqa: RUF071 - letters, not folders
    begin = max(shared.rfind(sign) for sign in "-_/ ") + 1 or len(shared)  # of the word in which they differ
    ways: tuple[Callable[[str], str], ...] = (
        lambda text: shorten(text, width),
        lambda text: shorten_front(text, width),
        lambda text: shorten(f"…{text[begin:]}", width),
    )
    cut = [[way(text) for text in texts] for way in ways]
    return max(cut, key=lambda shortened: len(set(shortened)))  # of equally many the first


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: Chinese letters and emoji take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.category(letter) in ("Mn", "Me") for letter in text)


def padded(text: str, width: int, right: bool = False) -> str:
    """A text with blanks behind it, or before it, up to `width` columns."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def command(verb: str, run: Path, rest: str = "", *, checkpoint: int | None = None) -> str:
    """`linnet VERB RUN REST`, to copy from the screen: it works as printed, in the folder where it is printed.

    With `--runs` where the run's folder is not in the folder that is searched by default.
    """
    run = absolute(run)
    name = run.name if checkpoint is None else f"{run.name}@{checkpoint}"
    words = ["linnet", verb, shlex.quote(name), rest, runs_flag(run.parent)]
    return plain(" ".join(word for word in words if word))


def listing(root: Path | None) -> str:
    """The command that lists the runs of a folder; None: of the one that is searched by default."""
    return f"linnet runs {runs_flag(root)}".rstrip()


def runs_flag(root: Path | None) -> str:
    """`--runs DIR`; empty where that is the folder that is searched by default."""
    if root is None or os.path.realpath(absolute(root)) == os.path.realpath(absolute(runs_folder())):
        return ""
    return plain(f"--runs {shlex.quote(shown_path(root))}")


def shown_path(path: Path) -> str:
    """A path seen from the current folder if it is in it, else in full."""
    path, current_folder = absolute(path), absolute(Path())
    return str(
        path.relative_to(current_folder) if path != current_folder and path.is_relative_to(current_folder) else path
    )
