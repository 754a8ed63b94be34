"""Multiple-choice rows, in the shapes of public sets; and what is wrong with one, with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from linnet.data.choices import read_choices
from linnet.data.errors import DataError
from tests.data.chats import write_jsonl

ROW: dict[str, Any] = {"question": "Which is red?", "choices": ["sky", "rose", "sea"], "answer": 1}


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        {**ROW, "answer": "B"},
        {**ROW, "answer": "b"},
        {**ROW, "answer": "rose"},
        {**ROW, "answer": "1"},
        {**ROW, "answer": None, "gold": [1]},
        {"ctx": "Red is the", "endings": ["sky", "rose", "sea"], "label": "1", "ind": 4},
        {"query": "Red is the", "choices": ["sky", "rose", "sea"], "gold": 1},
        {"prompt": "Red is the", "choices": ["sky", "rose", "sea"], "label": 1},
        {"question": "?", "options": ["sky", "rose", "sea"], "answer": "B"},
        {"question": "?", "choices": {"text": ["sky", "rose", "sea"], "label": ["1", "2", "3"]}, "answerKey": "2"},
    ],
)
def test_rows_of_public_sets_are_understood(tmp_path: Path, row: dict[str, Any]) -> None:
    (read,) = read_choices(write_jsonl(tmp_path / "rows.jsonl", [row]))
    assert (read.choices, read.answer) == (("sky", "rose", "sea"), 1)
    assert read.place == f"{tmp_path / 'rows.jsonl'}: line 1"
    assert read.text == (f"Question: {row['question']}\nAnswer:" if "question" in row else "Red is the")


def test_jsonl_packed_json_and_parquet_give_the_same(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = [ROW, {**ROW, "answer": 0}, {**ROW, "question": "Œ?", "choices": ["a", "b"]}]
    plain = write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "list.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "lines.json").write_bytes(plain.read_bytes())
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    expected = [(row.prompt, row.choices, row.answer) for row in read_choices(plain)]
    assert [answer for _, _, answer in expected] == [1, 0, 1]
    for name in ("rows.jsonl.gz", "list.json", "lines.json", "rows.parquet"):
        assert [(row.prompt, row.choices, row.answer) for row in read_choices(tmp_path / name)] == expected, name


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"answer": 3}, "has 3 under 'answer', expected a number from 0 to 2"),
        ({"answer": -1}, "has -1 under 'answer', expected a number from 0 to 2"),
        ({"answer": True}, "has True under 'answer', expected a number from 0 to 2, a letter, or the text of a choice"),
        ({"answer": "D"}, "has 'D' under 'answer', expected a number from 0 to 2, a letter, or the text of a choice"),
        ({"answer": "tree"}, "has 'tree' under 'answer', expected a number from 0 to 2, a letter, or the text of"),
        ({"answer": "x" * 5000}, f"has '{'x' * 39}… under 'answer', expected"),
        ({"answer": ""}, "has '' under 'answer', expected a number from 0 to 2"),
        ({"answer": [0, 1]}, "has [0, 1] under 'answer', expected a number from 0 to 2"),
        ({"answer": None}, "has no answer; it has question, choices, answer: expected one of answer, label, gold"),
        ({"label": 1}, "has 'answer' as well as 'label': keep one of them"),
        ({"choices": ["1", "2", "3"], "answer": "1"}, "has '1' under 'answer', which may be the text of one choice or"),
        (
            {"choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answer": "C"},
            "has 'C' under 'answer', expected one of",
        ),
        ({"choices": {"text": ["a", "b"], "label": ["A"]}}, "has labels of its choices that are not as many as these"),
        ({"choices": ["sky"]}, "has 1 choice, expected two or more"),
        ({"choices": []}, "has 0 choices, expected two or more"),
        ({"choices": "sky"}, "has text under 'choices', expected a list of texts"),
        ({"choices": ["sky", 4]}, "has a number as choice 1, expected text"),
        ({"choices": ["sky", " "]}, "has an empty choice 1"),
        ({"choices": None}, "has no choices; it has question, choices, answer: expected one of choices, endings"),
        ({"question": None}, "has no prompt; it has question, choices, answer: expected one of question, prompt, ctx"),
        ({"question": 4}, "has a number under 'question', expected text"),
        ({"query": "a"}, "has 'question' as well as 'query': keep one of them"),
    ],
)
def test_a_row_that_is_wrong_is_named_by_its_line(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", [ROW, {**ROW, **change}])
    with pytest.raises(DataError) as caught:
        read_choices(path)
    assert str(caught.value).startswith(f"{path}: line 2 {problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rows.jsonl", b"", "the file is empty"),
        ("rows.jsonl", b"\n  \n", "the file is empty"),
        ("rows.json", b"[]", "there are no rows in it: expected JSONL or Parquet with a prompt"),
        ("rows.jsonl", b'{"question": "a", "choices": ["b", "c"], "answer": 0}\n{"question": "a",', "line 2 is not a"),
        ("rows.jsonl", b"\xff\xfe", "line 1 is not a JSON object"),
        ("rows.jsonl", b"[1, 2]", "this is not a list of JSON objects"),
        ("rows.parquet", b"PAR1 and no more", "this is not a sound Parquet file"),
        ("rows.csv", b"question,answer\na,b\n", "multiple-choice rows are read from JSONL (.jsonl, .jsonl.gz …), JSON"),
        ("rows.jsonl.gz", b"\x1f\x8b\x08 broken", "the compressed file is damaged"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_choices(path)
    assert str(caught.value).startswith(f"{path}: {problem}") and "\n" not in str(caught.value)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.jsonl: there is no such file"):
        read_choices(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="expected a file, found something else"):
        read_choices(tmp_path)
