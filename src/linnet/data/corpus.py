"""Where the text of a corpus lies: a file, a folder, a pattern, or `python`, the interpreter's standard library."""

from __future__ import annotations

import codecs
import glob
import os
import re
import sysconfig
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from linnet.data.documents import TEXT_FORMATS
from linnet.data.errors import DataError, left_out_sentence, printable, reason
from linnet.data.packs import IDS, PACK, PACK_SUFFIXES, TOYC

PYTHON = "python"
TEXT = "text"
_SUFFIXES = {kind: form.suffixes for kind, form in TEXT_FORMATS.items()} | PACK_SUFFIXES
_HEAD = 1 << 16  # bytes of a file that tell what it is
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
}
# Not the library's own text: installed packages; tests, which many systems leave out; tables of characters and the
# text of the manual, which are no programs.
_PACKAGES, _TESTS = {"site-packages", "dist-packages", "lib-dynload", "__pycache__"}, {"test", "tests", "idle_test"}
_NOT_LIBRARY = _PACKAGES | _TESTS | {"encodings", "pydoc_data"}


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus; `kind` says how it is read: `text`, a text format, or a pack."""

    path: Path
    kind: str


@dataclass(frozen=True)
class Corpus:
    """The files of a corpus, in the order they are read, and what of them is the text."""

    name: str
    files: tuple[CorpusFile, ...]
    field: str = "text"  # of JSONL lines and Parquet rows
    left_out: tuple[str, ...] = ()  # files of a folder that are not read, and why: "notes.gz: compressed …"

    @property
    def is_pack(self) -> bool:
        """Whether it holds token ids rather than text."""
        return self.files[0].kind in PACK_SUFFIXES


def find_corpus(corpus: str | os.PathLike[str] = PYTHON, field: str = "text") -> Corpus:
    """Find the files of a corpus; what is missing, empty or not text is a DataError."""
    name = os.fspath(corpus)
    if name == PYTHON and not Path(name).exists():
        return Corpus(name, _standard_library(), field)
    if not name:
        raise DataError("the corpus has no name; give a file, a folder, a pattern, or python")
    path = expanded(name)
    left_out: list[str] = []
    if path.is_dir():
        files = tuple(_in_folder(path, left_out))
        if not files:
            why = f" ({left_out_sentence(left_out)})" if left_out else ""
            raise DataError(f"corpus {name}: there is no text file in this folder{why}")
    elif path.exists():
        files = (CorpusFile(path, _kind_of(path)),)
    elif glob.has_magic(name):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 — Path.glob takes no absolute pattern
        files = tuple(CorpusFile(match, _kind_of(match)) for match in matches if match.is_file())
        if not files:
            raise DataError(f"corpus {name}: no file fits this pattern")
    else:
        raise DataError(f"corpus {name}: there is no such file or folder (the built-in corpus is called {PYTHON!r})")
    if len({file.kind in PACK_SUFFIXES for file in files}) > 1:
        raise DataError(f"corpus {name}: it mixes text with packs of token ids; prepare one kind at a time")
    return Corpus(name, files, field, tuple(left_out))


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with `~` spelled out; where nobody has that name, as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _standard_library() -> tuple[CorpusFile, ...]:
    sources = [path for path in _walk(Path(sysconfig.get_path("stdlib")), _NOT_LIBRARY) if path.suffix == ".py"]
    files = tuple(CorpusFile(path, TEXT) for path in sources if path.is_file() and _is_text(_head(path)))
    if not files:
        raise DataError(f"corpus {PYTHON}: this interpreter has no .py files of its library; give a corpus of your own")
    return files


def _in_folder(folder: Path, left_out: list[str]) -> Iterator[CorpusFile]:
    """Every file that is text or a corpus format, hidden and empty ones aside; the others are added to `left_out`."""
    for path in _walk(folder):
        name = printable(path.relative_to(folder))
        if path.is_dir():
            left_out.append(f"{name}: a link to a folder, which is not followed")
        elif not path.is_file():
            left_out.append(f"{name}: not a file that can be read")
        elif path.stat().st_size:
            kind = _kind_by_name(path)
            if kind is None or path.suffix == ".bin":
                head = _head(path)
                kind = _kind_by_content(head)
                if kind is None:
                    left_out.append(f"{name}: {_why_not_text(head)}")
            if kind is not None:
                yield CorpusFile(path, kind)


def _why_not_text(head: bytes) -> str:
    """What a file is instead of UTF-8 text, as far as its beginning tells."""
    if compression := _compression(head):
        return f"compressed ({compression}); unpack it to have it read"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16, expected UTF-8"
    return "not text: NUL bytes" if 0 in head else "not UTF-8"


def _walk(folder: Path, skipped: Collection[str] = ()) -> list[Path]:
    """What lies below a folder, sorted by its path from it, so that the order is the same on every machine.

    Files, and what is none: pipes, dangling links, links to folders.
    """

    def refuse(error: OSError) -> None:
        raise DataError(f"corpus {error.filename or folder}: the folder cannot be read: {reason(error)}")

    paths = []
    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name not in skipped and not name.startswith(".")]
        paths += [Path(root, name) for name in files if not name.startswith(".")]
        paths += [path for path in (Path(root, name) for name in folders) if path.is_symlink()]
    return sorted(paths, key=lambda path: path.relative_to(folder).parts)


def _kind_of(path: Path) -> str:
    """How a file that was named is read. Binary that is no known format is an error."""
    if not path.is_file():
        raise DataError(f"corpus {path}: expected a file or a folder, found something else")
    head = _head(path)
    if not head:
        raise DataError(f"corpus {path}: the file is empty")
    kind = _kind_by_name(path)
    if kind is not None:
        return kind
    kind = _kind_by_content(head)
    if kind is None:
        if compression := _compression(head):
            raise DataError(
                f"corpus {path}: this is compressed ({compression}), which is read for JSONL only: unpack it"
            )
        found = "NUL bytes" if 0 in head else "bytes that do not decode"
        raise DataError(
            f"corpus {path}: this is not text: expected UTF-8, found {found}; packs of token ids are named .i32 or .bin"
        )
    return IDS if kind == TEXT and is_numbers(head) else kind


def _kind_by_name(path: Path) -> str | None:
    name = path.name.lower()
    return next((kind for kind, suffixes in _SUFFIXES.items() if name.endswith(suffixes)), None)


def _kind_by_content(head: bytes) -> str | None:
    return PACK if head.startswith(TOYC) else TEXT if _is_text(head) else None


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in _COMPRESSED.items() if head.startswith(magic)), None)


def is_numbers(head: bytes) -> bool:
    """Whether there are nothing but whole numbers, with two at least in the first line. Linear, whatever it holds."""
    return not head.translate(None, b"0123456789 \t\n\r\f\v") and bool(re.match(rb"\s*\d+[ \t]+\d", head))


def _is_text(head: bytes) -> bool:
    """Whether the beginning of a file is UTF-8 text; a character cut off at the end is none of its faults."""
    if not head or b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(head) == _HEAD and error.start >= len(head) - 3
    return True


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise DataError(f"corpus {path}: the file cannot be read: {reason(error)}") from None
