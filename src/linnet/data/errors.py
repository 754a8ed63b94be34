"""What can be wrong with data, said so that its owner can act."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.board import words
from linnet.errors import LinnetError

if TYPE_CHECKING:
    from linnet.data.duplicates import Duplicates

NAMED = 5  # files that a sentence names; the rest is counted
_UNPACKED = "; unpack it to have it read"
_NO_TEXT = (": not text: NUL bytes", ": a link to a folder, ", ": not a file that can be read")
_IGNORED = (": ignored by ", ".gitignore: not followed")


class DataError(LinnetError):
    """Data that cannot be read, prepared or trained on as asked."""

    def __init__(self, problem: str) -> None:
        super().__init__(" ".join(problem.split()))


class MissingPackageError(DataError):
    """A format whose library is not installed: `reading PDF needs the package pypdf: pip install …`."""

    def __init__(self, work: str, package: str, extra: str) -> None:
        super().__init__(f"{work} needs the package {package}: pip install 'linnet[{extra}]'")


def reason(error: OSError) -> str:
    """What the system said, in its own words."""
    return error.strerror or str(error)


def printable(path: str | os.PathLike[str]) -> str:
    """A path as text that can be encoded: bytes that are no UTF-8 are shown as U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def mendable_first(files: Sequence[str]) -> list[str]:
    """Files that were left out, by what their owner can do: mend or name them, unpack them, nothing, nothing meant."""

    def help_of(file: str) -> int:
        if any(reason in file for reason in _IGNORED):
            return 3
        if any(reason in file for reason in _NO_TEXT):
            return 2
        return int(file.endswith(_UNPACKED))

    return sorted(files, key=help_of)


def left_out_sentence(files: Sequence[str], corpus: str = "") -> str:
    """`2 files left out: a.gz: gzip …; b.txt: not UTF-8`, those first that can be mended; an empty string for none.

    `corpus`: for the command that lists the rest of many.
    """
    if not files:
        return ""
    listed = f": linnet data show {shlex.quote(corpus)}" if corpus else ""
    further = f"; and {len(files) - NAMED} more{listed}" if len(files) > NAMED else ""
    named = words.plain("; ".join(mendable_first(files)[:NAMED]))
    return f"{len(files)} file{'s' if len(files) > 1 else ''} left out: {named}{further}"


def encodings_sentence(encodings: Mapping[str, Sequence[str]]) -> str:
    """`3 files read as cp1252: a.txt, b.txt, c.txt; 1 file read as utf-16: d.txt`; an empty string for none."""
    return "; ".join(
        f"{len(names)} file{'s' if len(names) > 1 else ''} read as {encoding}: {shown_some(names)}"
        for encoding, names in encodings.items()
    )


def duplicates_sentence(duplicates: Duplicates, dropped: Sequence[str]) -> str:
    """`3 duplicates dropped (2 equal, 1 nearly equal; 12 kB): b.txt: equal to a.txt; …`."""
    if not duplicates.count:
        return "no duplicates were found"
    further = f"; and {duplicates.count - NAMED} more" if duplicates.count > NAMED else ""
    kinds = f"{duplicates.equal:,} equal, {duplicates.near:,} nearly equal; {words.size(duplicates.bytes)}"
    named = words.plain("; ".join(dropped[:NAMED]))
    return f"{duplicates.count:,} duplicate{'s' if duplicates.count > 1 else ''} dropped ({kinds}): {named}{further}"


def shown_some(names: Sequence[str], most: int = NAMED) -> str:
    """`a, b, c; and 7 more`."""
    further = f" and {len(names) - most} more" if len(names) > most else ""
    return words.plain(", ".join(names[:most])) + further


def require_memory(path: Path, need: int, content: str, advice: str = "") -> None:
    """Refuse what would take more memory than is free, before it is unpacked; `content`: `60,000 images of 28 × 28`."""
    import psutil

    free = psutil.virtual_memory().available
    if need > free:
        raise DataError(
            f"{path}: {content} take {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free{advice and ': ' + advice}"
        )
