"""Copies that a checkpoint is written from."""

from __future__ import annotations

import pytest
import torch

import linnet
from linnet.models import load as load_model
from linnet.train import checkpointer
from linnet.train.state import load, state_path
from tests.train.conftest import Said


def test_copies_lie_side_by_side_in_one_piece_for_each_dtype() -> None:
    own = [torch.randn(3, 4), torch.tensor(5.0), torch.arange(6), torch.empty(0, 2), torch.randn(7)]
    room = checkpointer.in_one_piece(own)
    for each, tensor in zip(room, own, strict=True):
        assert (each.shape, each.dtype) == (tensor.shape, tensor.dtype)
        each.copy_(tensor)
    assert all(torch.equal(each, tensor) for each, tensor in zip(room, own, strict=True))
    assert len({each.untyped_storage().data_ptr() for each in room}) == 2


def test_a_checkpoint_from_one_piece_is_the_same(said: Said, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said(*small, "--steps", "4", "--run-id", "a")
    monkeypatch.setattr(checkpointer, "_room_for", checkpointer.in_one_piece)
    said(*small, "--steps", "4", "--run-id", "b")
    kept = [load(state_path(linnet.open(run).path, 4)).moments for run in ("a", "b")]
    assert kept[0].keys() == kept[1].keys() != set()
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    models = [load_model(linnet.open(run).path / "weights/step_4.gguf").params() for run in ("a", "b")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
