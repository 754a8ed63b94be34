"""Sets larger than memory and than the device: read ahead of their steps, the same batches as any other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from linnet.data import Batches, DataError, TokenSet, windows
from linnet.data.prefetch import Prefetch
from linnet.data.token_set import TokenSetHeader, TokenSetWriter, segment_path, write_joined

Make = Callable[..., TokenSet]
LENGTHS = [700, 3, 41, 1900, 2, 2, 350, 800] * 12


@pytest.fixture(params=["one file", "joined"])
def tokens(request: pytest.FixtureRequest, token_set: Make, tmp_path: Path) -> TokenSet:
    """Documents of many lengths, in one file or in five."""
    whole = token_set(*LENGTHS)
    if request.param == "one file":
        return whole
    parts = []
    for number, lengths in enumerate(np.array_split(np.array(LENGTHS), 5), 1):
        writer = TokenSetWriter(segment_path(tmp_path / "joined.tokens", number), vocab=70_000, end=0)
        done = sum(part.documents.size - 1 for part in parts)
        for index in range(done, done + len(lengths)):
            writer.open_document()
            ids = whole.document(index)
            writer.add(ids.tobytes(), len(ids))
        writer.close()
        parts.append(TokenSet(writer.path))
    write_joined(tmp_path / "joined.tokens", parts)
    return TokenSet(tmp_path / "joined.tokens")


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_a_streamed_set_gives_the_batches_of_one_in_memory(
    tokens: TokenSet, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    plain = Batches(tokens, ctx=32, batch=4, seed=3, documents=True).to(device)
    assert not plain.blocks.is_streamed
    monkeypatch.setattr("linnet.data.batches._ON_DEVICE", 0)
    monkeypatch.setattr("linnet.data.batches._AHEAD", 1000)
    streamed = Batches(tokens, ctx=32, batch=4, seed=3, documents=True).to(device)
    assert streamed.blocks.is_streamed
    for step in [*range(60), 7, 8, 100_000, 3, 59]:  # in order, and as a resumed run or a curious person asks
        mine, theirs = streamed.at(step), plain.at(step)
        for a, b in zip(mine.inputs, theirs.inputs, strict=True):
            assert a is not None and b is not None
            assert a.dtype == b.dtype and a.equal(b)
        assert mine.n_targets == theirs.n_targets
    for rank in range(2):
        assert streamed.at(5, rank, 2).ids_BT.equal(plain.at(5, rank, 2).ids_BT)
    for a_batch, b_batch in zip(windows(tokens, 32, 4, device=device), windows(tokens, 32, 4), strict=True):
        assert a_batch.ids_BT.cpu().equal(b_batch.ids_BT)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="asks a GPU whether anything waits for it")
def test_nothing_waits_for_the_gpu(tokens: TokenSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.data.batches._ON_DEVICE", 0)
    monkeypatch.setattr("linnet.data.batches._AHEAD", 1000)
    batches = Batches(tokens, ctx=32, batch=4, documents=True).to("cuda")
    batches.at(0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(200):
            batches.at(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_next_blocks_are_read_while_a_step_is_trained(tokens: TokenSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.data.batches._ON_DEVICE", 0)
    monkeypatch.setattr("linnet.data.batches._AHEAD", 1)  # a step at a time
    batches = Batches(tokens, ctx=32, batch=4)
    threads: list[str] = []
    gather = batches.blocks.gather
    monkeypatch.setattr(
        batches.blocks, "gather", lambda blocks: (threads.append(threading.current_thread().name), gather(blocks))[1]
    )
    for step in range(10):
        batches.at(step)
    assert threads[0] == "MainThread"
    assert len(threads) >= 10 and all(name.startswith("linnet-prefetch") for name in threads[1:])


def test_a_set_larger_than_the_memory_is_trained_on_in_little(tmp_path: Path) -> None:
    """A sparse file of 256 GiB: nothing but its holes is on the disk."""
    n_tokens, path = 128 << 30, tmp_path / "huge.tokens"
    header = TokenSetHeader(1, 2, n_tokens, 1, n_tokens, 50_000, 0, bytes(32))
    try:
        with path.open("wb") as file:
            file.write(header.to_bytes())
            file.truncate(header.size)
            file.seek(-8, os.SEEK_END)
            file.write((n_tokens - 1).to_bytes(8, "little"))
    except OSError:
        pytest.skip("this file system has no files of 256 GiB")
    assert n_tokens * 2 > psutil.virtual_memory().total
    batches = Batches(TokenSet(path), ctx=512, batch=16, documents=True)
    assert batches.blocks.is_streamed
    process = psutil.Process()
    batches.at(0)
    before = process.memory_full_info().uss
    for step in range(0, 3000, 40):
        assert int(batches.at(step).ids_BT.sum()) == 0
    assert process.memory_full_info().uss - before < 300 << 20


def test_what_is_foreseen_is_done_once_and_a_failure_is_raised() -> None:
    calls: list[int] = []

    def work(key: int) -> int:
        calls.append(key)
        if key == 3:
            raise DataError("gone")
        return key * key

    prefetch: Prefetch[int, int] = Prefetch(work)
    assert [prefetch.take(key, [key + 1]) for key in (0, 1, 2)] == [0, 1, 4]
    with pytest.raises(DataError, match="gone"):
        prefetch.take(3, [4])
    assert prefetch.take(9, []) == 81
    prefetch.close()
    assert len(calls) == len(set(calls))
