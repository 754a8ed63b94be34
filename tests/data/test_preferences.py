"""Rows of a prompt, a chosen and a rejected answer: in the shapes people keep them in, as pairs, in rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data import NOT_SCORED, Batches, DataError, Prepared, join_parts, prepare, prepare_part
from linnet.data.batches import in_order
from linnet.data.conversations import NoAnswerError, RowError
from linnet.data.packing import pack_pairs
from linnet.data.preference_blocks import PreferenceBatch, PreferenceBlocks, require_pairs
from linnet.data.preferences import Pair, pair_as_json, pair_from_json, read_pair
from linnet.gguf.chat_format import Message
from tests.data.chats import pair_row, pairs, write_jsonl

ASKED, GOOD, BAD = Message("user", "hi?", False), Message("assistant", "hello"), Message("assistant", "go away")


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi?", "chosen": "hello", "rejected": "go away"},
        {"question": "hi?", "chosen": "hello", "rejected": "go away"},
        {"prompt": [said("user", "hi?")], "chosen": [said("assistant", "hello")], "rejected": "go away"},
        {"prompt": "hi?", "chosen": said("assistant", "hello"), "rejected": {"from": "gpt", "value": "go away"}},
        {  # whole conversations in both, with other columns beside them: ultrafeedback
            "prompt": "hi?",
            "prompt_id": "7",
            "messages": [said("user", "hi?"), said("assistant", "hello")],
            "chosen": [said("user", "hi?"), said("assistant", "hello")],
            "rejected": [said("user", "hi?"), said("assistant", "go away")],
            "score_chosen": 8.0,
        },
        {
            "chosen": [said("user", "hi?"), said("assistant", "hello")],
            "rejected": [said("user", "hi?"), said("assistant", "go away")],
        },
    ],
)
def test_a_pair_is_read_in_the_shapes_that_people_keep_it_in(row: dict[str, Any]) -> None:
    pair = read_pair(row)
    assert pair == Pair([ASKED, GOOD], [ASKED, BAD])
    assert pair_from_json(pair_as_json(pair)) == pair


def test_what_both_conversations_say_is_not_trained_on() -> None:
    earlier = [said("user", "a?"), said("assistant", "b"), said("user", "hi?")]
    row = {
        "system": "Be brief.",
        "prompt": "a?",
        "chosen": [*earlier, said("assistant", "hello")],
        "rejected": [*earlier, said("assistant", "go away"), said("user", "why?"), said("assistant", "so")],
    }
    pair = read_pair(row)
    assert [(m.role, m.trained) for m in pair.chosen] == [
        ("system", False),
        ("user", False),
        ("assistant", False),
        ("user", False),
        ("assistant", True),
    ]
    assert [m.content for m in pair.rejected if m.trained] == ["go away", "so"]


@pytest.mark.parametrize(
    ("row", "kind", "complaint"),
    [
        ({"prompt": "a", "chosen": "b"}, RowError, "has no rejected: expected prompt, chosen and rejected"),
        ({"prompt": "a", "completion": "b"}, RowError, "holds no preference; it has prompt, completion"),
        ({"chosen": "b", "rejected": "c"}, RowError, "has no prompt: expected prompt, chosen and rejected (chosen)"),
        ({"prompt": "a", "question": "a", "chosen": "b", "rejected": "c"}, RowError, "has two prompts, prompt as well"),
        ({"prompt": "a", "chosen": 3, "rejected": "c"}, RowError, "has a number in chosen, expected text (chosen)"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, NoAnswerError, "has the same answer as chosen and as reje"),
        ({"prompt": "a", "chosen": "b", "rejected": " "}, NoAnswerError, "has an empty answer (rejected)"),
        (
            {
                "prompt": [said("user", "a"), said("assistant", "b")],
                "chosen": [said("assistant", "c")],
                "rejected": "d",
            },
            RowError,
            "has its roles out of order: message 3 is of the assistant, after one of the assistant, expected user",
        ),
        (
            {
                "chosen": [said("user", "a?"), said("assistant", "b")],
                "rejected": [said("user", "other?"), said("assistant", "c")],
            },
            RowError,
            "has other questions before its chosen answer than before its rejected one: expected one prompt",
        ),
        (
            {
                "chosen": [said("user", "a?"), said("assistant", "b")],
                "rejected": [said("user", "a?"), said("assistant", "b"), said("user", "c"), said("assistant", "d")],
            },
            NoAnswerError,
            "has an answer that only begins the other one",
        ),
    ],
)
def test_a_row_that_is_no_pair_says_why(row: dict[str, Any], kind: type[RowError], complaint: str) -> None:
    with pytest.raises(RowError) as error:
        read_pair(row)
    assert type(error.value) is kind and str(error.value).startswith(complaint)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("pairs")
    return prepare(pairs(root / "pairs.jsonl", 240), vocab=400, held_out=0.1, cache=root / "cache")


def test_rows_of_pairs_are_found_by_their_keys_and_bad_ones_are_named(tmp_path: Path, cache: Path) -> None:
    good = [pair_row(number) for number in range(20)]
    same = {"prompt": "a", "chosen": "b", "rejected": "b"}
    mixed = prepare(write_jsonl(tmp_path / "mixed.jsonl", [*good, same, same]), vocab=300, held_out=0, cache=cache)
    assert mixed.rows == "preferences" and len(mixed.train.documents) - 1 == 20
    expected = "mixed.jsonl: 2 rows of it left out: line 21 has the same answer as chosen and as rejected"
    assert mixed.left_out == (expected,)
    for bad, complaint in (
        ({"prompt": "a", "chosen": "b"}, "bad.jsonl: line 21 has no rejected: expected prompt, chosen and rejected"),
        ({"messages": []}, "bad.jsonl: line 21 holds no preference; it has messages: expected prompt, chosen and rej"),
    ):
        with pytest.raises(DataError, match=complaint):
            prepare(write_jsonl(tmp_path / "bad.jsonl", [*good, bad]), vocab=300, cache=cache)


def test_parquet_gives_the_same_pairs(tmp_path: Path, cache: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [pair_row(number) for number in range(40)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    write_jsonl(tmp_path / "a.jsonl", rows)
    one, other = (prepare(tmp_path / f"a.{kind}", vocab=300, cache=cache) for kind in ("parquet", "jsonl"))
    assert one.train.fingerprint == other.train.fingerprint and one.rows == other.rows == "preferences"


def test_workers_and_parts_make_the_same_pairs(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs").mkdir()
    for name in ("a", "b"):
        pairs(tmp_path / f"pairs/{name}.jsonl", 60 if name == "a" else 90)
    tokenizer = prepared.path / "tokenizer.gguf"
    options: dict[str, Any] = {"tokenizer": tokenizer, "held_out": 0.1}
    whole = prepare(tmp_path / "pairs", **options, cache=tmp_path / "whole")
    monkeypatch.setattr("linnet.data.workers.BUNDLE", 4000)
    shared = prepare(tmp_path / "pairs", **options, workers=2, cache=tmp_path / "shared")
    assert shared.fingerprint == whole.fingerprint and whole.rows == "preferences"
    for number in (2, 1):
        prepare_part(tmp_path / "pairs", f"{number}/2", **options, cache=tmp_path / "parts")
    joined = join_parts(tmp_path / "pairs", **options, cache=tmp_path / "parts")
    assert joined.rows == "preferences" and joined.train.fingerprint == whole.train.fingerprint


# -- blocks -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=80), st.integers(40, 64))
@settings(max_examples=200, deadline=None)
def test_both_pieces_of_a_pair_have_room_in_the_two_rows_of_a_block(lengths: list[tuple[int, int]], room: int) -> None:
    lengths_P2 = np.array(lengths, np.int64).reshape(-1, 2)
    blocks = pack_pairs(lengths_P2, room)
    assert sorted(place.pair for block in blocks for place in block) == list(range(len(lengths)))
    for block in blocks:
        used = np.sum([lengths_P2[pair][::-1] if swapped else lengths_P2[pair] for pair, swapped in block], 0)
        assert block and (used <= room).all()
    assert pack_pairs(lengths_P2, room) == blocks


def test_hardly_a_token_is_padding_although_chosen_answers_are_longer() -> None:
    dice = np.random.default_rng(0)
    asked, answers = dice.integers(5, 100, (2000, 1)), dice.integers(10, 300, (2000, 2)) + np.array([40, 0])
    lengths = asked + answers
    blocks = pack_pairs(lengths, 1024)
    assert len(blocks) < 1.03 * lengths.sum() / 2048


def pair_of(prepared: Prepared, number: int) -> list[tuple[list[int], list[int]]]:
    """The ids of both conversations of a pair, and the targets that a model reading each alone would have."""
    values = np.asarray(prepared.train.document(number)).astype(np.int64)
    parts = []
    for side in range(2):
        mine = values[values // (2 * prepared.vocab) == side]
        ids, trained = mine % prepared.vocab, mine // prepared.vocab % 2 == 1
        last = int(np.flatnonzero(trained)[-1])
        parts.append((ids[:last].tolist(), np.where(trained, ids, NOT_SCORED)[1 : last + 1].tolist()))
    return parts


def test_a_block_holds_whole_pairs_that_do_not_see_each_other(prepared: Prepared) -> None:
    blocks = PreferenceBlocks(prepared.train, prepared.vocab, 128)
    expected = sorted(pair_of(prepared, number) for number in range(len(prepared.train.documents) - 1))
    found = []
    for batch in in_order(blocks, 3):
        assert isinstance(batch, PreferenceBatch) and batch.documents_BT is not None
        assert batch.signs_BT is not None and batch.pairs_BP is not None
        assert ((batch.signs_BT == 0) == (batch.targets_BT == NOT_SCORED)).all()
        assert int((batch.pairs_BP[::2] >= 0).sum()) == batch.n_targets
        for block in range(0, len(batch.ids_BT), 2):
            for pair in (number for number in batch.pairs_BP[block].tolist() if number >= 0):
                sides = {}
                for row in (block, block + 1):
                    mine = batch.documents_BT[row] == pair
                    ids, targets = batch.ids_BT[row][mine].tolist(), batch.targets_BT[row][mine].tolist()
                    (sign,) = set(batch.signs_BT[row][mine].tolist()) - {0.0}
                    sides[sign] = (ids, targets)
                found.append([sides[1.0], sides[-1.0]])
    assert sorted(found) == expected
    facts = blocks.facts
    assert facts.conversations == len(expected) and (facts.cut, facts.left_out) == (0, 0)
    assert facts.trained == sum(t != NOT_SCORED for pair in expected for _, targets in pair for t in targets)
    assert facts.padding < 0.1


def test_ranks_share_a_batch_by_whole_blocks(prepared: Prepared) -> None:
    batches = Batches(PreferenceBlocks(prepared.train, prepared.vocab, 128), ctx=128, batch=4, seed=3)
    whole, shares = batches.at(5), [batches.at(5, rank, 2) for rank in range(2)]
    for number, tensor in enumerate(whole.inputs):
        assert tensor is not None and len(tensor) == 8
        parts = [share.inputs[number] for share in shares]
        assert np.array_equal(np.concatenate([part.numpy() for part in parts if part is not None]), tensor.numpy())
    assert sum(share.n_targets for share in shares) == whole.n_targets == batches.n_targets(5)


def test_answers_beyond_the_context_are_cut_and_counted(tmp_path: Path, cache: Path) -> None:
    row = {"prompt": "red?", "chosen": "blue " * 120, "rejected": "green."}
    unread = {"prompt": "red " * 160, "chosen": "blue.", "rejected": "green."}
    short = [pair_row(number) for number in range(30)]
    prepared = prepare(write_jsonl(tmp_path / "a.jsonl", [row, unread, *short]), vocab=290, held_out=0, cache=cache)
    facts = PreferenceBlocks(prepared.train, prepared.vocab, 64).facts
    whole = PreferenceBlocks(prepared.train, prepared.vocab, 512).facts
    assert (facts.cut, facts.left_out, facts.conversations, whole.conversations) == (1, 1, 31, 32)
    assert facts.cut_tokens > 10
    with pytest.raises(DataError, match="of none of its 32 pairs both answers begin within 2 tokens: choose a larger"):
        require_pairs(PreferenceBlocks(prepared.train, prepared.vocab, 2), "a.jsonl")
