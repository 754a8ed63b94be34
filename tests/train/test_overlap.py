"""Sums that begin during the backward pass: complete gradients only, the last bucket first, the same norm."""

from __future__ import annotations

import time
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from linnet.kernels import Executor
from linnet.models import LlamaConfig, build
from linnet.train import TrainSettings
from linnet.train.hardware import choose
from linnet.train.overlap import Overlap
from linnet.train.ranks import Ranks
from linnet.train.step import Step


class Sum:
    def __init__(self, part: Tensor) -> None:
        self._part = part

    def wait(self) -> None:
        time.sleep(0.002)
        self._part *= 2  # as if another rank had the same


class TwoAlike(Ranks):
    """Two ranks of which one is imagined; it notes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[int, Tensor]] = []

    def start_sum(self, part: Tensor) -> Sum:
        self.sent.append((part.storage_offset(), part.clone()))
        return Sum(part)


def overlap_of(parameters: list[nn.Parameter], ranks: Ranks, size: int) -> tuple[Overlap, Tensor]:
    starts = [sum(parameter.numel() for parameter in parameters[:index]) for index in range(len(parameters))]
    end = sum(parameter.numel() for parameter in parameters)
    flat = torch.zeros(end + 8)
    views = [
        flat[start : start + parameter.numel()].view(parameter.shape)
        for start, parameter in zip(starts, parameters, strict=True)
    ]
    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view
    return Overlap(parameters, views, starts, end, flat, ranks, size), flat


@pytest.mark.parametrize("width", [4, 600], ids=["small", "large"])
def test_a_bucket_is_sent_when_its_gradients_are_complete(width: int) -> None:
    layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))
    parameters, ranks = list(layers.parameters()), TwoAlike()
    overlap, flat = overlap_of(parameters, ranks, size=width * width)
    Executor().watch(parameters, overlap.arrived)
    x = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    layers(x).square().mean().backward()  # a first part of a batch: nothing is sent
    assert not ranks.sent
    loss = layers(x).square().mean()
    overlap.begin()
    loss.backward()
    assert [offset for offset, _ in ranks.sent] == [index * width * width for index in (3, 2, 1, 0)]
    first = flat.clone()
    assert all(torch.equal(part, flat[offset : offset + len(part)]) for offset, part in ranks.sent)
    assert ranks.waits.seconds() == 0.0
    norm = overlap.finish()
    assert ranks.waits.seconds() >= 5 * 0.002  # four buckets and what is behind them
    assert torch.equal(flat, 2 * first)
    expected = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    assert norm is None if width == 4 else norm is not None and torch.equal(norm, expected)


@pytest.mark.parametrize(
    ("wish", "rows", "hosts", "chosen"),
    [
        ("auto", 4, ["a", "b"], "measured"),
        ("auto", 4, ["a", "a"], "off"),  # they share a CPU's cores
        ("on", 4, ["a", "a"], "on"),
        ("on", 16, ["a", "a"], "off"),  # in shares, whose sum is complete after the last
        ("off", 4, ["a", "b"], "off"),
        ("on", 4, ["a"], "off"),
    ],
)
def test_a_run_says_whether_sums_begin_early(
    wish: Literal["auto", "on", "off"], rows: int, hosts: list[str], chosen: str
) -> None:
    ranks = Ranks()
    ranks.count, ranks.hosts = len(hosts), hosts
    settings = TrainSettings(overlap=wish, batch=2, device="cpu", optimizer="adamw")
    model = build(LlamaConfig(vocab=64, d_model=16, n_heads=2, n_kv=1, d_ff=32, n_layers=1, ctx=8), seed=0)
    assert Step(model, settings, choose(settings, 16, ranks=ranks)).overlap(rows) == chosen
