"""Where the text of a corpus lies: a file, a folder, a pattern, or `python`, the interpreter's standard library."""

from __future__ import annotations

import codecs
import glob
import os
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linnet.data.errors import DataError, reason
from linnet.data.left_out import left_out_sentence, printable

PYTHON = "python"
TEXT, JSONL, PARQUET, PACK, IDS = "text", "jsonl", "parquet", "pack", "ids"
_GLANCE = 1 << 16
_JSONL = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
}
# Not the library's own text: installed packages; tests, which many systems leave out; tables of characters and the
# text of the manual, which are no programs.
_NOT_LIBRARY = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "__pycache__",
    "lib-dynload",
    "encodings",
    "pydoc_data",
}


@dataclass(frozen=True)
class Source:
    """One file of a corpus and how it is read."""

    path: Path
    kind: str


@dataclass(frozen=True)
class Corpus:
    """The files of a corpus, in the order they are read, and what of them is the text."""

    name: str
    sources: tuple[Source, ...]
    field: str = "text"  # of JSONL lines and Parquet rows
    left_out: tuple[str, ...] = ()  # files of a folder that are not read, and why: "notes.gz: compressed …"

    @property
    def is_pack(self) -> bool:
        """Whether it holds token ids rather than text."""
        return self.sources[0].kind in (PACK, IDS)


def find_corpus(corpus: str | os.PathLike[str] = PYTHON, field: str = "text") -> Corpus:
    """Find the files of a corpus; what is missing, empty or not text is a DataError."""
    name = os.fspath(corpus)
    if name == PYTHON and not Path(name).exists():
        return Corpus(name, tuple(_standard_library()), field)
    if not name:
        raise DataError("the corpus has no name; give a file, a folder, a pattern, or python")
    path = expanded(name)
    left_out: list[str] = []
    if path.is_dir():
        sources = tuple(_in_folder(path, left_out))
        if not sources:
            why = f" ({left_out_sentence(left_out)})" if left_out else ""
            raise DataError(f"corpus {name}: there is no text file in this folder{why}")
    elif path.exists():
        sources = (Source(path, _kind_of(path)),)
    elif glob.has_magic(name):
        files = sorted(Path(found) for found in glob.glob(str(path), recursive=True))  # noqa: PTH207 — Path.glob takes no absolute pattern
        files = [file for file in files if file.is_file()]
        if not files:
            raise DataError(f"corpus {name}: no file fits this pattern")
        sources = tuple(Source(file, _kind_of(file)) for file in files)
    else:
        raise DataError(f"corpus {name}: there is no such file or folder (the built-in corpus is called {PYTHON!r})")
    if len({source.kind in (PACK, IDS) for source in sources}) > 1:
        raise DataError(f"corpus {name}: it mixes text with packs of token ids; prepare one kind at a time")
    return Corpus(name, sources, field, tuple(left_out))


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with `~` spelled out; where nobody has that name, as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _standard_library() -> Iterator[Source]:
    root = Path(sysconfig.get_path("stdlib"))
    found = False
    for path in _walk(root, _NOT_LIBRARY):
        if path.suffix == ".py" and path.is_file() and _is_text(path):
            found = True
            yield Source(path, TEXT)
    if not found:
        raise DataError(f"corpus {PYTHON}: this interpreter has no .py files of its library; give a corpus of your own")


def _in_folder(folder: Path, left_out: list[str]) -> Iterator[Source]:
    """Every file that is text or a corpus format, hidden and empty ones aside; the others are added to `left_out`."""
    for path in _walk(folder, set()):
        name = printable(path.relative_to(folder))
        if path.is_dir():
            left_out.append(f"{name}: a link to a folder, which is not followed")
            continue
        if not path.is_file():
            left_out.append(f"{name}: not a file that can be read")
            continue
        if path.stat().st_size == 0:
            continue
        kind = _named_kind(path)
        if kind is None or (kind == PACK and path.suffix == ".bin"):
            head = _head(path)
            kind = PACK if head[:4] == b"TOYC" else TEXT if _decodes(head) else None
            if kind is None:
                left_out.append(f"{name}: {_why_not_text(head)}")
        if kind is not None:
            yield Source(path, kind)


def _why_not_text(head: bytes) -> str:
    """What a file is instead of UTF-8 text, as far as its beginning tells."""
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            return f"compressed ({name}); unpack it to have it read"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16, expected UTF-8"
    return "not text: NUL bytes" if 0 in head else "not UTF-8"


def _walk(folder: Path, skipped: set[str]) -> Iterator[Path]:
    """What lies below a folder, sorted by its path from it, so that the order is the same on every machine.

    Files, and what is none: pipes, dangling links, links to folders.
    """

    def refuse(error: OSError) -> None:
        raise DataError(f"corpus {error.filename or folder}: the folder cannot be read: {reason(error)}")

    found = []
    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name not in skipped and not name.startswith(".")]
        found += [Path(root, name) for name in files if not name.startswith(".")]
        found += [path for path in (Path(root, name) for name in folders) if path.is_symlink()]
    return iter(sorted(found, key=lambda path: path.relative_to(folder).parts))


def _kind_of(path: Path) -> str:
    """How a file that was named is read. Binary that is no known format is an error."""
    if not path.is_file():
        raise DataError(f"corpus {path}: expected a file or a folder, found something else")
    head = _head(path)
    if not head:
        raise DataError(f"corpus {path}: the file is empty")
    kind = _named_kind(path)
    if kind is not None:
        return kind
    if head[:4] == b"TOYC":
        return PACK
    if not _decodes(head):
        found = "NUL bytes" if 0 in head else "bytes that do not decode"
        for magic, name in _COMPRESSED.items():
            if head.startswith(magic):
                raise DataError(f"corpus {path}: this is compressed ({name}), which is read for JSONL only: unpack it")
        raise DataError(
            f"corpus {path}: this is not text: expected UTF-8, found {found}; packs of token ids are named .i32 or .bin"
        )
    return IDS if _is_numbers(head) else TEXT


def _is_numbers(head: bytes) -> bool:
    """Whether there are nothing but whole numbers, with two at least in the first line. Linear, whatever it holds."""
    return not head.translate(None, b"0123456789 \t\n\r\f\v") and bool(re.match(rb"\s*\d+[ \t]+\d", head))


def _named_kind(path: Path) -> str | None:
    name = path.name.lower()
    if name.endswith(_JSONL):
        return JSONL
    if name.endswith((".parquet", ".pq")):
        return PARQUET
    if name.endswith((".i32", ".bin", ".toyc")):
        return PACK
    return IDS if name.endswith(".ids") else None


def _is_text(path: Path) -> bool:
    head = _head(path)
    return bool(head) and _decodes(head)


def _decodes(head: bytes) -> bool:
    """Whether the beginning of a file is UTF-8 text; a character cut off at the end is none of its faults."""
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(head) == _GLANCE and error.start >= len(head) - 3
    return True


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_GLANCE)
    except OSError as error:
        raise DataError(f"corpus {path}: the file cannot be read: {reason(error)}") from None
