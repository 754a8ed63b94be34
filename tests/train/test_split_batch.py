"""Two halves of a batch side by side: the same bits as one after the other."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import linnet
from linnet.models import GPT2Config, LlamaConfig, ViTConfig, build
from linnet.train import state
from linnet.train.hardware import choose
from linnet.train.settings import TrainSettings
from linnet.train.step import SplitBatch, Step
from tests.conftest import Said

LLAMA = LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=64)
GPT2 = GPT2Config(vocab=97, d_model=32, n_heads=4, d_ff=48, n_layers=2, ctx=64)
VIT = ViTConfig(image_size=8, patch_size=4, d_model=24, n_heads=2, d_ff=40, n_layers=2, num_classes=5)
ROWS = 4
# A pass of 64 × 32 tokens through layers so wide is just large enough to be halved rather than recorded.
NOT_SMALL = ("--preset", "tiny", "--d-ff", "384", "--vocab", "384", "--ctx", "32", "--steps", "12")


class Text:
    def __init__(self, rows: int, number: int) -> None:
        ids = torch.randint(0, 97, (rows, 65), generator=torch.Generator().manual_seed(number))
        self.inputs: tuple[Tensor | None, ...] = (ids[:, :-1], ids[:, 1:], None)
        self.n_targets = rows * 64


class Images:
    def __init__(self, rows: int, number: int) -> None:
        dice = torch.Generator().manual_seed(number)
        self.inputs = (torch.randint(0, 256, (rows, 3, 8, 8), generator=dice), torch.arange(rows) % 5)
        self.n_targets = rows


def steps(model: nn.Module, rows: int, *, halves: bool, threads: int, graph: bool = False) -> list[float]:
    """Losses, norms and accuracies of some steps, and the sums of the weights in the end."""
    settings = TrainSettings(batch=ROWS, device="cpu")
    chosen = replace(choose(settings, tokens=ROWS * 64), halves=halves, threads=threads, graph=graph)
    step = Step(model, settings, chosen)
    found: list[float] = []
    kind = Images if hasattr(model, "patch_embd") else Text
    for number in range(4):
        result = step(kind(rows, number), 1e-2)
        found += [float(value) for value in result.metrics.values()]
    return found + [parameter.double().sum().item() for parameter in model.parameters()]


@pytest.mark.parametrize("rows", [4, 8, 6], ids=["one pass", "two passes", "a pass and a half"])
@pytest.mark.parametrize("model", ["llama", "gpt2", "vit"])
def test_halves_side_by_side_are_halves_in_turn_to_the_bit(model: str, rows: int) -> None:
    def made() -> nn.Module:
        return build(VIT) if model == "vit" else build(LLAMA if model == "llama" else GPT2)

    whole = steps(made(), rows, halves=False, threads=1)
    in_turn = steps(made(), rows, halves=True, threads=1)
    assert steps(made(), rows, halves=True, threads=2) == in_turn
    on_two = steps(made(), rows, halves=True, threads=2, graph=True)  # recorded, and in turn again
    assert steps(made(), rows, halves=True, threads=4) == on_two
    if model == "llama":  # torch's LayerNorm sums by thread
        assert on_two == in_turn == steps(made(), rows, halves=True, threads=3)
    assert in_turn[:8] == pytest.approx(whole[:8], rel=1e-4)  # Adam makes much of a gradient that should be 0
    assert in_turn != whole  # else nothing was halved


def test_a_parameter_that_has_no_part_in_the_loss_gets_no_gradient() -> None:
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    split_batch = SplitBatch([used, unused], threads=2)
    found = split_batch([lambda: ((used * 2).sum(),), lambda: ((used * 3).sum(),)])
    assert [share.item() for (share,) in found] == [6.0, 9.0]
    assert used.grad is not None and used.grad.tolist() == [5.0, 5.0, 5.0]
    assert unused.grad is None


def test_gradients_are_those_of_backward_whatever_memory_they_come_in() -> None:
    def made() -> list[nn.Parameter]:
        return [nn.Parameter(torch.ones(2, 3)) for _ in range(4)]

    def loss(spread: Tensor, turned: Tensor, one: Tensor, other: Tensor) -> Tensor:
        return spread.sum() + (turned.T.flatten() * torch.arange(6.0)).sum() + ((one + other) * 2).sum()

    ours, theirs = made(), made()
    SplitBatch(ours, threads=2)([lambda: (loss(*ours),)] * 4)
    for _ in range(4):
        loss(*theirs).backward()
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.grad is not None and its.grad is not None
        assert torch.equal(mine.grad, its.grad)
        assert mine.grad.stride() == its.grad.stride()


def test_what_goes_wrong_in_a_half_is_told() -> None:
    def broken() -> tuple[Tensor, ...]:
        raise RuntimeError("DefaultCPUAllocator: no memory")

    def whole() -> tuple[Tensor, ...]:
        return (weight.sum(),)

    weight = nn.Parameter(torch.ones(3))
    with pytest.raises(RuntimeError, match="no memory"):
        SplitBatch([weight], threads=2)([whole, broken])
    assert weight.grad is None


def test_when_a_half_goes_wrong_the_other_one_has_ended_before_that_is_told() -> None:
    def broken() -> tuple[Tensor, ...]:
        assert begun.wait(60)
        threading.Timer(0.2, told.set).start()
        raise RuntimeError("DefaultCPUAllocator: no memory")

    def slow() -> tuple[Tensor, ...]:
        begun.set()
        told.wait(60)
        ended.append(True)
        return (weight.sum(),)

    weight, begun, told, ended = nn.Parameter(torch.ones(3)), threading.Event(), threading.Event(), list[bool]()
    with pytest.raises(RuntimeError, match="no memory"):
        SplitBatch([weight], threads=2)([broken, slow])
    assert ended


def test_halves_leave_the_threads_of_the_rest_alone() -> None:
    torch.set_num_threads(2)
    steps(build(LLAMA), ROWS, halves=True, threads=2)
    assert torch.get_num_threads() == 2


def test_a_half_keeps_to_its_threads_whatever_is_set_elsewhere() -> None:
    def counted() -> tuple[Tensor, ...]:
        seen.append(torch.get_num_threads())
        return (weight.sum(),)

    weight, seen = nn.Parameter(torch.ones(3)), list[int]()
    split_batch = SplitBatch([weight], threads=4)
    split_batch([lambda: (weight.sum(),)] * 2)
    torch.set_num_threads(3)
    split_batch([counted] * 2)
    assert seen == [2, 2]
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("batch", "tokens", "weights", "changes", "halves"),
    [
        (8, 2048, 1_000_000, {}, True),
        (8, 1024, 1_000_000, {}, False),
        (7, 4096, 1_000_000, {}, False),
        (8, 2048, 100_000, {}, False),  # a small step, which is recorded
        (8, 2048, 100_000, {"graph": "off"}, False),  # its bits are those of the recorded one
        (8, 2048, 1_000_000, {"graph": "on"}, True),  # recorded in turn: the same bits
        (8, 2048, 1_000_000, {"compile": "on"}, False),
    ],
)
def test_whether_a_batch_is_halved_depends_on_no_machine(
    batch: int, tokens: int, weights: int, changes: dict[str, str], halves: bool
) -> None:
    settings = replace(TrainSettings(batch=batch, device="cpu"), **changes)  # type: ignore[arg-type]
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found = choose(settings, tokens, weights=weights)
        assert found.halves is halves
        told = halves and threads == 2 and not found.graph
        assert ("two halves of a batch side by side" in found.why) is told


def test_a_profile_sees_both_halves_and_counts_their_time_once(said: Said, corpus: Path) -> None:
    torch.set_num_threads(2)
    shape = (*NOT_SMALL, "--batch", "64")
    rest = ("--profile", "--eval-every", "0", "--sample-every", "0")
    code, out, _ = said("train", "from-scratch", "--corpus", str(corpus), *shape, *rest)
    assert code == 0
    assert "side by side" in out
    (line,) = (line for line in out.splitlines() if line.startswith("profile of"))
    shares = [int(share) for share in re.findall(r"(\d+)%", line)]
    assert "products" in line
    assert 40 < sum(shares) <= 105


@pytest.mark.parametrize("batch", ["64", "62"], ids=["halves", "in turn"])
def test_a_profile_leaves_out_what_other_threads_do(
    batch: str, said: Said, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is written beside the steps."""

    def busy(*arguments: object) -> None:
        for _ in range(50):
            torch.special.zeta(torch.full((2000,), 2.0), 3.0)
            torch.mm(torch.ones(300, 300), torch.ones(300, 300))
        save(*arguments)  # type: ignore[arg-type]

    save = state.save
    monkeypatch.setattr(state, "save", busy)
    torch.set_num_threads(2)
    shape = (*NOT_SMALL, "--batch", batch)
    rest = ("--profile", "--eval-every", "0", "--sample-every", "0", "--checkpoint-every", "1")
    code, out, _ = said("train", "from-scratch", "--corpus", str(corpus), *shape, *rest)
    assert code == 0
    assert ("side by side" in out) is (batch == "64")
    (event,) = (event.data for event in linnet.open("latest").events().read_events() if event.kind == "op_timing")
    assert "aten::mm" in event["buckets"]
    assert not any("zeta" in name for name in event["buckets"])
