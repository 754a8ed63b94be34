"""Multiple-choice rows: a prompt, its choices and the right one, under the keys that public sets have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.data.compression import compression_by_content, compression_by_name
from linnet.data.corpus_file import CorpusFile, FileError, ReadingReport
from linnet.data.errors import DataError, printable, reason
from linnet.data.rows import JSON_KINDS, ROW_READERS

_QUESTION = "question"
_PROMPTS = (_QUESTION, "prompt", "ctx", "query", "question_stem")
_CHOICES = ("choices", "endings", "options")
_ANSWERS = ("answer", "label", "gold", "answerKey")
_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
_FIRST_LETTER = ord("A")
_SHOWN = 40  # characters of a file's own words in an error


class _RowError(Exception):
    """A row that is not what it should be: the rest of a sentence that begins with its place."""


@dataclass(frozen=True)
class ChoiceRow:
    """What is asked, the choices, and the number of the right one, from 0; `place`: `arc.jsonl: line 17`.

    `is_question`: the prompt is a bare question, which a text has to say is one.
    """

    place: str
    prompt: str
    choices: tuple[str, ...]
    answer: int
    is_question: bool = False

    @property
    def text(self) -> str:
        """What a choice goes on from. A question is written as `lm-evaluation-harness` writes those of ARC."""
        return f"Question: {self.prompt}\nAnswer:" if self.is_question else self.prompt


def read_choices(path: str | os.PathLike[str]) -> list[ChoiceRow]:
    """The rows of a JSONL or Parquet file, or of a JSON list. The first that is wrong is a DataError with its place."""
    file = _open(Path(path))
    name = printable(file.path)
    rows: list[ChoiceRow] = []
    place = ""
    try:
        with closing(ROW_READERS[file.kind](file, ReadingReport(strict=True))) as numbered_rows:
            for place, fields in numbered_rows:
                rows.append(_row(f"{name}: {place}", fields))
    except FileError as error:
        raise DataError(f"{name}: {error.problem}") from None
    except _RowError as error:
        raise DataError(f"{name}: {place} {error}") from None
    except OSError as error:
        raise DataError(f"{name}: the file cannot be read: {reason(error)}") from None
    if not rows:
        raise DataError(f"{name}: there are no rows in it: expected JSONL or Parquet with a prompt, choices, an answer")
    return rows


def _open(path: Path) -> CorpusFile:
    """How the file is read, by its name and its first byte."""
    name = printable(path)
    if not path.is_file():
        found = ", found something else" if path.exists() else ""
        raise DataError(f"{name}: {'expected a file' if found else 'there is no such file'}{found}")
    inner, compression = compression_by_name(path.name)
    kind = _KINDS.get(Path(inner).suffix.lower())
    if kind is None or (kind == "parquet" and compression is not None):
        raise DataError(
            f"{name}: multiple-choice rows are read from JSONL (.jsonl, .jsonl.gz …), JSON or Parquet files"
        )
    file = CorpusFile(path, kind, compression=compression)
    try:
        if compression is None and kind == "jsonl":
            with path.open("rb") as opened:
                compression = compression_by_content(opened.read(8))
            file = CorpusFile(path, kind, compression=compression)
        first = next((block.lstrip()[:1] for block in file.blocks() if not block.isspace()), b"")
    except FileError as error:
        raise DataError(f"{name}: {error.problem}") from None
    except OSError as error:
        raise DataError(f"{name}: the file cannot be read: {reason(error)}") from None
    if not first:
        raise DataError(f"{name}: the file is empty")
    return CorpusFile(path, "json" if kind == "jsonl" and first == b"[" else kind, compression=compression)


def _row(place: str, fields: Mapping[str, Any]) -> ChoiceRow:
    prompt_key = _only_key(fields, _PROMPTS, "prompt")
    choices_key = _only_key(fields, _CHOICES, "choices")
    prompt = fields[prompt_key]
    if not isinstance(prompt, str):
        raise _RowError(f"has {_kind(prompt)} under {prompt_key!r}, expected text")
    choices, labels = _choices(fields[choices_key], choices_key)
    answer_key = _only_key(fields, _ANSWERS, "answer")
    try:
        answer = _answer(fields[answer_key], choices, labels)
    except _RowError as error:
        raise _RowError(f"has {_shown(fields[answer_key])} under {answer_key!r}, {error}") from None
    return ChoiceRow(place, prompt, choices, answer, prompt_key == _QUESTION)


def _only_key(fields: Mapping[str, Any], keys: tuple[str, ...], meaning: str) -> str:
    """The one of these keys that a row has."""
    present = [key for key in keys if fields.get(key) is not None]
    if len(present) > 1:
        raise _RowError(f"has {present[0]!r} as well as {present[1]!r}: keep one of them")
    if not present:
        names = ", ".join(key[:_SHOWN] for key in list(fields)[:8]) or "nothing"
        raise _RowError(f"has no {meaning}; it has {names}: expected one of {', '.join(keys)}")
    return present[0]


def _choices(value: Any, key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of the choices and their labels, as ARC has them: `{"text": […], "label": ["A", …]}`."""
    labels: Any = ()
    if isinstance(value, dict):
        value, labels = value.get("text"), value.get("label", ())
    if not isinstance(value, list):
        raise _RowError(f"has {_kind(value)} under {key!r}, expected a list of texts")
    if len(value) < 2:
        raise _RowError(f"has {len(value)} choice{'s'[: len(value) != 1]}, expected two or more")
    for number, choice in enumerate(value):
        if not isinstance(choice, str):
            raise _RowError(f"has {_kind(choice)} as choice {number}, expected text")
        if not choice.strip():
            raise _RowError(f"has an empty choice {number}")
    if not isinstance(labels, list | tuple) or (labels and len(labels) != len(value)):
        raise _RowError(f"has labels of its choices that are not as many as these, {len(value)}")
    return tuple(value), tuple(map(str, labels))


def _answer(value: Any, choices: tuple[str, ...], labels: tuple[str, ...]) -> int:
    """The number of the right choice: given as such, as a letter or label, or as the choice's text."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    count = len(choices)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < count:
            raise _RowError(f"expected a number from 0 to {count - 1}")
        return value
    if not isinstance(value, str) or not value.strip():
        raise _RowError(f"expected a number from 0 to {count - 1}, a letter, or the text of a choice")
    if labels:
        if labels.count(value) == 1:
            return labels.index(value)
        raise _RowError(f"expected one of its labels, {', '.join(label[:_SHOWN] for label in labels[:8])}")
    # A text may be read in several ways ("1" of the choices 1, 2, 3): only where all of them agree it is understood.
    readings = set(_readings(value.strip(), choices))
    if len(readings) > 1:
        raise _RowError("which may be the text of one choice or the place of another: give a number instead of a text")
    if not readings:
        raise _RowError(f"expected a number from 0 to {count - 1}, a letter, or the text of a choice")
    return readings.pop()


def _readings(value: str, choices: tuple[str, ...]) -> Iterator[int]:
    texts = [choice.strip() for choice in choices]
    if value in texts:
        yield texts.index(value)
    places = []
    if len(value) == 1 and value.isascii() and value.isalpha():
        places.append(ord(value.upper()) - _FIRST_LETTER)
    if value.isascii() and value.isdecimal() and len(value) < 4:
        places.append(int(value))
    yield from (place for place in places if place < len(choices))


def _kind(value: Any) -> str:
    return "text" if isinstance(value, str) else JSON_KINDS.get(type(value), "no text")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
