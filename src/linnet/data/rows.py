"""Rows of JSONL, CSV, TSV and Parquet: whole (`ROW_READERS`), or the text in one field of each."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from linnet.data.compression import DamagedError, read_blocks
from linnet.data.corpus_file import LARGEST, CorpusFile, FileError, ReadingReport
from linnet.data.encoding import UTF8
from linnet.data.errors import MissingPackageError
from linnet.errors import error_text, mismatch

DEFAULT_FIELD = "text"
# Under which keys a question and its answer stand (`conversations.py`).
QUESTIONS, ANSWERS = ("prompt", "instruction", "question"), ("completion", "response", "output", "answer")
_LARGEST_FIELD = 1 << 26  # characters of a CSV field; Python's csv holds four bytes for each
_DELIMITERS = ",;\t|"
_LAST = "\0the end of the file\0"  # no text holds NULs
_LONE_SURROGATE = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")
JSON_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}


class Row(NamedTuple):
    """A row by the names of its fields; `place` says where it stands: `line 17`."""

    place: str
    fields: dict[str, Any]


class _LineTooLongError(Exception):
    """A line of more bytes than are held in memory."""


def json_lines(file: CorpusFile, report: ReadingReport, longest: int = LARGEST) -> Iterator[str]:
    """The text under the field of each line; a line of more than `longest` bytes is refused."""
    field = file.field or DEFAULT_FIELD
    with closing(json_rows(file, report, longest)) as rows:
        for place, record in rows:
            text = record.get(field)
            if not isinstance(text, str):
                report.skip_row(file, f"{place} {_why_no_text(record, field)}")
            elif text:
                yield text


def json_rows(file: CorpusFile, report: ReadingReport, longest: int = LARGEST) -> Generator[Row, None, None]:
    """The objects of a JSONL file."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    number, begin = 0, file.span[0] if file.span else 0
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
            yield Row(f"line {number}{behind}", record)
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
    return f"is not a JSON object: {mismatch(error)}"


def _why_no_text(record: dict[str, Any], field: str) -> str:
    if field in record:
        kind = JSON_KINDS[type(record[field])]
        return f"has {kind} under {field!r}, expected text: see `field`, or leave the line out"
    if (question := _unanswered(record, field)) is not None:
        return f"has {question} and no answer to train on: {_expected(question)}"
    return f"has no text {field!r}; it has {_names(list(record))}: see `field`"


def _why_no_column(names: Sequence[str], field: str) -> str:
    if (question := _unanswered(names, field)) is not None:
        return f"there is {question} and no column of answers to train on: {_expected(question)}"
    return f"there is no column {field!r}; it has {_names(names)}: see `field`"


def _unanswered(names: Collection[str], field: str) -> str | None:
    """The question among the names of a row that has no answer, and no text either."""
    if field != DEFAULT_FIELD or any(name in names for name in ANSWERS):
        return None
    return next((name for name in QUESTIONS if name in names), None)


def _expected(question: str) -> str:
    answer = "output" if question == "instruction" else "answer" if question == "question" else "completion"
    return f"expected {question} and {answer}, or the name of a text (`field`)"


def _names(names: Sequence[str]) -> str:
    """The first few, each cut short: they are a file's words, of any length."""
    return ", ".join(name[:40] for name in names[:8]) or "nothing"


def separated_values(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """A column of a CSV or TSV file; its first record names the columns.

    Fields may be quoted, as spreadsheets do it, and then hold line ends. A `.csv` may be separated by semicolons, tabs
    or bars as well: by what stands most often in its first line.
    """
    field = file.field or DEFAULT_FIELD
    with closing(_separated_records(file, report)) as records:
        column, width = 0, 0
        for number, record in records:
            if not width:
                if field not in record:
                    raise FileError(file.path, _why_no_column(record, field))
                column, width = record.index(field), len(record)
            elif len(record) > column:
                if record[column]:
                    yield record[column]
            else:
                report.skip_row(file, f"line {number} has {len(record)} of {width} columns")


def separated_rows(file: CorpusFile, report: ReadingReport) -> Generator[Row, None, None]:
    """The rows of a CSV or TSV file by the names in its first record."""
    names: list[str] | None = None
    with closing(_separated_records(file, report)) as records:
        for number, record in records:
            if names is None:
                names = record
            elif len(record) < len(names):
                report.skip_row(file, f"line {number} has {len(record)} of {len(names)} columns")
            else:
                yield Row(f"line {number}", dict(zip(names, record, strict=False)))


def _separated_records(file: CorpusFile, report: ReadingReport) -> Generator[tuple[int, list[str]], None, None]:
    """The records of a file, that of its columns' names first, each with the number of the line at its end."""
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
        yield records.line_num, next(records)
        is_closed = False
        for record in records:
            if record == [_LAST]:
                is_closed = True
            elif record and record[-1].endswith(_LAST):
                break
            elif record:
                yield records.line_num, record
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


def parquet_texts(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """A column of a Parquet file."""
    field = file.field or DEFAULT_FIELD
    with _parquet_batches(file, field) as batches:
        for batch in batches:
            for value in batch.column(0):
                text = value.as_py()
                if text is not None and not isinstance(text, str):
                    raise FileError(file.path, f"the column {field!r} holds {type(text).__name__}, not text")
                if text:
                    yield text


def parquet_rows(file: CorpusFile, report: ReadingReport) -> Generator[Row, None, None]:
    """The rows of a Parquet file; those of a part of it are counted from its first."""
    number = 0
    with _parquet_batches(file) as batches:
        for batch in batches:
            for record in batch.to_pylist():
                number += 1
                yield Row(f"row {number}", record)


@contextmanager
def _parquet_batches(file: CorpusFile, field: str | None = None) -> Iterator[Iterator[Any]]:
    """The rows of a Parquet file, some at a time; of one column, or all. What is wrong with them is a FileError."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        missing = MissingPackageError("reading Parquet", "pyarrow", "parquet")
        raise FileError(file.path, str(missing)) from None
    try:
        opened = parquet.ParquetFile(file.path)
        first, last = file.span or (0, sys.maxsize)
        groups = [number for start, number in _group_starts(opened.metadata) if first <= start < last]
        names = opened.schema_arrow.names
        if field is not None and field not in names:
            raise FileError(file.path, _why_no_column(names, field))
        yield opened.iter_batches(batch_size=256, row_groups=groups, columns=field and [field])
    except UnicodeDecodeError as error:
        column = "a column" if field is None else f"the column {field!r}"
        raise FileError(file.path, f"{column} holds text that is not UTF-8: {error_text(error)}") from None
    except pyarrow.ArrowMemoryError:
        raise MemoryError from None
    except pyarrow.ArrowException as error:
        raise FileError(file.path, f"this is not a sound Parquet file: {error_text(error)}") from None


def json_array_rows(file: CorpusFile, report: ReadingReport) -> Generator[Row, None, None]:
    """The objects of a JSON file that is one list of them."""
    try:
        records = msgspec.json.decode(file.content(), type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(file.path, f"this is not a list of JSON objects: {mismatch(error)}") from None
    yield from (Row(f"row {number}", record) for number, record in enumerate(records, 1))


# How the rows of a file are read, by how the file is: what conversations are made of.
ROW_READERS: dict[str, Callable[[CorpusFile, ReadingReport], Generator[Row, None, None]]] = {
    "jsonl": json_rows,
    "json": json_array_rows,
    "parquet": parquet_rows,
    "csv": separated_rows,
    "tsv": separated_rows,
}
