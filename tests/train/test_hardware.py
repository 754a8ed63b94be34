"""What is chosen for a GPU, on a machine that has none: only what torch says of it is made up."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from linnet.train import hardware
from linnet.train.hardware import choose, measured_peak
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


def test_a_gpu_run_says_that_it_is_not_repeatable_to_the_bit(machine: Machine) -> None:
    machine("NVIDIA H200")
    words = "not repeatable to the bit (identical runs drift apart)"
    assert words in choose(TrainSettings(device="cuda"), 32).why
    assert words not in choose(TrainSettings(device="cpu"), 32).why


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
    assert "peak unknown, other processes are busy" in found.why


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
