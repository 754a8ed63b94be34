"""DPO: the loss and its gradient as a plain computation has them, in whatever parts a batch passes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from linnet.data import Batches, Prepared, prepare
from linnet.data.batches import in_order
from linnet.data.preference_blocks import PreferenceBatch, PreferenceBlocks
from linnet.gguf import write
from linnet.kernels import eager
from linnet.models import GPT2Config, LanguageModel, LlamaConfig, build
from linnet.models.adapter_shape import AdapterShape, parse_targets
from linnet.models.adapters import Adapter, add_adapter
from linnet.models.frozen import load_frozen
from linnet.train import TrainSettings
from linnet.train.hardware import choose
from linnet.train.preferences import PreferenceLoss, evaluate_preferences
from linnet.train.step import Step
from tests.data.chats import pairs

CTX, BETA = 128, 0.3
LLAMA = LlamaConfig(vocab=340, d_model=64, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=CTX)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("pairs")
    return prepare(pairs(root / "pairs.jsonl", 40), vocab=340, held_out=0, cache=root / "cache")


@pytest.fixture(scope="module")
def blocks(prepared: Prepared) -> PreferenceBlocks:
    return PreferenceBlocks(prepared.train, prepared.vocab, CTX)


def adapted(
    *words: str, dropout: float = 0.0, config: Any = LLAMA, model: LanguageModel | None = None
) -> tuple[LanguageModel, Adapter]:
    """A model whose adapter has learnt something, so that it is not its reference."""
    model = build(config, seed=1) if model is None else model
    shape = AdapterShape(parse_targets(words or ("all",), model.config), 4, 8.0, dropout)
    adapter = add_adapter(model, shape)
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapter.parameters().values():
            parameter += 0.05 * torch.randn(parameter.shape, generator=dice)
    return model, adapter


def batch_of(blocks: PreferenceBlocks, count: int) -> PreferenceBatch:
    batch = blocks.gather(np.arange(count)).rows(0, count)
    assert isinstance(batch, PreferenceBatch)
    return batch


def plain_means(
    model: LanguageModel, reference: LanguageModel, prepared: Prepared, wanted: set[tuple[int, ...]]
) -> dict[str, Tensor]:
    """The same by the book: each conversation in a row of its own, filled up at its end, and all logits at once."""
    sides: list[list[tuple[list[int], list[bool]]]] = [[], []]
    for number in range(len(prepared.train.documents) - 1):
        values = np.asarray(prepared.train.document(number)).astype(np.int64)
        both = [values[values // (2 * prepared.vocab) == side] for side in range(2)]
        if tuple((both[0] % prepared.vocab).tolist()) in wanted:
            for side, mine in enumerate(both):
                sides[side].append(((mine % prepared.vocab).tolist(), (mine // prepared.vocab % 2 == 1).tolist()))
    assert len(sides[0]) == len(wanted)
    longest = max(len(ids) for side in sides for ids, _ in side)

    def log_p(one: LanguageModel, side: int) -> Tensor:
        ids_PT = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in sides[side]])
        trained_PT = torch.tensor([trained + [False] * (longest - len(trained)) for _, trained in sides[side]])
        of_tokens = one(ids_PT)[:, :-1].log_softmax(-1).gather(2, ids_PT[:, 1:, None])[..., 0]
        return (of_tokens * trained_PT[:, 1:]).sum(1)

    with torch.no_grad():
        expected = [log_p(reference, side) for side in range(2)]
    chosen, rejected = (BETA * (log_p(model, side) - expected[side]) for side in range(2))
    margin = chosen - rejected
    of_pairs = (-margin.sigmoid().log(), (margin > 0).float(), margin, chosen, rejected)
    names = ("loss", "accuracy", "reward_margin", "reward_chosen", "reward_rejected")
    return {name: value.mean() for name, value in zip(names, of_pairs, strict=True)}


def chosen_in(batch: PreferenceBatch, prepared: Prepared) -> set[tuple[int, ...]]:
    """The conversations with the chosen answers of a batch, whole, by which its pairs are known."""
    documents = [np.asarray(prepared.train.document(k)).astype(np.int64) for k in range(40)]
    wholes = [tuple((v[v // (2 * prepared.vocab) == 0] % prepared.vocab).tolist()) for v in documents]
    assert batch.documents_BT is not None and batch.signs_BT is not None
    found = set()
    for ids, numbers, signs in zip(batch.ids_BT, batch.documents_BT, batch.signs_BT, strict=True):
        for number in numbers[signs > 0].unique().tolist():
            begin = tuple(ids[numbers == number].tolist())
            found |= {whole for whole in wholes if whole[: len(begin)] == begin}
    return found


def gradients(adapter: Adapter, loss: Tensor) -> dict[str, Tensor]:
    parameters = adapter.parameters()
    found = torch.autograd.grad(loss, list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


@pytest.mark.parametrize("words", [("all",), ("q", "v", "embed", "head")])
@pytest.mark.parametrize("quantised", [False, True])
def test_loss_and_gradient_are_those_of_a_plain_computation(
    prepared: Prepared, blocks: PreferenceBlocks, tmp_path: Path, words: tuple[str, ...], quantised: bool
) -> None:
    config = replace(LLAMA, tied="head" not in words)
    base, reference = build(config, seed=1), build(config, seed=1)
    if quantised:
        file = write(config, base.params(), tmp_path / "base.gguf", "base", 1, type="q8_0")
        base, reference = load_frozen(file), load_frozen(file)
    model, adapter = adapted(*words, config=config, model=base)
    batch = batch_of(blocks, blocks.count)
    expected = plain_means(model, reference, prepared, chosen_in(batch, prepared))
    divisor = torch.tensor(float(batch.n_targets))
    means = PreferenceLoss(model, BETA)(*batch.inputs, divisor=divisor, executor=eager)  # type: ignore[arg-type]
    assert batch.n_targets == 40 and means.keys() == expected.keys()
    for name, value in expected.items():
        assert means[name].item() == pytest.approx(value.item(), abs=1e-5), name
    found, wanted = gradients(adapter, means["loss"]), gradients(adapter, expected["loss"])
    for name, gradient in wanted.items():
        assert (found[name] - gradient).abs().max() <= 1e-5 * max(1.0, gradient.abs().max().item()), name
    assert all(gradient.abs().max() > 1e-4 for gradient in wanted.values())


def test_at_first_the_loss_is_the_logarithm_of_two(blocks: PreferenceBlocks) -> None:
    model = build(LLAMA, seed=1)
    add_adapter(model, AdapterShape(parse_targets(["all"], LLAMA), 4, 8.0, dropout=0.5))
    result = evaluate_preferences(PreferenceLoss(model, BETA), in_pairs(blocks), 1000)
    assert result.loss == pytest.approx(math.log(2), abs=1e-6)
    assert result.reward_margin == pytest.approx(0, abs=1e-5) and result.pairs == 40


def in_pairs(blocks: PreferenceBlocks) -> list[PreferenceBatch]:
    return [batch for batch in in_order(blocks, 2) if isinstance(batch, PreferenceBatch)]


def test_dropout_is_of_the_model_and_not_of_its_reference(blocks: PreferenceBlocks) -> None:
    batch, divisor = batch_of(blocks, 2), torch.ones(())
    first, second = (adapted(dropout=share) for share in (0.0, 0.5))
    plain, dropped = (
        PreferenceLoss(model, BETA)(*batch.inputs, divisor=divisor, executor=eager)  # type: ignore[arg-type]
        for model, _ in (first, second)
    )
    assert abs(plain["loss"].item() - dropped["loss"].item()) > 1e-4
    with torch.no_grad():  # as an evaluation
        again = PreferenceLoss(second[0], BETA)(*batch.inputs, divisor=divisor, executor=eager)  # type: ignore[arg-type]
    assert again["loss"].item() == pytest.approx(plain["loss"].item(), abs=1e-5)


@pytest.mark.parametrize("rows", [4, 2])
def test_a_batch_in_parts_is_the_same_as_in_one(blocks: PreferenceBlocks, rows: int) -> None:
    def stepped(at_once: int, graph: str) -> tuple[dict[str, float], dict[str, Tensor]]:
        settings = TrainSettings(
            batch=at_once,
            batch_tokens=8 * CTX,
            lr=1e-2,
            optimizer="adamw",
            device="cpu",
            graph=graph,
            weight_decay=0.0,  # type: ignore[arg-type]
        )
        model, adapter = adapted()
        step = Step(model, settings, choose(settings, tokens=at_once * CTX), PreferenceLoss(model, BETA))
        batches = Batches(blocks, ctx=CTX, batch=4, seed=1)
        for number in range(4):
            result = step(batches.at(number), 1e-2)
        metrics = {name: value.item() for name, value in result.metrics.items()}
        return metrics, {name: value.detach().clone() for name, value in adapter.parameters().items()}

    whole, parts = stepped(8, "off"), stepped(rows, "on")
    assert parts[0] == pytest.approx(whole[0], abs=2e-5)
    for name, value in whole[1].items():
        assert (parts[1][name] - value).abs().max() < 2e-4, name


def test_a_few_steps_raise_the_margin(blocks: PreferenceBlocks) -> None:
    settings = TrainSettings(batch=8, lr=1e-2, optimizer="adamw", device="cpu", weight_decay=0.0)
    model = build(LLAMA, seed=1)
    add_adapter(model, AdapterShape(parse_targets(["all"], LLAMA), 4, 8.0))
    loss = PreferenceLoss(model, BETA)
    step, batches = Step(model, settings, choose(settings, 8 * CTX), loss), Batches(blocks, ctx=CTX, batch=4, seed=1)
    for number in range(20):
        result = step(batches.at(number), 1e-2)
    assert result.metrics["reward_margin"] > 1 and result.loss < 0.4
    evaluation = evaluate_preferences(loss, in_pairs(blocks), 1000)
    assert evaluation.accuracy > 0.9 and evaluation.reward_margin > 1
    assert evaluation.reward_chosen - evaluation.reward_rejected == pytest.approx(evaluation.reward_margin, abs=1e-4)


def test_a_gpt2_and_no_gradient_for_its_reference(blocks: PreferenceBlocks) -> None:
    config = GPT2Config(vocab=340, d_model=64, n_heads=4, d_ff=96, n_layers=2, ctx=CTX)
    model, adapter = adapted(config=config)
    batch = batch_of(blocks, 2)
    rewards = PreferenceLoss(model, BETA).rewards(*batch.inputs)  # type: ignore[arg-type]
    assert rewards.exists_NP.sum() == batch.n_targets
    rewards.means(torch.ones(()))["loss"].backward()
    trained = {id(parameter) for parameter in adapter.parameters().values()}
    assert all((p.grad is not None) == (id(p) in trained) for p in model.parameters())
