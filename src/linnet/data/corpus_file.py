"""A file of a corpus: how it is packed, encoded and read, and its bytes or text in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from linnet.data.compression import DamagedError, compression_by_name, read_blocks
from linnet.data.encoding import UTF8, NulError, decode
from linnet.data.errors import DataError

LARGEST = 1 << 28  # bytes of a line, a row or a file that is held in memory whole, a few times over


_Block = TypeVar("_Block", bytes, str)


class FileError(DataError):
    """A file that cannot be read, or not to its end; `problem` is the sentence without the file's name."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"corpus {path}: {problem}")
        self.problem = problem


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus; `kind` says how it is read: `text`, a text format, or a pack."""

    path: Path
    kind: str
    field: str | None = None  # where the text is in a row; None: as the corpus says
    compression: str | None = None  # a key of COMPRESSIONS
    encoding: str = UTF8
    span: tuple[int, int] | None = None  # the bytes that are read, from a document's beginning to another's; None: all

    @property
    def size(self) -> int:
        """Bytes of it that are read."""
        return self.path.stat().st_size if self.span is None else self.span[1] - self.span[0]

    @property
    def name(self) -> str:
        """Its name without the ending of a compressed file."""
        return compression_by_name(self.path.name)[0] if self.compression else self.path.name

    @property
    def reading(self) -> str:
        """How it is read, for the hash of a corpus: other words, other documents."""
        parts = [self.kind]
        if self.compression and (self.kind, self.compression) != ("jsonl", "gz"):
            parts.append(self.compression)
        if self.encoding != UTF8:
            parts.append(self.encoding)
        if self.field is not None:
            parts.append(f"field={self.field!r}")
        return " ".join(parts)

    def blocks(self) -> Iterator[bytes]:
        """Its bytes, unpacked; what is damaged is a FileError behind what came before."""
        n_bytes = 0
        try:
            for block in read_blocks(self.path, self.compression, span=self.span):
                yield block
                n_bytes += len(block)
        except DamagedError as error:
            raise FileError(
                self.path, f"the compressed file is damaged after {n_bytes:,} bytes of it: {error}"
            ) from None

    def text(self, switched: Callable[[str], None] | None = None) -> Iterator[str]:
        """Its text, in blocks; `switched` is told of an encoding that shows itself late."""
        try:
            yield from decode(self.blocks(), self.encoding, switched, is_begin=not self.span or not self.span[0])
        except NulError as error:
            raise FileError(self.path, f"this is not text: {error}") from None
        except UnicodeDecodeError as error:
            name, position = "UTF-8" if self.encoding == UTF8 else self.encoding, error.start + (self.span or (0,))[0]
            raise FileError(
                self.path, f"this is not {name} near byte {position}; convert the file or leave it out"
            ) from None

    def content(self, most: int = LARGEST) -> bytes:
        """All of its bytes; more than `most` are refused before they are read or unpacked."""
        return b"".join(self._bounded(self.blocks(), most))

    def whole_text(self) -> str:
        """All of its text, of a file that is a document of its own format."""
        return "".join(self._bounded(self.text(), LARGEST))

    def _bounded(self, blocks: Iterable[_Block], most: int) -> Iterator[_Block]:
        size = 0
        for block in blocks:
            size += len(block)
            if size > most:
                raise FileError(self.path, f"it is larger than {most >> 20} MiB, the most that is read of such a file")
            yield block


class ReadingReport:
    """What was left out while a corpus was read, by the number of the file; `encodings`: those that showed late.

    Where the files were named one by one, what cannot be read is an error instead (`strict`).
    """

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.left_out: dict[int, str] = {}
        self.encodings: dict[int, str] = {}
        self.failures: dict[Path, FileError] = {}  # by where the text would have been kept
        self.number = 0  # of the file at hand
        self._rows = 0
        self._first = ""

    def begin(self, number: int) -> None:
        """A file is read from its beginning."""
        self.number, self._rows, self._first = number, 0, ""
        self.left_out.pop(number, None)
        self.encodings.pop(number, None)

    def skip_row(self, file: CorpusFile, problem: str) -> None:
        """A row has no text; the first of a file says why."""
        if self.strict:
            raise FileError(file.path, problem)
        self.leave_out_row(problem)

    def leave_out_row(self, problem: str) -> None:
        """A row of which nothing is used, also where the files were named one by one."""
        self._rows += 1
        self._first = self._first or problem

    def switched(self, encoding: str) -> None:
        """The file at hand turned out to be in another encoding."""
        self.encodings[self.number] = encoding

    def fail(self, error: FileError, is_begun: bool) -> None:
        """The file at hand cannot be read to its end; `is_begun`: some of its text was given."""
        if self.strict:
            raise error
        self.left_out[self.number] = error.problem + ("; what comes before is read" if is_begun else "")

    def end(self) -> None:
        """The file at hand was read."""
        if self._rows:
            rows = f"{self._rows:,} row{'s' if self._rows > 1 else ''} of it left out: {self._first}"
            before = self.left_out.get(self.number)
            self.left_out[self.number] = rows if before is None else f"{rows}; {before}"
