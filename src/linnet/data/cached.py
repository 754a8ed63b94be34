"""What the cache holds: prepared corpora with their sizes and ages, and how they are removed."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from linnet import files
from linnet.data.cache import teacher_logits_folder
from linnet.data.errors import DataError, reason
from linnet.data.token_set import TokenSet

_NAME = re.compile(r"(.+)-([0-9a-f]{24})(\.parts)?")
_PARTIAL = re.compile(r"\.([0-9a-f]{24})\..*partial")
_OWN_FILE = re.compile(r"(train|held_out)(\.\d+)?\.tokens|tokenizer\.gguf|prepared\.json")
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(m|h|d|w)")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class _RecordFacts(msgspec.Struct):
    """What is asked of a record."""

    corpus: str
    vocab: int


class _PlanFacts(msgspec.Struct):
    """What is asked of the plan of parts."""

    corpus: str
    parts: int


@dataclass(frozen=True)
class CachedCorpus:
    """A prepared corpus in the cache. `problem`: why it cannot be used, else empty."""

    path: Path
    corpus: str
    vocab: int
    tokens: int
    size: int  # bytes on the disk
    made: float  # Unix time
    problem: str = ""

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.path.name


def cached_corpora(root: Path) -> list[CachedCorpus]:
    """All prepared corpora of a cache, the newest first; other folders in it are not ours."""
    try:
        folders = [path for path in root.iterdir() if _NAME.fullmatch(path.name) and _is_ours(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"cache {root}: it cannot be read: {reason(error)}") from None
    return sorted(map(_look, folders), key=lambda entry: (-entry.made, entry.id))


def leftovers(root: Path) -> list[Path]:
    """Folders of preparations that were killed: nobody holds their lock."""
    if not root.is_dir():
        return []
    abandoned = []
    for path in sorted(root.iterdir()):
        match = _PARTIAL.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_dir():
            continue
        lock = root / f".{match[1]}.lock"
        if not lock.exists() or files.is_locked(lock) is False:
            abandoned.append(path)
    return abandoned


def fetched_copies(root: Path) -> list[Path]:
    """Files of corpora that were fetched from a store, a folder for each URL."""
    folder = root / "remote"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def teacher_logits_folders(root: Path) -> list[Path]:
    """Where caches of teachers are (`teacher_logits.py`): one folder, or none."""
    folder = teacher_logits_folder(root)
    return [folder] if folder.is_dir() else []


def folder_size(path: Path) -> int:
    """Bytes of the files of a folder, as far as they can be seen."""
    size = 0
    for file in path.rglob("*"):
        with suppress(OSError):
            size += file.lstat().st_size if not file.is_dir() else 0
    return size


def chosen(corpora: Iterable[CachedCorpus], names: Iterable[str], older: float | None = None) -> list[CachedCorpus]:
    """Those that a name means: the beginning of an id, of its hexadecimal end, or the corpus itself; all without names.

    `older`: only those made longer ago than so many seconds. A name that means nothing is an error.
    """
    corpora, names = list(corpora), list(names)
    for name in names:
        if not any(_matches(name, entry) for entry in corpora):
            known = ", ".join(entry.id for entry in corpora[:5]) or "it is empty"
            raise DataError(f"there is no prepared corpus {name!r} in the cache: {known}")
    named = [entry for entry in corpora if not names or any(_matches(name, entry) for name in names)]
    return [entry for entry in named if older is None or entry.made < time.time() - older]


def age(text: str) -> float:
    """`30d` in seconds: m, h, d and w are known."""
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise DataError(f"`older={text}`: expected a number and m, h, d or w, as in 30d")
    return float(match[1]) * _SECONDS[match[2]]


def remove(root: Path, entries: Iterable[CachedCorpus]) -> None:
    """Remove prepared corpora: each out of use at one stroke, so that a training that has it open keeps it."""
    for entry in entries:
        match = _NAME.fullmatch(entry.id)
        assert match is not None
        try:
            aside = files.staged_name(root / match[2])
            entry.path.rename(aside)
            shutil.rmtree(aside)
        except FileNotFoundError:
            continue  # another process was first
        except OSError as error:
            raise DataError(f"{entry.path}: it cannot be removed: {reason(error)}") from None
        with suppress(OSError):
            (root / "hashes" / f"{match[2]}.json").unlink()


def _matches(name: str, entry: CachedCorpus) -> bool:
    match = _NAME.fullmatch(entry.id)
    key = match[2] if match else ""
    is_key = len(name) >= 4 and key.startswith(name)
    return bool(name) and (entry.id.startswith(name) or is_key or entry.corpus == name)


def _is_ours(path: Path) -> bool:
    """Whether a folder was made by a preparation: it holds nothing but files of such, and one at least."""
    if path.is_symlink() or not path.is_dir():
        return False
    names = [file.name for file in path.iterdir()]
    if path.suffix == ".parts":
        return "plan.json" in names
    return bool(names) and all(map(_OWN_FILE.fullmatch, names))


def _look(path: Path) -> CachedCorpus:
    size = folder_size(path)
    if path.suffix == ".parts":
        return _look_at_parts(path, size)
    try:
        manifest = msgspec.json.decode((path / "prepared.json").read_bytes(), type=_RecordFacts)
        tokens = sum(len(TokenSet(path / name)) for name in ("train.tokens", "held_out.tokens"))
        return CachedCorpus(
            path, manifest.corpus, manifest.vocab, tokens, size, (path / "prepared.json").stat().st_mtime
        )
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, DataError, ValueError):
        with suppress(OSError):
            return CachedCorpus(path, "", 0, 0, size, path.stat().st_mtime, "damaged")
        return CachedCorpus(path, "", 0, 0, size, 0.0, "damaged")


def _look_at_parts(path: Path, size: int) -> CachedCorpus:
    """Parts that are not joined yet."""
    try:
        written_plan = msgspec.json.decode((path / "plan.json").read_bytes(), type=_PlanFacts)
        finished = sum((path / str(number) / "part.json").is_file() for number in range(1, written_plan.parts + 1))
        problem = f"{finished} of {written_plan.parts} parts"
        return CachedCorpus(path, written_plan.corpus, 0, 0, size, (path / "plan.json").stat().st_mtime, problem)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return CachedCorpus(path, "", 0, 0, size, 0.0, "damaged")
