"""What is chosen for a GPU, on a machine that has none: only what torch says of it is made up."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from linnet.errors import UsageError
from linnet.train import hardware
from linnet.train.hardware import NOT_REPEATABLE, choose, measured_peak
from linnet.train.settings import TrainSettings

Machine = Callable[[str], list[torch.device]]


@pytest.fixture(autouse=True)
def unmeasured() -> Iterator[None]:
    """No peak is known from another test, and none is left for the next."""
    hardware._own_peak.cache_clear()
    yield
    hardware._own_peak.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two GPUs of that name; the devices that were made torch's current one come back."""

    def made(name: str) -> list[torch.device]:
        current: list[torch.device] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        supported = lambda including_emulation=True: including_emulation or "T4" not in name  # noqa: E731
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        monkeypatch.setattr(torch.cuda, "set_device", current.append)
        monkeypatch.setattr(hardware, "measured_peak", lambda device, dtype: 1e12)
        return current

    return made


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA RTX A1000", 1e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40", 1e12),
        ("NVIDIA L40S", 362e12),
    ],
)
def test_the_peak_is_that_of_the_card_and_of_no_namesake(name: str, peak: float, machine: Machine) -> None:
    machine(name)
    assert choose(TrainSettings(device="cuda"), 32).peak_flops == peak


@pytest.mark.parametrize(
    ("settings", "head_size", "repeatable"),
    [
        ({}, 64, True),
        ({}, None, False),  # a loss of one's own
        ({}, 60, False),
        ({}, 256, False),
        ({"dtype": "float32"}, 64, False),
        ({"compile": "off"}, 64, False),
        ({"deterministic": False}, 64, False),
        ({"deterministic": True}, None, True),
        ({"deterministic": True, "compile": "off", "dtype": "float32"}, 256, True),
    ],
)
def test_a_gpu_run_says_whether_it_is_repeatable_to_the_bit(
    settings: dict[str, Any], head_size: int | None, repeatable: bool, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("NVIDIA H200")
    monkeypatch.setattr(hardware, "_missing_compiler", lambda device: "")
    found = choose(TrainSettings(device="cuda", **settings), 32, head_size=head_size)
    assert found.repeatable is repeatable and found.fields()["repeatable"] is repeatable
    assert found.ordered is (settings.get("deterministic") is not False)
    assert found.strict is (settings.get("deterministic") is True)
    assert ("repeatable to the bit" if repeatable else NOT_REPEATABLE) in found.why
    assert repeatable is (NOT_REPEATABLE not in found.why)


def test_other_gpus_than_those_that_were_measured_must_be_asked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("NVIDIA A100")
    monkeypatch.setattr(hardware, "_missing_compiler", lambda device: "")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert not choose(TrainSettings(device="cuda"), 32, head_size=64).repeatable
    assert choose(TrainSettings(device="cuda", deterministic=True), 32, head_size=64).repeatable


def test_a_cpu_is_always_repeatable_and_metal_never() -> None:
    for wanted in (None, False, True):
        found = choose(TrainSettings(device="cpu", deterministic=wanted), 32)
        assert found.repeatable and "repeatable" not in found.why
    with pytest.raises(UsageError, match="`deterministic`: nothing is known of the order of sums on mps; use"):
        hardware._is_repeatable(
            TrainSettings(deterministic=True), torch.device("mps"), torch.float32, compiled=False, head_size=64
        )


def test_cublas_is_asked_to_repeat_itself_and_no_other_wish_is_overruled(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("NVIDIA H200")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    choose(TrainSettings(device="cuda"), 32)
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    choose(TrainSettings(device="cuda", deterministic=True), 32)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    with pytest.raises(
        UsageError, match=r"needs CUBLAS_WORKSPACE_CONFIG to be :4096:8 or :16:8, found ':0:0': unset it"
    ):
        choose(TrainSettings(device="cuda", deterministic=True), 32)


@pytest.mark.parametrize(("name", "dtype"), [("NVIDIA H200", torch.bfloat16), ("Tesla T4", torch.float32)])
def test_bf16_is_for_cards_that_have_it_not_for_those_that_emulate_it(
    name: str, dtype: torch.dtype, machine: Machine
) -> None:
    machine(name)
    assert choose(TrainSettings(device="cuda"), 32).dtype == dtype


def test_a_gpu_with_a_number_becomes_the_current_one(machine: Machine) -> None:
    current = machine("NVIDIA H200")
    assert choose(TrainSettings(device="cuda:1"), 32).device == torch.device("cuda:1")
    assert current == [torch.device("cuda:1")]  # where streams, events and kernels go that name no device


def test_without_a_compiler_a_gpu_trains_eagerly_and_says_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("NVIDIA H200")
    monkeypatch.setattr(hardware, "find_spec", lambda name: name)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = choose(TrainSettings(device="cuda"), 32)
    assert not found.compile and "compile off (no C++ compiler is installed)" in found.why


def test_a_peak_measured_while_others_are_busy_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(device: torch.device, dtype: torch.dtype) -> float:
        time.sleep(0.02)  # the process waits for a core
        return 1e11

    monkeypatch.setattr(hardware, "measured_peak", measured)
    found = choose(TrainSettings(device="cpu"), 32)
    assert found.peak_flops is None
    assert "peak not measured (other processes are busy), so no MFU" in found.why


def test_the_peak_is_measured_once_for_many_short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr(hardware, "measured_peak", lambda device, dtype: measured.append(dtype) or 1e11)
    monkeypatch.setattr(time, "monotonic", lambda: 600.0)
    for dtype in ("float32", "bfloat16", "float32"):
        choose(TrainSettings(device="cpu", dtype=dtype), 32)
    assert measured == [torch.float32, torch.bfloat16]
    monkeypatch.setattr(time, "monotonic", lambda: 661.0)
    choose(TrainSettings(device="cpu", dtype="float32"), 32)
    assert len(measured) == 3


def test_the_peak_of_a_dtype_that_the_cpu_only_emulates_is_measured_in_no_time() -> None:
    began = time.process_time()
    assert measured_peak(torch.device("cpu"), torch.bfloat16) > 0
    assert time.process_time() - began < 3, "four products of large matrices took ten seconds"
