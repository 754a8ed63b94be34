"""Rows of which one field is the text: JSONL lines, CSV and TSV records, Parquet rows."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from linnet.data.compression import DamagedError, read_blocks
from linnet.data.corpus_file import LARGEST, CorpusFile, FileError, ReadingReport
from linnet.data.encoding import UTF8
from linnet.data.errors import MissingPackageError

DEFAULT_FIELD = "text"
_LARGEST_FIELD = 1 << 26  # characters of a CSV field; Python's csv holds four bytes for each
_DELIMITERS = ",;\t|"
_LAST = "\0the end of the file\0"  # no text holds NULs
_LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
_JSON_KINDS = {
    dict: "an object",
    list: "a list",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}


class _LineTooLongError(Exception):
    """A line of more bytes than are held in memory."""


def json_lines(file: CorpusFile, report: ReadingReport, longest: int = LARGEST) -> Iterator[str]:
    """The text under the field of each line; a line of more than `longest` bytes is refused."""
    decoder = msgspec.json.Decoder(dict[str, object])
    field, number = file.field or DEFAULT_FIELD, 0
    begin = file.span[0] if file.span else 0
    behind = f" after byte {begin:,}" if begin else ""  # how many lines there are before it, nobody has counted
    if file.encoding == UTF8:
        blocks: Iterable[bytes] = read_blocks(file.path, file.compression, span=file.span)
    else:
        blocks = (text.encode("utf-8") for text in file.text())
    try:
        for line in _lines(blocks, longest):
            number += 1
            if number == 1 and not begin:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line or line.isspace():
                continue
            try:
                record = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                report.skip_row(file, f"line {number}{behind} {_why_no_object(line, error)}")
                continue
            text = record.get(field)
            if not isinstance(text, str):
                report.skip_row(file, f"line {number}{behind} {_why_no_text(record, field)}")
            elif text:
                yield text
    except _LineTooLongError:
        raise FileError(
            file.path,
            f"line {number + 1}{behind} is longer than {longest >> 20} MiB, the most that is read of a JSONL line; give"
            " so long a document as a .txt file",
        ) from None
    except DamagedError as error:
        raise FileError(file.path, f"the compressed file is damaged after line {number}: {error}") from None


def _lines(blocks: Iterable[bytes], longest: int) -> Iterator[bytes]:
    """Lines without their ends; no more than `longest` bytes of one are ever held."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        first, *rest = block.split(b"\n")
        held.append(first)
        size += len(first)
        if size >= longest:
            raise _LineTooLongError
        if rest:
            yield b"".join(held)
            for line in rest[:-1]:
                if len(line) >= longest:
                    raise _LineTooLongError
                yield line
            held, size = [rest[-1]], len(rest[-1])
    if size:
        yield b"".join(held)


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


def separated_values(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """A column of a CSV or TSV file; its first record names the columns.

    Fields may be quoted, as spreadsheets do it, and then hold line ends. A `.csv` may be separated by semicolons, tabs
    or bars as well: by what stands most often in its first line.
    """
    field = file.field or DEFAULT_FIELD
    lines = chain.from_iterable(_lists_of_lines(file, report))
    first = next(lines, None)
    if first is None:
        return
    unquoted = re.sub(r'"[^"]*"', "", first)
    delimiter = "\t" if file.kind == "tsv" else max(_DELIMITERS, key=unquoted.count)
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_FIELD))  # the module's own is 128 KiB, for the process
    # Within a quoted field that is never closed, the last line is no record of its own.
    records = csv.reader(chain([first], lines, [_LAST]), delimiter=delimiter)
    try:
        names = next(records)
        if field not in names:
            raise FileError(file.path, f"there is no column {field!r}; it has {_names(names)}: see `field`")
        column, is_closed = names.index(field), False
        for record in records:
            if record == [_LAST]:
                is_closed = True
            elif record and record[-1].endswith(_LAST):
                break
            elif len(record) > column:
                if record[column]:
                    yield record[column]
            elif record:
                report.skip_row(file, f"line {records.line_num} has {len(record)} of {len(names)} columns")
        if not is_closed:
            raise FileError(file.path, f"a quoted field that ends with line {records.line_num - 1} is never closed")
    except csv.Error as error:
        raise FileError(file.path, f"line {records.line_num}: {error}") from None


def _lists_of_lines(file: CorpusFile, report: ReadingReport) -> Iterator[list[str]]:
    """The lines of a file with their ends, in lists: what goes through them one by one is then written in C."""
    held: list[str] = []
    size = number = 0
    for block in file.text(report.switched):
        first, *rest = block.split("\n")
        held.append(first)
        size += len(first)
        if size > _LARGEST_FIELD:
            raise FileError(file.path, f"line {number + 1} is longer than {_LARGEST_FIELD >> 20} MiB, the most")
        if rest:
            lines = ["".join(held), *rest[:-1]]
            number += len(lines)
            yield [f"{line}\n" for line in lines]
            held, size = [rest[-1]], len(rest[-1])
    if size:
        yield ["".join(held) + "\n"]


def row_groups(file: CorpusFile) -> list[tuple[int, int]]:
    """Where the row groups of a Parquet file begin, in bytes, each with its number; none where it cannot be read."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        return []  # whoever reads the file says what is missing
    try:
        return _group_starts(parquet.ParquetFile(file.path).metadata)
    except (ArrowException, OSError):
        return []


def _group_starts(metadata: Any) -> list[tuple[int, int]]:
    """The first byte of each row group and its number, in the order of the bytes; the first counts as byte 0."""
    starts = []
    for number in range(metadata.num_row_groups):
        columns = (metadata.row_group(number).column(k) for k in range(metadata.num_columns))
        pages = (column.dictionary_page_offset or column.data_page_offset for column in columns)
        starts.append((min(pages, default=0) if number else 0, number))
    # A writer that does not lay them one behind the other leaves nothing to cut between.
    return starts if starts == sorted(starts) else [(0, number) for number in range(len(starts))]


def parquet_rows(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """A column of a Parquet file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        missing = MissingPackageError("reading Parquet", "pyarrow", "parquet")
        raise FileError(file.path, str(missing)) from None
    path, field = file.path, file.field or DEFAULT_FIELD
    try:
        opened = parquet.ParquetFile(path)
        first, last = file.span or (0, sys.maxsize)
        groups = [number for start, number in _group_starts(opened.metadata) if first <= start < last]
        if field not in opened.schema_arrow.names:
            raise FileError(
                path, f"there is no column {field!r}; it has {_names(opened.schema_arrow.names)}: see `field`"
            )
        for rows in opened.iter_batches(batch_size=256, row_groups=groups, columns=[field]):
            for value in rows.column(0):
                text = value.as_py()
                if text is not None and not isinstance(text, str):
                    raise FileError(path, f"the column {field!r} holds {type(text).__name__}, not text")
                if text:
                    yield text
    except UnicodeDecodeError as error:
        raise FileError(path, f"the column {field!r} holds text that is not UTF-8: {error}") from None
    except pyarrow.ArrowMemoryError:
        raise MemoryError from None
    except pyarrow.ArrowException as error:
        raise FileError(path, f"this is not a sound Parquet file: {error}") from None
