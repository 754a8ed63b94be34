"""The text of a corpus, streamed document by document.

A document is a file, a JSONL line, a row of a table, or what stands between `<|endoftext|>` marks in a `.txt` file; or
a conversation, as a line of JSON, where rows are that. A passage is a whole document or, of one longer than a mebibyte,
a part that ends with a line: so memory stays bounded, and a corpus that is one long book has something to hold out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from linnet.data.books import docx, epub, html_page, notebook
from linnet.data.conversations import conversation_texts
from linnet.data.corpus_file import CorpusFile, FileError, ReadingReport
from linnet.data.errors import DataError, reason
from linnet.data.pdf import pdf
from linnet.data.preferences import preference_texts
from linnet.data.rows import json_lines, parquet_texts, separated_values

if TYPE_CHECKING:
    from linnet.data.corpus import Corpus, RowKind

END_OF_TEXT = "<|endoftext|>"
_LONG = 1 << 20  # characters a document may have and stay whole
_PASSAGE = 1 << 16
# What one machine would read on from differently, the next ones cannot know of.
_SHARED = "a file that several parts share must be sound: repair it, leave it out, or prepare the corpus whole"


class Passage(NamedTuple):
    """Text that is encoded and held out as one; `opens` tells the first passage of a document."""

    text: str
    opens: bool


class TextFormat(NamedTuple):
    """A file format of its own: how its files end, `read(file, report)` for their texts, and what is asked of them."""

    suffixes: tuple[str, ...]
    read: Callable[[CorpusFile, ReadingReport], Iterator[str]]
    is_encoded: bool = False  # text of some encoding, which is to be told
    has_fields: bool = False
    packable: bool = True  # may be compressed as a whole
    is_document: bool = False  # a file gives one text, and takes its time: what it gave is kept between passes


# All that a new format needs is a reader and an entry here; its name becomes a part of the corpus's hash.
TEXT_FORMATS = {
    "jsonl": TextFormat((".jsonl", ".ndjson"), json_lines, is_encoded=True, has_fields=True),
    "parquet": TextFormat((".parquet", ".pq"), parquet_texts, has_fields=True, packable=False),
    "csv": TextFormat((".csv",), separated_values, is_encoded=True, has_fields=True),
    "tsv": TextFormat((".tsv", ".tab"), separated_values, is_encoded=True, has_fields=True),
    "html": TextFormat((".html", ".htm", ".xhtml"), html_page, is_encoded=True, is_document=True),
    "notebook": TextFormat((".ipynb",), notebook, is_encoded=True, is_document=True),
    "epub": TextFormat((".epub",), epub, is_document=True),
    "docx": TextFormat((".docx",), docx, is_document=True),
    "pdf": TextFormat((".pdf",), pdf, is_document=True),
}


def passages(
    corpus: Corpus, size: int | None = None, report: ReadingReport | None = None, kept: Path | None = None
) -> Iterator[Passage]:
    """All text of a corpus. With `size`, every document is cut into passages of about so many characters.

    What cannot be read is an error where the corpus is strict, else it is left out and `report` has it. `kept` is a
    folder for the text of PDFs and the like, which a second pass over the corpus then has at hand.
    """
    report = report if report is not None else ReadingReport(corpus.strict)
    for number, file in enumerate(corpus.files):
        report.begin(number)
        is_begun = False
        ruled = file if file.field is not None else replace(file, field=corpus.field)
        try:
            read = _passages_of(ruled, corpus.rows, report, size, kept and kept / f"{number}.txt")
            with closing(read) as texts:
                for passage in texts:
                    is_begun = True
                    yield passage
        except FileError as error:
            if file.span is not None:
                raise DataError(f"{error}; {_SHARED}") from None
            report.fail(error, is_begun)
        except OSError as error:
            raise DataError(f"corpus {file.path}: the file cannot be read: {reason(error)}") from None
        except MemoryError:
            raise DataError(f"corpus {file.path}: there is not enough memory to read it; split the file") from None
        if file.span is not None and number in report.encodings:
            raise DataError(f"corpus {file.path}: it is not UTF-8; {_SHARED}")
        report.end()


def _passages_of(
    file: CorpusFile, rows: RowKind, report: ReadingReport, size: int | None, kept: Path | None
) -> Generator[Passage, None, None]:
    if rows == "conversations":
        yield from (Passage(text, True) for text in conversation_texts(file, report))
        return
    if rows == "preferences":
        yield from (Passage(text, True) for text in preference_texts(file, report))
        return
    if file.kind not in TEXT_FORMATS:
        yield from _text_file(file, report, size)
        return
    form = TEXT_FORMATS[file.kind]
    for text in form.read(file, report) if kept is None or not form.is_document else _kept_text(file, report, kept):
        yield from cut(text, True, size)


def _kept_text(file: CorpusFile, report: ReadingReport, kept: Path) -> Iterator[str]:
    """The text of a document, read once; what went wrong the first time is not tried again."""
    if (failure := report.failures.get(kept)) is not None:
        raise failure
    if not kept.exists():
        try:
            text = "".join(TEXT_FORMATS[file.kind].read(file, report))
        except FileError as error:
            report.failures[kept] = error
            raise
        kept.write_bytes(text.encode("utf-8"))
    if text := kept.read_bytes().decode("utf-8"):
        yield text


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


def _text_file(file: CorpusFile, report: ReadingReport, size: int | None) -> Iterator[Passage]:
    is_marked = file.name.endswith(".txt")
    buffer, opens, is_first = "", True, not file.span or not file.span[0]
    failure: FileError | None = None
    blocks = file.text(report.switched)
    while True:
        try:
            block = next(blocks, None)
        except FileError as error:  # what was read before it is given first
            block, failure = None, error
        if block is None:
            break
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
    if failure is not None:
        raise failure
