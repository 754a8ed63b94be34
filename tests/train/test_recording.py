"""A small step on a CPU is recorded once and repeated: the same to the bit, on one thread, where it pays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from linnet.errors import UsageError
from linnet.kernels import Recording
from linnet.models import Config, GPT2Config, LlamaConfig, build
from linnet.train.hardware import choose
from linnet.train.settings import TrainSettings
from linnet.train.step import Step

LLAMA = LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=16)
GPT2 = GPT2Config(vocab=97, d_model=32, n_heads=4, d_ff=48, n_layers=2, ctx=16)


@dataclass(frozen=True)
class Batch:
    ids_BT: Tensor
    targets_BT: Tensor
    documents_BT: Tensor | None
    n_targets: int

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return self.ids_BT, self.targets_BT, self.documents_BT


def batch(number: int, rows: int, documents: bool) -> Batch:
    dice = torch.Generator().manual_seed(number)
    ids = torch.randint(0, 97, (rows, 17), generator=dice)
    targets = ids[:, 1:].clone()
    targets[0, : number % 5] = -1
    numbers = torch.randint(0, 2, (rows, 16), generator=dice).cumsum(1) if documents else None
    return Batch(ids[:, :-1], targets, numbers, int((targets >= 0).sum()))


def steps(config: Config, settings: TrainSettings, rows: int, documents: bool, count: int) -> list[float]:
    """Losses, norms of the gradients, and the sum of the weights in the end."""
    model = build(config)
    step = Step(model, settings, choose(settings, rows * 16, weights=20_000))
    found: list[float] = []
    for number in range(count):
        result = step(batch(number, rows, documents), 1e-2 / (number + 1))
        found += [result.loss.item(), result.grad_norm.item()]
    return found + [parameter.double().sum().item() for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("config", "changes", "rows", "documents"),
    [
        pytest.param(LLAMA, {}, 2, False, id="llama"),
        pytest.param(GPT2, {}, 2, False, id="gpt2"),
        pytest.param(LLAMA, {}, 4, False, id="accumulated"),
        pytest.param(LLAMA, {}, 2, True, id="documents"),
        pytest.param(LLAMA, {"clip": 0.0}, 2, False, id="unclipped"),
        pytest.param(replace(LLAMA, n_layers=1), {"optimizer": "muon"}, 2, False, id="muon, one matrix of a shape"),
    ],
)
def test_fifty_recorded_steps_equal_plain_ones_to_the_bit(
    config: Config, changes: dict[str, object], rows: int, documents: bool
) -> None:
    settings = {"batch": 2, "device": "cpu", **changes}
    plain = steps(config, TrainSettings(graph="off", **settings), rows, documents, 50)  # type: ignore[arg-type]
    recorded = steps(config, TrainSettings(graph="on", **settings), rows, documents, 50)  # type: ignore[arg-type]
    assert recorded == plain


def test_a_recorded_step_skips_what_is_not_finite() -> None:
    settings = TrainSettings(batch=2, device="cpu", graph="on", on_nan="skip", optimizer="adamw")
    model = build(LLAMA)
    step = Step(model, settings, choose(settings, 32, weights=20_000))
    for number in range(3):
        step(batch(number, 2, documents=False), 1e-2)
    before = [parameter.clone() for parameter in model.parameters()]
    with torch.no_grad():
        model.token_embd.weight[5, 0] = torch.inf
    result = step(batch(3, 2, documents=False), 1e-2)
    assert not torch.isfinite(result.grad_norm)
    with torch.no_grad():
        model.token_embd.weight[5, 0] = before[0][5, 0]
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))
    assert torch.isfinite(step(batch(4, 2, documents=False), 1e-2).loss)


def test_the_inputs_of_each_call_are_used() -> None:
    weight = torch.ones(3)
    double = Recording(lambda x: (weight * x + torch.zeros(3), (x @ weight).view(1)))
    for number in range(5):
        given = torch.full((3,), float(number))
        one, two = double(given)
        assert one.tolist() == [number] * 3 and two.item() == 3 * number


def test_a_norm_whose_weights_are_frozen_is_recorded() -> None:
    norm = torch.nn.LayerNorm(8).requires_grad_(False)
    moved = torch.zeros(8, requires_grad=True)

    def work(x: Tensor) -> tuple[Tensor]:
        moved.grad = None
        norm(x + moved).square()[0].sum().backward()
        assert moved.grad is not None
        return (moved.grad,)

    recorded = Recording(work)
    for number in range(4):
        x = torch.randn(3, 8, generator=torch.Generator().manual_seed(number))
        found = recorded(x)[0].clone()
        assert torch.equal(found, work(x)[0])


def test_inputs_of_another_kind_are_not_forced_into_those_that_were_recorded() -> None:
    kinds = [(2, False)] * 3 + [(1, False), (2, True), (2, False)]  # a shorter batch; documents once
    found = []
    for graph in ("off", "on"):
        settings = TrainSettings(batch=2, device="cpu", graph=graph)  # type: ignore[arg-type]
        step = Step(build(LLAMA), settings, choose(settings, 32, weights=20_000))
        found.append([step(batch(n, *kind), 1e-2).loss.item() for n, kind in enumerate(kinds)])
    assert found[0] == found[1]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_what_is_put_back_in_the_middle_is_what_recorded_steps_go_on_from(optimizer: str) -> None:
    settings = TrainSettings(batch=2, device="cpu", graph="on", optimizer=optimizer)  # type: ignore[arg-type]
    model = build(LLAMA)
    step = Step(model, settings, choose(settings, 32, weights=20_000))

    def losses(numbers: range) -> list[float]:
        return [step(batch(number, 2, documents=False), 1e-2).loss.item() for number in numbers]

    from_the_first = losses(range(4))
    weights, moments = copies(model.params()), copies(step.optimizers.state())
    expected = losses(range(4, 8))
    model.load_state_dict(weights)
    step.optimizers.load(moments)
    assert losses(range(4, 8)) == expected
    model.load_state_dict(build(LLAMA).params())
    step.optimizers.load({})  # no moments: as at the beginning
    assert losses(range(4)) == from_the_first


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def test_a_recording_that_broke_off_is_not_repeated() -> None:
    faults = [False, True, False, False]

    def work(x: Tensor) -> tuple[Tensor]:
        doubled = x * 2
        if faults.pop(0):
            raise KeyboardInterrupt
        return (doubled + 1,)

    plus_one = Recording(work)
    plus_one(torch.ones(2))
    with pytest.raises(KeyboardInterrupt):
        plus_one(torch.ones(2))
    for number in (3.0, 4.0):
        assert plus_one(torch.full((2,), number))[0].tolist() == [2 * number + 1] * 2


def test_work_that_waits_for_a_number_cannot_be_recorded() -> None:
    work = Recording(lambda x: (x * x.sum().item(),))
    work(torch.ones(2))
    with pytest.raises(AssertionError, match="gives the host a number"):
        work(torch.ones(2))


def test_the_line_says_what_was_chosen_for_a_cpu_and_why() -> None:
    settings = TrainSettings(device="cpu")
    small, large = choose(settings, 32, weights=82_000), choose(settings, 2048, weights=3_000_000)
    assert (small.graph, small.threads, large.graph) == (True, 1, False)
    assert "cpu, 1 thread, float32" in small.why and "graph on (small steps)" in small.why
    assert "graph off (steps are large)" in large.why
    assert not choose(settings, 32).graph  # nothing is known of the model


def test_a_graph_that_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="`graph=on`: the seed's AdamW cannot be captured; use `graph=off`"):
        choose(TrainSettings(device="cpu", graph="on", bias_correction="seed"), 32)
