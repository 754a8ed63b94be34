"""Any step's batch, asked for in any order, on any number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data import NOT_SCORED, Batches, DataError, Prepared, TokenSet, windows
from linnet.data.order import shuffled

Make = Callable[..., TokenSet]


@given(size=st.integers(1, 5000), seed=st.integers(-(2**70), 2**70), epoch=st.integers(0, 2**20))
@settings(max_examples=60, deadline=None)
def test_each_epoch_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    index = np.arange(epoch * size, (epoch + 1) * size, dtype=np.uint64)
    assert np.array_equal(np.sort(shuffled(index, size, seed)), np.arange(size))


def test_a_place_far_out_is_found_without_walking_there() -> None:
    size = 10**12
    places = shuffled(np.array([0, 1, size - 1, 5 * size + 3], np.uint64), size, 7)
    assert ((places >= 0) & (places < size)).all()
    assert len(set(places.tolist())) == 4


def test_epochs_and_seeds_differ_and_look_shuffled() -> None:
    first, second = (shuffled(np.arange(k * 1000, (k + 1) * 1000, dtype=np.uint64), 1000, 0) for k in (0, 1))
    other = shuffled(np.arange(1000, dtype=np.uint64), 1000, 1)
    for a, b in ((first, second), (first, other), (first, np.arange(1000))):
        assert (a == b).mean() < 0.02
    assert abs(np.corrcoef(first, np.arange(1000))[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("length", "ctx", "batch"), [(1000, 16, 4), (1003, 16, 7), (17, 16, 3), (16, 15, 1), (523, 64, 9)]
)
def test_every_token_is_a_target_once_an_epoch(token_set: Make, length: int, ctx: int, batch: int) -> None:
    tokens = token_set(length - 2)  # and two marks round it
    batches = Batches(tokens, ctx=ctx, batch=batch, seed=3)
    epochs = batch  # so many epochs end with the end of a batch
    steps = epochs * batches.steps_per_epoch
    assert steps == int(steps)
    seen: Counter[int] = Counter()
    for step in range(int(steps)):
        got = batches.at(step)
        assert got.ids_BT.shape == got.targets_BT.shape == (batch, ctx)
        scored = got.targets_BT != NOT_SCORED
        assert got.n_targets == int(scored.sum())
        seen.update(got.targets_BT[scored].tolist())
    expected = dict.fromkeys((int(token) for token in tokens.tokens[1:]), epochs)
    assert seen == expected


def test_a_target_is_the_token_after_its_input(token_set: Make) -> None:
    tokens = token_set(998)
    batches = Batches(tokens, ctx=32, batch=8, seed=1)
    following = dict(zip(tokens.tokens[1:-1].tolist(), tokens.tokens[2:].tolist(), strict=True))
    for step in range(20):
        got = batches.at(step)
        for row_ids, row_targets in zip(got.ids_BT.tolist(), got.targets_BT.tolist(), strict=True):
            assert row_ids[2:] == [following[token] for token in row_ids[1:-1]]
            for token, target in zip(row_ids[1:], row_targets[1:], strict=True):
                assert target in (NOT_SCORED, following[token])


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_see_the_batch_that_one_would(token_set: Make, ranks: int) -> None:
    tokens = token_set(5000, 4000)
    alone, shared = (Batches(tokens, ctx=24, batch=8, seed=5, documents=True) for _ in range(2))
    for step in (0, 3, 46, 47, 48, 900):
        whole, parts = alone.at(step), [shared.at(step, rank, ranks) for rank in range(ranks)]
        assert torch.equal(torch.cat([part.ids_BT for part in parts]), whole.ids_BT)
        assert torch.equal(torch.cat([part.targets_BT for part in parts]), whole.targets_BT)
        assert whole.documents_BT is not None
        assert torch.equal(
            torch.cat([part.documents_BT for part in parts if part.documents_BT is not None]), whole.documents_BT
        )
        assert sum(part.n_targets for part in parts) == whole.n_targets


def test_a_step_is_the_same_whenever_it_is_asked_for(token_set: Make) -> None:
    tokens = token_set(200_000)
    batches = Batches(tokens, ctx=64, batch=16, seed=2)
    asked = [0, 1, 255, 256, 257, 1000, 31]
    first = {step: batches.at(step).ids_BT.clone() for step in asked}
    for step in reversed(asked):
        assert torch.equal(batches.at(step).ids_BT, first[step])
        assert torch.equal(Batches(tokens, ctx=64, batch=16, seed=2).at(step).ids_BT, first[step])
    assert not torch.equal(Batches(tokens, ctx=64, batch=16, seed=3).at(0).ids_BT, first[0])


def test_documents_tell_which_text_an_input_is_in(token_set: Make) -> None:
    tokens = token_set(10, 20, 5, 40)
    assert tokens.documents.tolist() == [0, 11, 32, 38, 79]
    batches = Batches(tokens, ctx=16, batch=5, seed=0, documents=True)
    got = batches.at(0)
    assert got.documents_BT is not None
    assert got.documents_BT.dtype == torch.int32
    for ids, documents in zip(got.ids_BT.tolist(), got.documents_BT.tolist(), strict=True):
        for place, document in zip(ids, documents, strict=True):
            if place:  # a mark says 0, not its place
                assert tokens.documents[document] < place <= tokens.documents[document + 1]
    (whole,) = windows(tokens, 79, 1, documents=True)
    assert whole.documents_BT is not None
    marks = np.flatnonzero(whole.ids_BT[0].numpy() == 0)
    assert whole.documents_BT[0, marks].tolist() == [0, 1, 2, 3]  # a mark is the first input of what it opens
    assert whole.targets_BT[0, -1] == 0  # and the end of the last text is said too


@pytest.mark.parametrize(("length", "ctx", "batch"), [(1000, 16, 4), (1001, 16, 4), (10, 16, 4), (17, 16, 1)])
def test_windows_score_every_token_once_in_shapes_that_stay(token_set: Make, length: int, ctx: int, batch: int) -> None:
    tokens = token_set(length - 2)
    seen: list[int] = []
    for got in windows(tokens, ctx, batch):
        assert got.ids_BT.shape == got.targets_BT.shape == (batch, ctx)
        scored = got.targets_BT[got.targets_BT != NOT_SCORED].tolist()
        assert got.n_targets == len(scored)
        seen += scored
    assert seen == tokens.tokens[1:].tolist()


def test_a_device_gives_the_batches_that_the_memory_map_gives(token_set: Make) -> None:
    """The meta device has no values, so the CPU stands in for a device that keeps the tokens."""
    tokens = token_set(3000, 1000)
    mapped, kept = (Batches(tokens, ctx=32, batch=8, documents=True) for _ in range(2))
    kept.blocks._tokens = torch.from_numpy(tokens.tokens.astype(np.int32))
    for step in (0, 15, 16, 17):
        a, b = mapped.at(step), kept.at(step)
        assert torch.equal(a.ids_BT, b.ids_BT)
        assert torch.equal(a.targets_BT, b.targets_BT)
    assert mapped.to("meta").at(3).ids_BT.device.type == "meta"


def test_too_little_text_for_a_context_is_said(token_set: Make, prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"the corpus is too small: 12 tokens to train on, but one context of 16 needs 17"
    ):
        Batches(token_set(10), ctx=16, batch=1)
    with pytest.raises(DataError, match="the number of ranks must divide `batch`"):
        Batches(prepared.train, ctx=16, batch=6).at(0, 0, 4)
    with pytest.raises(DataError, match="nothing to score"):
        next(windows(token_set(), 16, 1))
