"""What the rows of a corpus are: texts, conversations or preferences, told by the keys of the first one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from linnet.data.conversations import RowError, Shape, has_other_messages, lacks_values
from linnet.data.corpus import PYTHON, TEXT, Corpus, RowKind
from linnet.data.corpus_file import CorpusFile, ReadingReport
from linnet.data.errors import DataError
from linnet.data.preferences import CHOSEN, REJECTED, holds_preference
from linnet.data.rows import DEFAULT_FIELD, ROW_READERS, json_array_rows

_HEAD = 1 << 16  # bytes of a JSON list in which its first object is looked for


def with_rows(source: Corpus, rows: RowKind | None = None, *, has_field: bool = False) -> Corpus:
    """A corpus with what its rows are: as `rows` says, else by looking at the first; texts where a field was named."""
    if rows == "text" or source.name == PYTHON or source.is_pack:
        if rows not in (None, "text"):
            raise DataError(f"corpus {source.name}: it holds no rows, and `rows={rows}` needs some: JSONL, Parquet, …")
        return source
    first = _first_row(source) if rows is None and not has_field else None
    kind = rows or ("text" if first is None else kind_of(first))
    if kind == "text":
        return source if first is None else replace(source, remark=_other_kind_remark(first))
    files, left_out = [], list(source.left_out)
    for number, file in enumerate(source.files):
        read = _with_rows(file)
        if read is None:
            left_out.append(f"{source.shown_name(number)}: it holds no rows")
        else:
            files.append(read)
    if not files or (source.strict and len(files) < len(source.files)):
        named = left_out[len(source.left_out)] if files else source.name
        raise DataError(
            f"corpus {named.partition(':')[0]}: it holds no rows, so no {kind}: expected JSONL, Parquet, CSV or a JSON"
            " list"
        )
    return replace(source, files=tuple(files), left_out=tuple(left_out), rows=kind)


def _first_row(source: Corpus) -> dict[str, Any] | None:
    """The first row of the first file that holds some."""
    for file in source.files:
        if (read := _with_rows(file)) is None:
            continue
        if read.kind != "jsonl" or read.compression is not None:
            source.complete([file])  # of plain JSONL in a store the beginning is here
        if (fields := _first_fields(read)) is not None:
            return fields
    return None


def kind_of(fields: Mapping[str, Any]) -> RowKind:
    """What a row is. One with a text is a text, as it always was."""
    if isinstance(fields.get(DEFAULT_FIELD), str):
        return "text"
    if holds_preference(fields):
        return "preferences"
    with suppress(RowError):
        is_conversation = Shape.of(fields) is not None or lacks_values(fields) or has_other_messages(fields)
        return "conversations" if is_conversation else "text"
    return "conversations"  # of two kinds: whoever reads it says so


def _other_kind_remark(fields: Mapping[str, Any]) -> str:
    """What is said of a row that is read as a text and holds a conversation or a pair as well, as Alpaca's do."""
    if not isinstance(fields.get(DEFAULT_FIELD), str):
        return ""
    if all(fields.get(key) for key in (CHOSEN, REJECTED)):
        keys, kind, learnt = f"{CHOSEN} and {REJECTED}", "preferences", "learns from the pairs"
    else:
        try:
            shape = Shape.of(fields)
        except RowError:
            return ""
        if shape is None:
            return ""
        keys, kind, learnt = str(shape), "conversations", "trains on the answers alone"
    return (
        f"rows have {keys} beside {DEFAULT_FIELD!r}, and are read as plain text, with the loss on all of it:"
        f" `rows={kind}` {learnt}, `rows=text` says that the text is meant"
    )


def _with_rows(file: CorpusFile) -> CorpusFile | None:
    """A file that holds rows, as it is read for them; a JSON list is else read as the text that it is."""
    if file.kind in ROW_READERS:
        return file
    if file.kind != TEXT or not file.name.lower().endswith(".json"):
        return None
    with suppress(DataError, OSError):
        head = next(file.blocks(), b"")[:_HEAD]
        return replace(file, kind="json") if re.match(rb"\s*\[\s*\{", head) else None
    return None


def _first_fields(file: CorpusFile) -> dict[str, Any] | None:
    """The first row of a file; None where it cannot be read, which the reading says."""
    with suppress(DataError, OSError):
        if file.kind == "json":
            head = next(file.blocks(), b"")[:_HEAD].decode("utf-8", "ignore")
            with suppress(ValueError):
                fields, _ = json.JSONDecoder().raw_decode(head, head.index("{"))
                return dict(fields)
        reader = json_array_rows if file.kind == "json" else ROW_READERS[file.kind]
        with closing(reader(file, ReadingReport(strict=True))) as rows:
            row = next(rows, None)
            return None if row is None else row.fields
    return None
