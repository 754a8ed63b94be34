"""`linnet data show` of conversations: what is said, what of it is trained on, how it goes into rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Printed, Said
from tests.data.chats import chats, pairs, write_jsonl

ROW = {"messages": [{"role": "user", "content": "How much is 2 + 2?"}, {"role": "assistant", "content": "It's 4 😀."}]}


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "one.jsonl", [ROW])


def test_turns_and_the_tokens_that_are_trained_on_are_shown(printed: Printed, one: Path, smollm2: Path) -> None:
    out = printed("data", "show", str(one), "--base", str(smollm2), "--ctx", "64")
    assert "1 conversation in 1 × jsonl" in out and "written as  chatml, as chats of" in out
    assert "  user       How much is 2 + 2?\n  assistant  It's 4 😀.\n" in out
    pieces = "".join(line.strip() for line in out.splitlines() if line.startswith("    "))
    said = pieces.partition("▶")[2].partition("◀")[0].split("│")
    assert "".join(said) == "It's·4·😀.<|im_end|>" and said[0] == "It"
    assert pieces.startswith("<|im_start|>│system│⏎│You│") and pieces.count("▶") == 1
    assert "1 of 64 tokens, " in out and all(len(line) <= 120 for line in out.splitlines() if "│" in line)
    everything = printed("data", "show", str(one), "--base", str(smollm2), "--train-on", "all")
    assert "(all; 100.0%)" in everything


def test_its_json_has_ids_and_masks(printed: Printed, one: Path, smollm2: Path) -> None:
    shown = json.loads(printed("data", "show", str(one), "--base", str(smollm2), "--ctx", "64", "--json"))
    (sample,) = shown["samples"]
    assert [message["role"] for message in sample["messages"]] == ["user", "assistant"]
    said = [piece for piece, trained in zip(sample["pieces"], sample["trained"], strict=True) if trained]
    assert said[0] == "It" and said[-1] == "<|im_end|>"
    assert shown["trained"] == len(said) and shown["packing"]["rows"] == 1
    assert (shown["rows"], shown["chat_format"], shown["conversations"]) == ("conversations", "chatml", 1)


def test_without_a_base_the_messages_are_shown(printed: Printed, tmp_path: Path) -> None:
    file = chats(tmp_path / "chat.jsonl", 20)
    write_jsonl(tmp_path / "more.jsonl", [{"prompt": "a", "completion": ""}, {"prompt": "a", "completion": "b"}])
    out = printed("data", "show", str(tmp_path), "--documents", "2")
    assert "21 conversations in 2 × jsonl" in out and "--base MODEL shows its tokens" in out
    assert "more.jsonl: 1 row of it left out: line 1 has an empty answer" in out
    assert "lengths of conversations, in bytes of text" in out
    named = printed("data", "show", str(file), "--document", "chat.jsonl:6", "--json")
    assert json.loads(named)["samples"][0]["messages"][0]["content"] == "Be brief."


def test_flags_that_do_not_go_together_are_refused(said: Said, one: Path, corpus: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"messages": [')
    for words, complaint in (
        ((str(one), "--vocab", "400"), "--vocab is for text"),
        ((str(corpus), "--ctx", "64"), "--ctx is for conversations"),
        ((str(broken), "--ctx", "64"), "line 1 is not a JSON object: Input data was truncated"),
        ((str(corpus), "--rows", "conversations"), "it holds no rows, so no conversations"),
    ):
        code, _, err = said("data", "show", *words)
        assert code in (1, 2) and complaint in err


def test_a_pair_is_shown_with_what_of_its_answers_is_compared(
    printed: Printed, said: Said, tmp_path: Path, smollm2: Path
) -> None:
    row = {"prompt": "How much is 2 + 2?", "chosen": "It's 4.", "rejected": "Look it up."}
    file = write_jsonl(tmp_path / "pairs.jsonl", [row])
    out = printed("data", "show", str(file), "--base", str(smollm2), "--ctx", "64")
    assert "1 pair in 1 × jsonl" in out and "2 of 64 tokens, " in out
    assert "  user       How much is 2 + 2?\n  chosen     It's 4.\n  rejected   Look it up.\n" in out
    pieces = "".join(line.strip() for line in out.splitlines() if line.startswith("    "))
    compared = [part.partition("◀")[0].replace("│", "") for part in pieces.split("▶")[1:]]
    assert compared == ["It's·4.<|im_end|>", "Look·it·up.<|im_end|>"]
    shown = json.loads(printed("data", "show", str(file), "--base", str(smollm2), "--ctx", "64", "--json"))
    (sample,) = shown["samples"]
    assert shown["pairs"] == 1 and shown["packing"]["rows"] == 2
    assert [message["content"] for message in sample["rejected"]["messages"]] == [row["prompt"], row["rejected"]]
    assert sum(sample["chosen"]["trained"]) + sum(sample["rejected"]["trained"]) == shown["trained"]
    code, _, err = said("data", "show", str(file), "--base", str(smollm2), "--train-on", "all")
    assert code == 2 and err.count("\n") == 1 and "--train-on all is for conversations" in err


def test_pairs_are_shown_without_a_base_and_prepared(printed: Printed, tmp_path: Path, cache: Path) -> None:
    file = pairs(tmp_path / "pairs.jsonl", 60)
    out = printed("data", "show", str(file), "--documents", "1")
    assert "60 pairs in 1 × jsonl" in out and "\n  rejected   " in out and "lengths of pairs, in bytes of text" in out
    made = json.loads(printed("data", "prepare", str(file), "--vocab", "300", "--cache", str(cache), "--json"))
    assert made["rows"] == "preferences"
