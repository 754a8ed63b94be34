"""The documents of a corpus, streamed piece by piece.

A document is a file, a JSONL line, a Parquet row, or what stands between `<|endoftext|>` marks in a `.txt` file. A
piece is a whole document or, of one longer than a mebibyte, a passage cut at the end of a line: so memory stays
bounded, and a corpus that is one long book has something to hold out.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from linnet.data.corpus import JSONL, PARQUET, Corpus, Source
from linnet.data.errors import DataError, reason

END_OF_TEXT = "<|endoftext|>"
_LONG = 1 << 20  # characters a document may have and stay whole
_PASSAGE = 1 << 16
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is encoded and held out as one; `opens` tells the first piece of a document."""

    text: str
    opens: bool


def pieces(corpus: Corpus, passage: int | None = None) -> Iterator[Piece]:
    """All text of a corpus. With `passage`, every document is cut into passages of about so many characters."""
    for source in corpus.sources:
        try:
            if source.kind == JSONL:
                texts = _json_lines(source.path, corpus.field)
            elif source.kind == PARQUET:
                texts = _parquet_rows(source.path, corpus.field)
            else:
                yield from _text(source, passage)
                continue
            for text in texts:
                yield from _cut(text, True, passage)
        except OSError as error:
            raise DataError(f"corpus {source.path}: the file cannot be read: {reason(error)}") from None


def _text(source: Source, passage: int | None) -> Iterator[Piece]:
    marked = source.path.suffix == ".txt"
    buffer, opens, fresh = "", True, True
    for block in _decoded(source.path):
        buffer += block
        if marked:
            *whole, buffer = buffer.split(END_OF_TEXT)
            for text in whole:
                # The line break beside a mark belongs to the mark.
                yield from _cut(_trimmed(text, fresh), opens, passage)
                opens, fresh = True, False
        while len(buffer) > _LONG:
            buffer, text = buffer[_place(buffer, _PASSAGE) :], buffer[: _place(buffer, _PASSAGE)]
            yield from _cut(text, opens, passage or _PASSAGE)
            opens = False
    yield from _cut(_trimmed(buffer, fresh) if opens else buffer, opens, passage)


def _trimmed(text: str, first: bool) -> str:
    return text if first else text.lstrip("\r\n")


def _cut(text: str, opens: bool, passage: int | None) -> Iterator[Piece]:
    if opens and passage is None and len(text) <= _LONG:
        if text:
            yield Piece(text, True)
        return
    size = passage or _PASSAGE
    while text:
        end = _place(text, size)
        yield Piece(text[:end], opens)
        text, opens = text[end:], False


def _place(text: str, size: int) -> int:
    """Where to end a passage: after the last line that fits, else after the last blank, else where it is full."""
    if len(text) <= size:
        return len(text)
    for mark in ("\n", " "):
        found = text.rfind(mark, size // 2, size)
        if found >= 0:
            return found + 1
    return size


def _decoded(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = 0
    with path.open("rb") as file:
        while True:
            block = file.read(_BLOCK)
            if read == 0 and block.startswith(codecs.BOM_UTF8):
                block = block[3:]
            if b"\0" in block:
                raise DataError(f"corpus {path}: this is not text: a NUL byte at {read + block.index(0)}")
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"corpus {path}: this is not UTF-8 near byte {read + error.start}; convert the file or leave it out"
                ) from None
            read += len(block)
            if text:
                yield text
            if not block:
                return


def _json_lines(path: Path, field: str) -> Iterator[str]:
    decoder = msgspec.json.Decoder(dict[str, object])
    number = 0
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                try:
                    record = decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise DataError(f"corpus {path}: line {number} is not a JSON object: {error}") from None
                text = record.get(field)
                if not isinstance(text, str):
                    has = ", ".join(list(record)[:8]) or "nothing"
                    raise DataError(f"corpus {path}: line {number} has no text {field!r}; it has {has}: see --field")
                if text:
                    yield text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"corpus {path}: the compressed file is damaged after line {number}: {error}") from None


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
            has = ", ".join(file.schema_arrow.names[:8])
            raise DataError(f"corpus {path}: there is no column {field!r}; it has {has}: see --field")
        for rows in file.iter_batches(batch_size=256, columns=[field]):
            for text in rows.column(0).to_pylist():
                if text is not None and not isinstance(text, str):
                    raise DataError(f"corpus {path}: the column {field!r} holds {type(text).__name__}, not text")
                if text:
                    yield text
    except pyarrow.ArrowException as error:
        raise DataError(f"corpus {path}: this is not a sound Parquet file: {error}") from None
