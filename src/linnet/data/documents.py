"""The text of a corpus, streamed document by document.

A document is a file, a JSONL line, a Parquet row, or what stands between `<|endoftext|>` marks in a `.txt` file. A
passage is a whole document or, of one longer than a mebibyte, a part that ends with a line: so memory stays bounded,
and a corpus that is one long book has something to hold out.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from linnet.data.errors import DataError, reason

if TYPE_CHECKING:
    from linnet.data.corpus import Corpus

END_OF_TEXT = "<|endoftext|>"
_LONG = 1 << 20  # characters a document may have and stay whole
_PASSAGE = 1 << 16
_BLOCK = 1 << 20
_LONGEST_LINE = 1 << 28  # bytes of a JSONL line; it is held in memory whole, a few times over
_LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
_JSON_KINDS = {
    dict: "an object",
    list: "a list",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}


class Passage(NamedTuple):
    """Text that is encoded and held out as one; `opens` tells the first passage of a document."""

    text: str
    opens: bool


class TextFormat(NamedTuple):
    """A file format that holds many documents: how its files end, and `read(path, field)` for their texts."""

    suffixes: tuple[str, ...]
    read: Callable[[Path, str], Iterator[str]]


def passages(corpus: Corpus, size: int | None = None) -> Iterator[Passage]:
    """All text of a corpus. With `size`, every document is cut into passages of about so many characters."""
    for file in corpus.files:
        try:
            if file.kind in TEXT_FORMATS:
                for text in TEXT_FORMATS[file.kind].read(file.path, corpus.field):
                    yield from cut(text, True, size)
            else:
                yield from _text_file(file.path, size)
        except OSError as error:
            raise DataError(f"corpus {file.path}: the file cannot be read: {reason(error)}") from None
        except MemoryError:
            raise DataError(f"corpus {file.path}: there is not enough memory to read it; split the file") from None


def cut(text: str, opens: bool, size: int | None) -> Iterator[Passage]:
    """Cut a document, or what is left of one, into passages of about `size` characters; None: only a long one."""
    if opens and size is None and len(text) <= _LONG:
        if text:
            yield Passage(text, True)
        return
    start = 0
    while start < len(text):
        end = _end_of_passage(text, start, size or _PASSAGE)
        yield Passage(text[start:end], opens)
        start, opens = end, False


def _end_of_passage(text: str, start: int, size: int) -> int:
    """Where a passage ends: after the last line that fits, else after the last blank, else where it is full."""
    if len(text) - start <= size:
        return len(text)
    for mark in ("\n", " "):
        last = text.rfind(mark, start + size // 2, start + size)
        if last >= 0:
            return last + 1
    return start + size


def _text_file(path: Path, size: int | None) -> Iterator[Passage]:
    is_marked = path.suffix == ".txt"
    buffer, opens, is_first = "", True, True
    for block in _decoded(path):
        buffer += block
        if is_marked:
            *documents, buffer = buffer.split(END_OF_TEXT)
            for text in documents:
                # The line break beside a mark belongs to the mark.
                yield from cut(text if is_first else text.lstrip("\r\n"), opens, size)
                opens, is_first = True, False
        start = 0
        while len(buffer) - start > _LONG:
            end = _end_of_passage(buffer, start, _PASSAGE)
            yield from cut(buffer[start:end], opens, size or _PASSAGE)
            start, opens = end, False
        buffer = buffer[start:]
    yield from cut(buffer.lstrip("\r\n") if opens and not is_first else buffer, opens, size)


def _decoded(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    read = 0
    with path.open("rb") as file:
        while True:
            block = file.read(_BLOCK)
            if b"\0" in block:
                raise DataError(f"corpus {path}: this is not text: a NUL byte at {read + block.index(0)}")
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"corpus {path}: this is not UTF-8 near byte {read + error.start}; convert the file or leave it out"
                ) from None
            if text:
                yield text
            if not block:
                return
            read += len(block)


def json_lines(path: Path, field: str, longest: int = _LONGEST_LINE) -> Iterator[str]:
    """The text under `field` of each line; a line of more than `longest` bytes is refused."""
    decoder = msgspec.json.Decoder(dict[str, object])
    number = 0
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            # Not `for line in file`: a few megabytes of gzip can hold one line of gigabytes.
            while line := file.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    raise DataError(
                        f"corpus {path}: line {number} is longer than {longest >> 20} MiB, the most that is read of a"
                        " JSONL line; give so long a document as a .txt file"
                    )
                if line.isspace():
                    continue
                try:
                    record = decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise DataError(f"corpus {path}: line {number} {_why_no_object(line, error)}") from None
                text = record.get(field)
                if not isinstance(text, str):
                    raise DataError(f"corpus {path}: line {number} {_why_no_text(record, field)}")
                if text:
                    yield text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"corpus {path}: the compressed file is damaged after line {number}: {error}") from None


def _why_no_object(line: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply to be read"
    if _LONE_SURROGATE.search(line):
        return "is not a JSON object: it holds half a surrogate pair (such as \\ud800), which is no character"
    return f"is not a JSON object: {error}"


def _why_no_text(record: dict[str, object], field: str) -> str:
    if field in record:
        kind = _JSON_KINDS[type(record[field])]
        return f"has {kind} under {field!r}, expected text: see `field`, or leave the line out"
    return f"has no text {field!r}; it has {_names(list(record))}: see `field`"


def _names(names: list[str]) -> str:
    """The first few, each cut short: they are a file's words, of any length."""
    return ", ".join(name[:40] for name in names[:8]) or "nothing"


def _parquet_rows(path: Path, field: str) -> Iterator[str]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"corpus {path}: reading Parquet needs the package pyarrow: pip install 'linnet[parquet]'"
        ) from None
    try:
        file = parquet.ParquetFile(path)
        if field not in file.schema_arrow.names:
            raise DataError(
                f"corpus {path}: there is no column {field!r}; it has {_names(file.schema_arrow.names)}: see `field`"
            )
        for rows in file.iter_batches(batch_size=256, columns=[field]):
            for value in rows.column(0):
                text = value.as_py()
                if text is not None and not isinstance(text, str):
                    raise DataError(f"corpus {path}: the column {field!r} holds {type(text).__name__}, not text")
                if text:
                    yield text
    except UnicodeDecodeError as error:
        raise DataError(f"corpus {path}: the column {field!r} holds text that is not UTF-8: {error}") from None
    except pyarrow.ArrowMemoryError:
        raise MemoryError from None
    except pyarrow.ArrowException as error:
        raise DataError(f"corpus {path}: this is not a sound Parquet file: {error}") from None


# All that a new format needs is a reader and an entry here; its name becomes a part of the corpus's hash.
TEXT_FORMATS = {
    "jsonl": TextFormat((".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz"), json_lines),
    "parquet": TextFormat((".parquet", ".pq"), _parquet_rows),
}
