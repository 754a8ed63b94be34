"""Where the text of a corpus lies: a file, a folder, a pattern, a URL, or `python`, the standard library."""

from __future__ import annotations

import glob
import os
import re
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from linnet.data.compression import (
    COMPRESSIONS,
    DamagedError,
    compression_by_content,
    compression_by_name,
    read_blocks,
)
from linnet.data.corpus_file import CorpusFile, FileError
from linnet.data.documents import TEXT_FORMATS
from linnet.data.encoding import HEAD, UTF8, detect, is_utf8
from linnet.data.errors import DataError, MissingPackageError, left_out_sentence, printable, reason
from linnet.data.fields import FieldRules
from linnet.data.gitignore import GitIgnore
from linnet.data.packs import IDS, PACK, PACK_SUFFIXES, TOYC
from linnet.data.remote_corpus import RemoteCorpus
from linnet.files import expanded
from linnet.remote import is_url

if TYPE_CHECKING:
    from linnet.data.duplicates import DocumentName, Duplicates

RowKind: TypeAlias = Literal["text", "conversations", "preferences"]
PYTHON = "python"
TEXT = "text"
# What `plain` reads as more than text: files that hold many documents and nothing one would read as they stand.
_PLAIN_FORMATS = ("jsonl", "parquet")
_PACK_HINT = "; packs of token ids are named .i32 or .bin"
_DECLARING = (".html", ".htm", ".xhtml", ".xml")  # files that say what encoding they are in
_ARCHIVES = {b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z", b"Rar!": "rar"}
# Not the library's own text: installed packages; tests, which many systems leave out; tables of characters and the
# text of the manual, which are no programs.
_PACKAGES, _TESTS = {"site-packages", "dist-packages", "lib-dynload", "__pycache__"}, {"test", "tests", "idle_test"}
_NOT_LIBRARY = _PACKAGES | _TESTS | {"encodings", "pydoc_data"}


@dataclass(frozen=True)
class Corpus:
    """The files of a corpus, in the order they are read, and what of them is the text."""

    name: str
    files: tuple[CorpusFile, ...]
    field: str = "text"  # of rows, where a file has no rule of its own
    left_out: tuple[str, ...] = ()  # files of a folder that are not read, and why: "photo.jpg: binary"
    strict: bool = True  # what cannot be read to its end is an error; in a folder it is left out
    remote: RemoteCorpus | None = None  # where its files are fetched from, when they are read
    rows: RowKind = "text"  # what its rows are; see `row_kinds`
    remark: str = ""  # what its owner should know of that

    def complete(
        self, files: Iterable[CorpusFile] | None = None, progress: Callable[[str, int, int], None] | None = None
    ) -> None:
        """Have some of its files, or all, here whole, before they are read: those of a store are fetched."""
        if self.remote is not None:
            self.remote.complete([file.path for file in (self.files if files is None else files)], progress)

    @property
    def is_pack(self) -> bool:
        """Whether it holds token ids rather than text."""
        return bool(self.files) and self.files[0].kind in PACK_SUFFIXES

    def shown_name(self, number: int) -> str:
        """The name of a file as it is told: from the folder of the corpus where it is one."""
        path = self.files[number].path
        folder = expanded(self.name) if self.remote is None else self.remote.folder
        return printable(path.relative_to(folder) if path != folder and path.is_relative_to(folder) else path.name)

    def encodings(self, late: Iterable[tuple[int, str]] = ()) -> dict[str, list[str]]:
        """The files that are not in UTF-8, by their encoding; `late`: those that showed only while they were read."""
        encodings = {number: file.encoding for number, file in enumerate(self.files) if file.encoding != UTF8}
        names: dict[str, list[str]] = {}
        for number, encoding in sorted((encodings | dict(late)).items()):
            names.setdefault(encoding, []).append(self.shown_name(number))
        return names

    def document_name(self, document: DocumentName) -> str:
        """`a.txt`, or `rows.jsonl:17` for the 17th document of a file of many."""
        name, form = self.shown_name(document.file), TEXT_FORMATS.get(self.files[document.file].kind)
        is_row = form is not None and form.has_fields
        return f"{name}:{document.number}" if is_row or document.number > 1 else name

    def duplicate_names(self, duplicates: Duplicates) -> Iterator[str]:
        """`b.txt: equal to a.txt` for those that are named."""
        for duplicate in duplicates.named:
            likeness = "equal to" if duplicate.is_equal else "nearly equal to"
            yield f"{self.document_name(duplicate.document)}: {likeness} {self.document_name(duplicate.earlier)}"


def find_corpus(
    corpus: str | os.PathLike[str] = PYTHON,
    field: str | Sequence[str] | None = None,
    *,
    plain: bool | None = False,
    cache: Path | None = None,
) -> Corpus:
    """Find the files of a corpus; what is missing, empty or not text is a DataError.

    `field` names the text in rows, `*.csv=body` that of some files. `plain` reads HTML, CSV, notebooks and other
    documents as the text they are written in. None: as it was before there were other formats than JSONL and Parquet,
    for runs of that time: no other encodings or compressed text either, and nothing ignored. `cache`: where the files
    of a URL have their places.
    """
    name = os.fspath(corpus)
    rules = FieldRules.of(field)
    if name == PYTHON and not Path(name).exists():
        return Corpus(name, _standard_library(), rules.default)
    if not name:
        raise DataError("the corpus has no name; give a file, a folder, a pattern, a URL, or python")
    path, detector, remote = expanded(name), _FormatDetector(plain), None
    left_out: list[str] = []
    if is_url(name):
        from linnet.data.cache import cache_folder

        remote = RemoteCorpus(name, cache if cache is not None else cache_folder())
        path = remote.path
    if remote is not None and remote.is_pattern:
        files = tuple(detector.named(match) for match in remote.paths)
    elif path.is_dir():
        files = tuple(_in_folder(path, detector, left_out))
        if not files:
            why = f" ({left_out_sentence(left_out)})" if left_out else ""
            raise DataError(f"corpus {name}: there is no text file in this folder{why}")
    elif path.exists():
        files = (detector.named(path),)
    elif glob.has_magic(name):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 — Path.glob takes no absolute pattern
        files = tuple(detector.named(match) for match in matches if match.is_file())
        if not files:
            raise DataError(f"corpus {name}: no file fits this pattern")
    else:
        raise DataError(f"corpus {name}: there is no such file or folder (the built-in corpus is called {PYTHON!r})")
    if len({file.kind in PACK_SUFFIXES for file in files}) > 1:
        raise DataError(f"corpus {name}: it mixes text with packs of token ids; prepare one kind at a time")
    strict = not remote.is_folder if remote is not None else not path.is_dir()
    return Corpus(name, rules.applied(files), rules.default, tuple(left_out), strict, remote)


def _is_utf8_head(path: Path) -> bool:
    head = _head(path)
    return is_utf8(head, len(head) < HEAD)


def _standard_library() -> tuple[CorpusFile, ...]:
    sources = [path for path in _walk(Path(sysconfig.get_path("stdlib")), _NOT_LIBRARY) if path.suffix == ".py"]
    files = tuple(CorpusFile(path, TEXT) for path in sources if path.is_file() and _is_utf8_head(path))
    if not files:
        raise DataError(f"corpus {PYTHON}: this interpreter has no .py files of its library; give a corpus of your own")
    return files


def _in_folder(folder: Path, detector: _FormatDetector, left_out: list[str]) -> Iterator[CorpusFile]:
    """Every file that is text or a corpus format, hidden and empty ones aside; the others are added to `left_out`."""
    ignore = GitIgnore(folder) if detector.plain is not None else None
    paths = _walk(folder, ignore=ignore)
    if ignore is not None and ignore.ignored:
        if paths:
            left_out += sorted(f"{name}: ignored by {rule}" for name, rule in ignore.ignored.items())
        else:  # `*`, by which a folder is kept out of a repository as a whole
            left_out.append(".gitignore: not followed, since it leaves nothing")
            paths = _walk(folder)
    for path in paths:
        name = printable(path.relative_to(folder))
        if path.is_dir():
            left_out.append(f"{name}: a link to a folder, which is not followed")
        elif not path.is_file():
            left_out.append(f"{name}: not a file that can be read")
        elif path.stat().st_size:
            try:
                yield detector.at(path)
            except FileError as error:
                left_out.append(f"{name}: {error.problem}")


class _FormatDetector:
    """How files are to be read, told by their names and first bytes."""

    def __init__(self, plain: bool | None) -> None:
        self.plain = plain
        formats = {key: form for key, form in TEXT_FORMATS.items() if plain is False or key in _PLAIN_FORMATS}
        self._formats = formats
        self._suffixes = {key: form.suffixes for key, form in formats.items()} | PACK_SUFFIXES

    def named(self, path: Path) -> CorpusFile:
        """A file that was named: binary that is no known format is an error, and text of numbers is ids."""
        if not path.is_file():
            raise DataError(f"corpus {path}: expected a file or a folder, found something else")
        head = _head(path)
        if not head:
            raise DataError(f"corpus {path}: the file is empty")
        try:
            file = self.at(path, is_named=True)
        except FileError as error:
            problem = error.problem.removeprefix("not text: ")
            if problem == error.problem:
                raise
            raise DataError(f"corpus {path}: this is not text: expected UTF-8, found {problem}{_PACK_HINT}") from None
        return replace(file, kind=IDS) if file.kind == TEXT and not file.compression and is_numbers(head) else file

    def at(self, path: Path, is_named: bool = False) -> CorpusFile:
        """A file as it is read; what is none of the known is a FileError. `is_named`: its name counts in any case."""
        name, compression = compression_by_name(path.name)
        kind = self._kind_by_name(name)
        if self.plain is None and compression is not None and (kind, compression) != ("jsonl", "gz"):
            kind = compression = None
        if compression is not None and kind is not None and (kind in PACK_SUFFIXES or not TEXT_FORMATS[kind].packable):
            raise FileError(path, f"a compressed {kind} file; unpack it to have it read")
        if kind in PACK_SUFFIXES and (is_named or path.suffix != ".bin"):
            return CorpusFile(path, kind)
        if kind is not None and kind in TEXT_FORMATS and (self.plain is None or not TEXT_FORMATS[kind].is_encoded):
            return CorpusFile(path, kind, compression=compression)
        if kind in PACK_SUFFIXES:
            kind = None  # a .bin may be anything
        head = _head(path)
        if kind is None and head.startswith(TOYC):
            return CorpusFile(path, PACK)
        if self.plain is not None and compression is None:
            compression = compression_by_content(head)
        if compression is not None:
            head = _unpacked_head(path, compression)
        if kind is None and (archive := _archive(head)):
            raise FileError(path, f"an archive ({archive}); unpack it to have it read")
        encoding = self._encoding(head, declared=name.lower().endswith(_DECLARING))
        if encoding is None:
            if kind == "jsonl":
                return CorpusFile(path, kind, compression=compression)  # its lines say what is wrong with them
            raise FileError(path, self._why_not_text(head))
        return CorpusFile(path, kind or TEXT, compression=compression, encoding=encoding)

    def _kind_by_name(self, name: str) -> str | None:
        name = name.lower()
        return next((kind for kind, suffixes in self._suffixes.items() if name.endswith(suffixes)), None)

    def _encoding(self, head: bytes, declared: bool) -> str | None:
        is_whole = len(head) < HEAD
        if self.plain is None:
            return UTF8 if is_utf8(head, is_whole) else None
        return detect(head, is_whole, declared=declared)

    def _why_not_text(self, head: bytes) -> str:
        """What a file is instead of text, as far as its beginning tells."""
        if self.plain is None and (compression := compression_by_content(head)):
            return f"compressed ({COMPRESSIONS[compression].name}); unpack it to have it read"
        if 0 in head:
            return "not text: NUL bytes"
        if self.plain is None:
            return "not UTF-8"
        hint = "" if _has_detector() else "; more are known with charset-normalizer: pip install 'linnet[documents]'"
        return f"not text: bytes in no encoding that can be told{hint}"


def _archive(head: bytes) -> str | None:
    """The kind of archive that a file's first bytes tell."""
    if head[257:262] == b"ustar":
        return "tar"
    return next((name for magic, name in _ARCHIVES.items() if head.startswith(magic)), None)


def _has_detector() -> bool:
    from importlib.util import find_spec

    return find_spec("charset_normalizer") is not None


def _walk(folder: Path, skipped: Collection[str] = (), ignore: GitIgnore | None = None) -> list[Path]:
    """What lies below a folder, sorted by its path from it, so that the order is the same on every machine.

    Files, and what is none: pipes, dangling links, links to folders.
    """

    def refuse(error: OSError) -> None:
        raise DataError(f"corpus {error.filename or folder}: the folder cannot be read: {reason(error)}")

    def is_kept(path: Path, is_folder: bool) -> bool:
        if path.name.startswith(".") or (is_folder and path.name in skipped):
            return False
        return ignore is None or not ignore.ignores(path, is_folder and not path.is_symlink())

    paths = []
    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if is_kept(Path(root, name), is_folder=True)]
        paths += [path for path in (Path(root, name) for name in files) if is_kept(path, is_folder=False)]
        paths += [path for path in (Path(root, name) for name in folders) if path.is_symlink()]
    return sorted(paths, key=lambda path: path.relative_to(folder).parts)


def is_numbers(head: bytes) -> bool:
    """Whether there are nothing but whole numbers, with two at least in the first line. Linear, whatever it holds."""
    return not head.translate(None, b"0123456789 \t\n\r\f\v") and bool(re.match(rb"\s*\d+[ \t]+\d", head))


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise DataError(f"corpus {path}: the file cannot be read: {reason(error)}") from None


def _unpacked_head(path: Path, compression: str) -> bytes:
    """The first bytes of what a compressed file holds; the rest may be damaged."""
    head = b""
    try:
        for block in read_blocks(path, compression, ahead=False):
            head += block
            if len(head) >= HEAD:
                break
    except DamagedError as error:
        if not head:
            raise FileError(path, f"the compressed file is damaged: {error}") from None
    except MissingPackageError as error:
        raise FileError(path, str(error)) from None
    except OSError as error:
        raise DataError(f"corpus {path}: the file cannot be read: {reason(error)}") from None
    return head[:HEAD]
