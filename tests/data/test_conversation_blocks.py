"""Conversations in rows: each whole and alone, no token wasted, and every answer said once an epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data import NOT_SCORED, Batches, DataError, Prepared, prepare
from linnet.data.batches import in_order
from linnet.data.conversation_blocks import ConversationBlocks, require_rows
from linnet.data.packing import pack
from tests.data.chats import chat, chats, write_jsonl


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("chats")
    return prepare(chats(root / "chat.jsonl", 240), vocab=400, held_out=0.1, cache=root / "cache")


# -- packing ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), max_size=80), st.integers(40, 64))
@settings(max_examples=200, deadline=None)
def test_every_piece_is_in_one_row_and_no_row_holds_too_much(lengths: list[int], room: int) -> None:
    packing = pack(np.array(lengths, np.int64), room)
    assert sorted(packing.pieces.tolist()) == list(range(len(lengths)))
    sums = [sum(lengths[piece] for piece in packing.row(number)) for number in range(packing.rows)]
    assert all(0 < total <= room for total in sums)
    again = pack(np.array(lengths, np.int64), room)
    assert np.array_equal(again.pieces, packing.pieces) and np.array_equal(again.starts, packing.starts)


@pytest.mark.parametrize(("count", "longest", "room"), [(2000, 300, 1024), (5000, 900, 2048), (600, 64, 512)])
def test_no_more_rows_are_made_than_the_tokens_need(count: int, longest: int, room: int) -> None:
    lengths = np.random.default_rng(0).integers(10, longest, count)
    packing = pack(lengths, room)
    assert packing.rows == -(-int(lengths.sum()) // room)
    sums = np.add.reduceat(lengths[packing.pieces], packing.starts[:-1])
    assert (sums == room).mean() > 0.99 - 1 / packing.rows  # all but the last rows are full to the last token


def test_a_choice_of_pieces_that_fill_a_row_is_found_where_there_is_one() -> None:
    packing = pack(np.array([7, 6, 5, 5, 4, 3]), 10)  # 7 + 3, 6 + 4, 5 + 5
    assert packing.rows == 3


# -- blocks -----------------------------------------------------------------------------------------------------------


def said(prepared: Prepared, number: int) -> tuple[list[int], list[int]]:
    """The ids of a conversation, and the targets that a model reading it alone would have."""
    values = np.asarray(prepared.train.document(number)).astype(np.int64)
    ids, trained = values % prepared.vocab, values >= prepared.vocab
    targets = np.where(trained, ids, NOT_SCORED)[1:]
    last = int(np.flatnonzero(trained)[-1])
    return ids[:last].tolist(), targets[:last].tolist()


def test_a_row_holds_whole_conversations_that_do_not_see_each_other(prepared: Prepared) -> None:
    blocks = ConversationBlocks(prepared.train, prepared.vocab, 256)
    expected = sorted(said(prepared, number) for number in range(len(prepared.train.documents) - 1))
    found = []
    for batch in in_order(blocks, 3):
        assert batch.documents_BT is not None
        assert int((batch.targets_BT != NOT_SCORED).sum()) == batch.n_targets
        for ids, targets, numbers in zip(batch.ids_BT, batch.targets_BT, batch.documents_BT, strict=True):
            assert torch.equal(numbers, numbers.sort().values)
            parts = [(ids[numbers == k].tolist(), targets[numbers == k].tolist()) for k in numbers.unique().tolist()]
            found += [part for part in parts if any(target != NOT_SCORED for target in part[1])]
    assert sorted(found) == expected
    facts = blocks.facts
    assert (facts.tokens, facts.trained) == (
        sum(len(ids) for ids, _ in expected),
        sum(target != NOT_SCORED for _, targets in expected for target in targets),
    )
    assert (facts.cut, facts.left_out, facts.conversations) == (0, 0, len(expected))
    assert facts.padding < 0.05 and blocks.count == facts.rows


def test_an_epoch_shows_every_row_once_and_ranks_share_a_batch(prepared: Prepared) -> None:
    blocks = ConversationBlocks(prepared.train, prepared.vocab, 256)
    batches = Batches(blocks, ctx=256, batch=4, seed=3)
    steps = blocks.count  # four epochs
    rows = [tuple(row.tolist()) for step in range(steps) for row in batches.at(step).ids_BT]
    assert len(set(rows)) == blocks.count and all(rows.count(row) == 4 for row in set(rows))
    whole, shares = batches.at(5), [batches.at(5, rank, 2) for rank in range(2)]
    assert torch.equal(torch.cat([share.ids_BT for share in shares]), whole.ids_BT)
    assert sum(share.n_targets for share in shares) == whole.n_targets == batches.n_targets(5)
    again = Batches(ConversationBlocks(prepared.train, prepared.vocab, 256), ctx=256, batch=4, seed=3)
    assert torch.equal(again.at(7).targets_BT, batches.at(7).targets_BT)


def test_all_of_a_conversation_can_be_trained_on(prepared: Prepared) -> None:
    blocks = ConversationBlocks(prepared.train, prepared.vocab, 256, "all")
    assert blocks.facts.trained == blocks.facts.tokens == len(prepared.train) - blocks.facts.conversations
    assert sum(batch.n_targets for batch in in_order(blocks, 3)) == blocks.facts.trained


def test_answers_beyond_the_context_are_cut_and_counted(tmp_path: Path, cache: Path) -> None:
    long = chat(1, turns=1)
    long[-1]["content"] = "word " * 60
    unread = chat(2, turns=1)
    unread[0]["content"] = "word " * 60
    rows = [{"messages": messages} for messages in (long, unread, chat(3, turns=1))]
    prepared = prepare(write_jsonl(tmp_path / "a.jsonl", rows), vocab=290, held_out=0)
    blocks = ConversationBlocks(prepared.train, prepared.vocab, 48)
    facts = blocks.facts
    assert (facts.conversations, facts.cut, facts.left_out) == (2, 1, 1)
    whole = ConversationBlocks(prepared.train, prepared.vocab, 512).facts
    assert facts.cut_tokens > 20 and whole.conversations == 3
    unread_alone = whole.trained - facts.trained - facts.cut_tokens
    assert 0 < unread_alone < 40, "what is trained on, cut off and left out is all there is"
    assert sum(batch.n_targets for batch in in_order(blocks, 1)) == facts.trained
    with pytest.raises(DataError, match="no answer of its 3 conversations begins within 2 tokens: choose a larger"):
        require_rows(ConversationBlocks(prepared.train, prepared.vocab, 2), "a.jsonl")
