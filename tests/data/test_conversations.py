"""Rows that hold conversations: found by their keys, in every shape and file, and what is wrong with them."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from linnet.data import DataError, Prepared, join_parts, prepare, prepare_part
from linnet.data.conversations import from_json
from linnet.data.corpus import find_corpus
from linnet.data.documents import passages
from linnet.data.row_kinds import with_rows
from linnet.data.token_set import TokenSet
from linnet.gguf import GGUFFile
from linnet.gguf.chat_families import chat_format_of
from linnet.gguf.chat_format import Message
from tests.data.chats import chat, chats, write_jsonl
from tests.data.test_parts import assert_same

PAIRS = [(f"What is {k}?", f"It is {k}.") for k in range(40)]


def read(path: Path, **options: Any) -> list[list[Message]]:
    source = with_rows(find_corpus(path, options.pop("field", None)), **options)
    return [from_json(passage.text) for passage in passages(source)] if source.rows != "text" else []


def as_messages(pairs: list[tuple[str, str]]) -> list[list[Message]]:
    return [[Message("user", question), Message("assistant", answer)] for question, answer in pairs]


@pytest.mark.parametrize(
    "shape",
    [
        lambda q, a: {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]},
        lambda q, a: {"messages": [{"role": "human", "content": [{"text": q}]}, {"from": "gpt", "value": a}]},
        lambda q, a: {"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}], "id": 3},
        lambda q, a: {"prompt": q, "completion": a},
        lambda q, a: {"prompt": [{"role": "user", "content": q}], "completion": [{"role": "assistant", "content": a}]},
        lambda q, a: {"instruction": q, "input": "", "output": a},
        lambda q, a: {"question": q, "answer": a},
        lambda q, a: {"prompt": q, "messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]},
    ],
)  # fmt: skip
def test_every_shape_gives_the_same_messages(tmp_path: Path, shape: Any) -> None:
    file = write_jsonl(tmp_path / "rows.jsonl", [shape(*pair) for pair in PAIRS])
    assert read(file) == as_messages(PAIRS)


def test_an_input_follows_its_instruction_and_a_system_prompt_comes_first(tmp_path: Path) -> None:
    rows = [{"instruction": "Translate.", "input": "Haus", "output": "house", "system": "Be brief."}]
    expected = [Message("system", "Be brief."), Message("user", "Translate.\n\nHaus"), Message("assistant", "house")]
    assert read(write_jsonl(tmp_path / "a.jsonl", rows)) == [expected]


def test_every_file_gives_the_same_messages(tmp_path: Path) -> None:
    rows = [{"prompt": question, "completion": answer} for question, answer in PAIRS]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    files = {"a.jsonl": lines, "b.jsonl.gz": gzip.compress(lines), "c.ndjson.bz2": bz2.compress(lines)}
    files |= {"d.json": json.dumps(rows, indent=1).encode(), "e.json.gz": gzip.compress(json.dumps(rows).encode())}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "f.parquet")
    with (tmp_path / "g.csv").open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([("completion", "prompt"), *((answer, question) for question, answer in PAIRS)])
    for name in (*files, "f.parquet", "g.csv"):
        assert read(tmp_path / name) == as_messages(PAIRS), name
    assert read(tmp_path) == as_messages(PAIRS) * 7  # the folder
    nested = [{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]} for q, a in PAIRS]
    parquet.write_table(pyarrow.Table.from_pylist(nested), tmp_path / "h.parquet")
    assert read(tmp_path / "h.parquet") == as_messages(PAIRS)


def test_rows_with_a_text_or_a_field_are_texts_as_they_were(tmp_path: Path) -> None:
    rows = [{"text": "as it was", "instruction": "a", "output": "b"}] * 3
    assert with_rows(find_corpus(write_jsonl(tmp_path / "a.jsonl", rows))).rows == "text"
    assert len(read(tmp_path / "a.jsonl", rows="conversations")) == 3
    assert with_rows(find_corpus(tmp_path / "a.jsonl")).remark == (
        "rows have instruction and output beside 'text', and are read as plain text, with the loss on all of it:"
        " `rows=conversations` trains on the answers alone, `rows=text` says that the text is meant"
    )
    assert not with_rows(find_corpus(tmp_path / "a.jsonl"), "text").remark
    assert not with_rows(find_corpus(tmp_path / "a.jsonl", ("text",)), has_field=True).remark
    for others, kind in (
        ({"chosen": "a", "rejected": "b"}, "preferences"),
        ({"prompt": "a"}, ""),
        ({"output": ""}, ""),
    ):
        remark = with_rows(find_corpus(write_jsonl(tmp_path / "e.jsonl", [{"text": "as it was", **others}]))).remark
        assert (f"`rows={kind}` learns from the pairs" in remark) if kind else not remark
    chats(tmp_path / "b.jsonl", 3)
    assert with_rows(find_corpus(tmp_path / "b.jsonl")).rows == "conversations"
    assert with_rows(find_corpus(tmp_path / "b.jsonl", "body"), has_field=True).rows == "text"
    assert with_rows(find_corpus(tmp_path / "b.jsonl"), "text").rows == "text"
    for messages in (json.dumps(chat(1)), chat(1)[0]):
        write_jsonl(tmp_path / "d.jsonl", [{"messages": messages}])
        with pytest.raises(DataError, match=r"line 1 has .* in messages, expected a list of messages"):
            read(tmp_path / "d.jsonl")
    (tmp_path / "c.txt").write_text("text")
    with pytest.raises(DataError, match=r"corpus .*c.txt: it holds no rows, so no conversations: expected JSONL"):
        with_rows(find_corpus(tmp_path / "c.txt"), "conversations")


def test_other_files_of_a_folder_are_left_out_and_named(tmp_path: Path) -> None:
    chats(tmp_path / "chat.jsonl", 3)
    (tmp_path / "README.md").write_text("# a data set")
    source = with_rows(find_corpus(tmp_path))
    assert (source.rows, len(source.files), source.left_out) == ("conversations", 1, ("README.md: it holds no rows",))


def row(*messages: tuple[str, Any], **others: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages], **others}


GOOD = row(("user", "a"), ("assistant", "b"))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('{"messages": [', "line 2 is not a JSON object: Input data was truncated"),
        (row(("assistant", "b")), "line 2 has its roles out of order: message 1 is of the assistant, at the beginning"),
        (row(("user", "a"), ("user", "b"), ("assistant", "c")), "message 2 is of the user, after one of the user"),
        (row(("user", "a"), ("system", "b"), ("assistant", "c")), "message 2 is of the system, after one of the user"),
        (row(("user", "a"), ("tool", "b")), "line 2 has a message 2 of the role 'tool': expected system, user or"),
        ({"messages": [{"content": "x"}]}, "line 2 has a message 1 without a role"),
        ({"messages": ["x"]}, "line 2 has a message 1 that is no object"),
        (row(("user", None), ("assistant", "b")), "line 2 has null in message 1, expected text"),
        (row(("user", [{"type": "image_url"}]), ("assistant", "b")), "line 2 has a list in message 1, expected text"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [{}]}]},
         "line 2 has a message 2 that calls a tool (calls of tools are not trained on)"),
        ({"prompt": "a", "completion": "b"}, "line 2 has prompt and completion, and the rows before it messages: keep"),
        ({"prompt": "a", **GOOD, "completion": "b"}, "line 2 is of two kinds, messages as well as prompt and"),
        ({"title": "a"}, "line 2 holds no conversation; it has title: expected messages, or prompt and completion"),
        ({"messages": "a"}, "line 2 has a text in messages, expected a list of messages"),
        ({"prompt": None, "completion": "b"}, "line 2 has an answer, and null for its question"),
        ({"messages": [{"role": "user", "content": "a", "weight": 0.5}]}, "message 1 with the weight 0.5: expected 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_said_with_its_line(tmp_path: Path, second: Any, words: str) -> None:
    lines = [json.dumps(GOOD), second if isinstance(second, str) else json.dumps(second)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.jsonl")
    assert words in str(caught.value) and str(caught.value).startswith(f"corpus {tmp_path / 'a.jsonl'}: ")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.jsonl").rename(tmp_path / "folder/a.jsonl")
    assert len(read(tmp_path / "folder")) == 1  # in a folder it is left out


def test_rows_without_an_answer_are_left_out_and_counted(tmp_path: Path, cache: Path) -> None:
    silent = [row(("user", "a")), row(("user", "a"), ("assistant", " \n")), row(("user", "a"), ("assistant", ""))]
    unweighted = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]}
    file = write_jsonl(tmp_path / "a.jsonl", [*silent, *({"messages": chat(k)} for k in range(20)), unweighted])
    prepared = prepare(file, vocab=300)
    assert prepared.left_out == ("a.jsonl: 4 rows of it left out: line 1 has no answer to train on",)
    nothing: list[Any] = [{"prompt": "a", "completion": None}, {"messages": None}]
    write_jsonl(file, [*nothing, *({"prompt": f"{k}", "completion": f"red {k} why far {k}"} for k in range(40))])
    assert prepare(file, vocab=280).left_out == ("a.jsonl: 2 rows of it left out: line 1 has no answer to train on",)
    write_jsonl(file, nothing)
    with pytest.raises(
        DataError,
        match=r"a.jsonl: 2 rows of it left out: line 1 has no answer to train on; nothing is left to train on$",
    ):
        prepare(file, vocab=300)
    write_jsonl(file, silent)
    with pytest.raises(
        DataError, match=r"a.jsonl: 3 rows of it left out: line 1 has no answer to train on; nothing is left to"
    ):
        prepare(file, vocab=300)
    assert len(list(cache.glob("a-*"))) == 2 and prepared.path in cache.glob("a-*")


def test_a_trailing_question_is_not_there_and_weights_of_zero_are_read_only(tmp_path: Path) -> None:
    messages = [*chat(1, turns=2), {"role": "user", "content": "unanswered"}]
    messages[1]["weight"] = 0  # type: ignore[assignment]
    (found,) = read(write_jsonl(tmp_path / "a.jsonl", [{"messages": messages}]))
    assert [message.trained for message in found] == [True, False, True, True]
    assert found[-1].role == "assistant"


# -- prepared ---------------------------------------------------------------------------------------------------------


def conversations(prepared: Prepared, tokens: TokenSet) -> Iterator[tuple[str, str]]:
    """Each conversation as it is written, and what of it is trained on."""
    assert prepared.tokenizer is not None
    for number in range(len(tokens.documents) - 1):
        values = np.asarray(tokens.document(number))
        ids, trained = values % prepared.vocab, values >= prepared.vocab
        yield tuple(prepared.tokenizer.decode(part.tolist(), skip_special_tokens=False) for part in (ids, ids[trained]))  # type: ignore[misc]


def test_a_prepared_set_holds_conversations_and_what_is_trained_on(cache: Path, tmp_path: Path) -> None:
    prepared = prepare(chats(tmp_path / "chat.jsonl"), vocab=400, held_out=0.1)
    assert prepared.is_chat and prepared.vocab == 400 and prepared.train.end is None
    written = dict([*conversations(prepared, prepared.train), *conversations(prepared, prepared.held_out)])
    assert len(written) == 120 and len(prepared.held_out.documents) > 3
    expected = {}
    for number in range(120):
        messages = chat(number)
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        expected[text] = "".join(f"{m['content']}<|im_end|>" for m in messages if m["role"] == "assistant")
    assert written == expected
    template = GGUFFile.open(prepared.path / "tokenizer.gguf").metadata["tokenizer.chat_template"]
    assert "<|im_start|>" in str(template), "a vocabulary of its own brings the template that it was trained with"


def test_sides_cache_and_workers_are_those_of_texts(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, stages = chats(tmp_path / "chat.jsonl"), list[str]()
    first = prepare(file, vocab=400, held_out=0.1, progress=lambda stage, *_: stages.append(stage))
    assert set(stages) == {"vocabulary", "tokens"}
    stages.clear()
    again = prepare(file, vocab=400, held_out=0.1, progress=lambda stage, *_: stages.append(stage))
    assert (again.fingerprint, stages) == (first.fingerprint, [])
    assert prepare(file, vocab=400, held_out=0.1, chat_format="plain").fingerprint != first.fingerprint
    held_out = set(conversations(first, first.held_out))
    chats(file, 140)  # what is added moves nothing
    more = prepare(file, tokenizer=first.path / "tokenizer.gguf", held_out=0.1)
    assert held_out <= set(conversations(more, more.held_out))
    monkeypatch.setattr("linnet.data.workers.BUNDLE", 4000)
    shared = prepare(file, tokenizer=first.path / "tokenizer.gguf", held_out=0.1, workers=2, cache=tmp_path / "other")
    assert shared.fingerprint == more.fingerprint


def test_parts_joined_are_what_one_machine_makes(tmp_path: Path) -> None:
    (tmp_path / "chat").mkdir()
    chats(tmp_path / "chat/a.jsonl")
    rows = [{"prompt": question, "completion": answer} for question, answer in PAIRS]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "chat/b.parquet", row_group_size=7)
    whole = prepare(tmp_path / "chat", vocab=400, held_out=0.1, cache=tmp_path / "whole")
    for number in (3, 1, 2):
        prepare_part(tmp_path / "chat", f"{number}/3", vocab=400, held_out=0.1, cache=tmp_path / "parts")
    joined = join_parts(tmp_path / "chat", vocab=400, held_out=0.1, cache=tmp_path / "parts")
    assert_same(joined, whole)
    assert len(joined.train.files) > 1 and joined.is_chat


def test_a_donor_keeps_its_template_and_gets_one_where_it_has_none(cache: Path, tmp_path: Path, smollm2: Path) -> None:
    file = chats(tmp_path / "chat.jsonl", 12)
    donors = prepare(file, tokenizer=smollm2)
    with GGUFFile.open(smollm2) as donor:
        template = donor.metadata["tokenizer.chat_template"]
    assert donors.vocabulary is not None and donors.vocabulary.metadata["tokenizer.chat_template"] == template
    plain = prepare(file, tokenizer=smollm2, chat_format="plain")
    assert plain.vocabulary is not None
    assert chat_format_of(plain.vocabulary.metadata).name == "plain", "others write its chats as it was trained"
    again = prepare(file, tokenizer=plain.path / "tokenizer.gguf", chat_format="plain", cache=tmp_path / "other")
    assert again.fingerprint == plain.fingerprint, "a checkpoint's tokenizer gives the same set again"


def test_a_format_that_the_vocabulary_cannot_write_is_refused_before_anything_is_made(
    cache: Path, tmp_path: Path, smollm2: Path
) -> None:
    file = chats(tmp_path / "chat.jsonl", 12)
    with pytest.raises(DataError, match=r"llama-3 needs <\|start_header_id\|> and"):
        prepare(file, tokenizer=smollm2, chat_format="llama-3")
    with pytest.raises(
        DataError, match="`chat_format=gemma` is not for a vocabulary that is trained here: choose from"
    ):
        prepare(file, vocab=400, chat_format="gemma")
    assert not cache.exists()
