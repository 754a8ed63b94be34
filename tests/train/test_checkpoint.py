"""Copies that a checkpoint is written from, and its state file."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import linnet
from linnet import gguf
from linnet.models import preset
from linnet.train import checkpoint, state
from linnet.train.checkpoint import Checkpointer, ModelFormat, SilentCheckpointer, copy_tensors
from linnet.train.moment_stream import MomentStream
from linnet.train.ranks import RankLostError
from linnet.train.state import State, StateError
from tests.train.conftest import flip_a_bit

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


def test_a_state_of_copies_is_written_and_read(tmp_path: Path) -> None:
    state.save(tmp_path / "state", State({}, copy_tensors(OWN).on_host()))
    assert all(torch.equal(state.load(tmp_path / "state").moments[name], OWN[name]) for name in OWN)


def test_a_state_is_a_safetensors_file_that_comes_back_exactly(tmp_path: Path) -> None:
    moments = {"exp_avg/w": torch.randn(3, 5), "step/w": torch.tensor(7.0), "none/w": torch.zeros(0, 4)}
    parameters = {"w": torch.randn(3, 5).bfloat16(), "count": torch.arange(4), "flag": torch.tensor([True, False])}
    path = tmp_path / "state" / "step_7.safetensors"
    state.save(path, State({"step": 7, "loss": float("nan")}, moments, parameters))
    found = state.load(path)
    assert found.facts["step"] == 7
    assert all(torch.equal(found.moments[name], tensor) for name, tensor in moments.items())
    assert all(torch.equal(found.parameters[name], tensor) for name, tensor in parameters.items())
    assert torch.equal(load_file(path)["optimizer/exp_avg/w"], moments["exp_avg/w"])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_state_is_as_private_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        state.save(tmp_path / "step_1.safetensors", State({"step": 1}, {"m": torch.ones(2)}))
    finally:
        os.umask(before)
    assert (tmp_path / "step_1.safetensors").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", [-1, -5, 30], ids=["last byte", "an exponent", "the header"])
def test_a_flipped_bit_in_a_state_is_noticed(tmp_path: Path, place: int) -> None:
    path = tmp_path / "step_1.safetensors"
    state.save(path, State({"step": 1, "seen": 100}, {"m": torch.randn(64)}))
    flip_a_bit(path, place)
    with pytest.raises(StateError, match=r"is damaged|cannot be read as the state"):
        state.load(path)


def test_state_files_reach_the_disk_as_weights_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    true_sync = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        true_sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    state.save(tmp_path / "state" / "step_1.safetensors", State({"step": 1}, {"m": torch.ones(2)}))
    assert synced[-1] == str(tmp_path / "state")
    assert Path(synced[0]).parent == tmp_path / "state"


def test_the_next_copy_is_taken_when_the_last_one_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    writing = threading.Event()
    monkeypatch.setattr(checkpoint, "copy_tensors", lambda tensors: copied.append(len(tensors)))
    monkeypatch.setattr(Checkpointer, "_write", lambda self, snapshot: writing.wait(10))
    with linnet.start(tmp_path, system_every=0) as run:
        checkpointer = Checkpointer(run, ModelFormat(preset("tiny")), None, keep=1, file_type="f32", best=None)
        checkpointer.save(1, {}, {}, {}, gguf.Provenance())
        second = threading.Thread(target=checkpointer.save, args=(2, {}, {}, {}, gguf.Provenance()))
        second.start()
        second.join(0.1)
        assert (second.is_alive(), len(copied)) == (True, 2)  # weights and moments of the first
        writing.set()
        second.join(10)
        checkpointer.close()
    assert len(copied) == 4


class _BrokenStream:
    """Of moments, to a rank that is gone."""

    def of_this_rank(self, moments: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return moments

    def send(self, own: Mapping[str, Tensor]) -> None:
        raise RankLostError("rank 0 on node1 is gone after step 30; the last checkpoint stands", speaks=True)

    def drain(self) -> None:
        pass


def test_a_rank_that_writes_nothing_leaves_it_to_the_loop_to_say_who_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    run = linnet.start(arch="llama", mode="disabled")
    checkpointer = SilentCheckpointer(run, ModelFormat(preset("tiny")), None, keep=1, file_type="f32")
    checkpointer.save(30, {}, OWN, {}, gguf.Provenance(), cast(MomentStream, _BrokenStream()))
    checkpointer.close()
    assert str(checkpointer.failure) == "rank 0 on node1 is gone after step 30; the last checkpoint stands"
    assert checkpointer.failure is not None and checkpointer.failure.exit_code == 75
    assert not caplog.records
