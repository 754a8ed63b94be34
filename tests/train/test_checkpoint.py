"""Copies that a checkpoint is written from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.train.checkpoint import copy_tensors
from linnet.train.state import State, load, save

OWN = {
    "a": torch.randn(3, 4),
    "step": torch.tensor(5.0),
    "whole numbers": torch.arange(6),
    "none": torch.empty(0, 2),
    "turned": torch.randn(7, 5).T,
    "parameter": torch.nn.Parameter(torch.randn(9)),
}


def test_copies_are_equal_and_lie_side_by_side_in_one_piece_for_each_dtype() -> None:
    made = copy_tensors(OWN)
    assert len(made.buffers) == 2
    found = made.on_host()
    assert list(found) == list(OWN)
    for name, tensor in OWN.items():
        assert torch.equal(found[name], tensor)
        assert (found[name].dtype, found[name].requires_grad) == (tensor.dtype, False)
        assert found[name].is_contiguous()


def test_copies_stay_as_they_are_when_training_goes_on() -> None:
    own = {"w": torch.ones(100)}
    made = copy_tensors(own)
    own["w"].zero_()
    assert made.on_host()["w"].sum() == 100


def test_a_device_without_room_hands_its_tensors_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked = torch.empty, []

    def empty(*size: int, **more: object) -> Tensor:
        asked.append(size)
        if len(asked) == 1:
            raise torch.OutOfMemoryError("no room")
        return plain(*size, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "empty", empty)
    assert torch.equal(copy_tensors({"a": OWN["a"]}).on_host()["a"], OWN["a"])
    assert len(asked) == 2


def test_nothing_can_be_copied() -> None:
    assert copy_tensors({}).on_host() == {}


def test_a_state_of_copies_is_written_and_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    save(tmp_path / "state", State({}, copy_tensors(OWN).on_host()))
    assert all(torch.equal(load(tmp_path / "state").moments[name], OWN[name]) for name in OWN)
