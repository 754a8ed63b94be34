"""Dropout of the residual stream: what a model computes with it, however it is run, and without it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.errors import UsageError
from linnet.kernels import Compiled, Recomputed, Residual, eager, ops
from linnet.kernels.dropout import next_keys
from linnet.models import Config, GPT2Config, LanguageModel, LlamaConfig, build
from linnet.models.adapter_shape import AdapterShape
from linnet.models.adapters import add_adapter
from linnet.models.dropout import ResidualDropout
from linnet.models.layers import Linear

LLAMA = LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=3, ctx=64)
GPT2 = GPT2Config(vocab=97, d_model=32, n_heads=4, d_ff=48, n_layers=3, ctx=64)
BOTH = pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
IDS_BT = torch.randint(0, 97, (4, 48), generator=torch.Generator().manual_seed(0))
TARGETS_BT = IDS_BT.roll(-1, 1)


def dropping(config: Config = LLAMA, share: float = 0.3, seed: int = 0, step: int = 5) -> LanguageModel:
    model = build(config, seed=1)
    model.use_dropout(share, seed)
    model.begin_step(step)
    return model


def gradients(model: LanguageModel, loss: Callable[[], Tensor] | None = None, **options: object) -> dict[str, Tensor]:
    model.zero_grad()
    value = model.loss(IDS_BT, TARGETS_BT, **options) if loss is None else loss()  # type: ignore[arg-type]
    value.backward()  # type: ignore[no-untyped-call]
    named = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {**named, "loss": value.detach()}


def agree(found: dict[str, Tensor], expected: dict[str, Tensor], limit: float = 1e-4) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= limit * gradient.norm() + 1e-9, name


def same_bits(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def masks(model: LanguageModel, config: Config) -> list[Tensor]:
    """What each number of the embeddings and of each update is multiplied by, in the order of the model."""
    assert isinstance(model.dropout, ResidualDropout)
    keys_B, ones_BTD = model.dropout.row_keys(IDS_BT), torch.ones(*IDS_BT.shape, config.d_model)
    made = [model.dropout(ones_BTD, keys_B)]
    for _ in range(2 * config.n_layers):
        stream = Residual(torch.zeros_like(ones_BTD), mask_keys_B=keys_B).plus(ones_BTD, dropout=model.dropout.share)
        assert stream.update_BTD is not None and stream.mask_keys_B is not None
        made.append(stream.update_BTD)
        keys_B = stream.mask_keys_B
    return made


def plain_loss(model: LanguageModel, config: Config) -> Tensor:
    """The loss by torch's own operations, with each mask multiplied where dropout is."""
    made = iter(masks(model, config))
    position_TD, rotary = model.positions(IDS_BT.shape[1], None)
    x = F.embedding(IDS_BT, model.token_embd.weight) + (0 if position_TD is None else position_TD)
    x = x * next(made)
    for block in model.blocks:
        qkv = block.attn_qkv(block.attn_norm(x))
        heads = block.heads(qkv, *rotary) if rotary else qkv.unflatten(-1, (12, 8)).chunk(3, dim=2)
        x = x + block.attn_output(block.attention(*heads, None, None)) * next(made)
        normed = block.ffn_norm(x)
        if config is GPT2:
            wide = F.gelu(block.ffn_up(normed), approximate="tanh")
        else:
            gate, up = block.ffn_gate_up(normed).chunk(2, -1)
            wide = F.silu(gate) * up
        x = x + block.ffn_down(wide) * next(made)
    logits = model.logits(model.output_norm(x))
    return F.cross_entropy(logits.flatten(0, 1), TARGETS_BT.flatten())


@BOTH
def test_loss_and_gradients_are_those_of_the_plain_formulas_with_the_same_masks(config: Config) -> None:
    model = dropping(config)
    expected = gradients(model, lambda: plain_loss(model, config))
    agree(gradients(model), expected)
    model.use_dropout(0.0)
    assert gradients(model)["loss"] != expected["loss"]


def test_every_place_drops_its_share_and_other_numbers_than_the_next() -> None:
    made = masks(dropping(share=0.2), LLAMA)
    assert len(made) == 7
    for one, other in pairwise(made):
        assert (one == 0).float().mean().item() == pytest.approx(0.2, abs=0.02)
        assert one.unique().tolist() == pytest.approx([0, 1 / 0.8])
        assert ((one == 0) & (other == 0)).float().mean().item() == pytest.approx(0.04, abs=0.01)


@pytest.mark.parametrize("other", [{"step": 6}, {"seed": 1}])
def test_another_step_or_seed_drops_other_numbers(other: dict[str, int]) -> None:
    pairs = zip(masks(dropping(), LLAMA), masks(dropping(**other), LLAMA), strict=True)  # type: ignore[arg-type]
    for one, changed in pairs:
        assert ((one == 0) & (changed == 0)).float().mean().item() == pytest.approx(0.09, abs=0.02)


def test_a_step_says_which_masks_whatever_came_before_it() -> None:
    model = dropping(step=5)
    first = gradients(model)
    model.begin_step(900)
    gradients(model)
    model.begin_step(5)
    assert same_bits(gradients(model), first)
    assert same_bits(gradients(dropping(step=5)), first)


@BOTH
def test_parts_of_a_batch_in_any_order_and_side_by_side_drop_what_the_whole_drops(config: Config) -> None:
    model = dropping(config)
    whole = gradients(model)
    rows, parts = [slice(2, 4), slice(0, 2)], dict[int, Tensor]()

    def pass_part(number: int) -> None:
        divisor = torch.tensor(float(IDS_BT.numel()))
        parts[number] = model.loss(IDS_BT[rows[number]], TARGETS_BT[rows[number]], divisor=divisor)

    threads = [threading.Thread(target=pass_part, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    agree(gradients(model, lambda: parts[0] + parts[1]), whole)


@BOTH
def test_a_compiled_and_a_recomputed_step_have_the_same_gradients(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **_: real(f, fullgraph=True, backend="aot_eager"))
    torch._dynamo.reset()
    model = dropping(config)
    expected = gradients(model)
    for cheap in (False, True):
        assert same_bits(gradients(model, executor=Recomputed(eager, model.blocks, cheap=cheap)), expected)
    compiled = Compiled(torch.float32)
    compiled.before_step()
    agree(gradients(model, executor=compiled), expected)
    model.begin_step(6)  # read anew, not compiled in
    compiled.before_step()
    agree(gradients(model, executor=compiled), gradients(model))
    assert gradients(model)["loss"] != expected["loss"]


def test_the_layers_of_a_model_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = torch.compile, torch._dynamo.testing.CompileCounter()
    monkeypatch.setattr(torch, "compile", lambda f, **_: real(f, fullgraph=True, dynamic=False, backend=count))
    torch._dynamo.reset()
    gradients(dropping(), executor=Compiled(torch.float32))
    assert count.frame_count == 4  # embedding, its dropout, one layer for all three, the last norm


def test_half_precision_drops_the_same_numbers() -> None:
    model = dropping(share=0.5)
    assert isinstance(model.dropout, ResidualDropout)
    keys_B, ones_BTD = model.dropout.row_keys(IDS_BT), torch.ones(*IDS_BT.shape, 32)
    assert torch.equal(model.dropout(ones_BTD.bfloat16(), keys_B).float(), model.dropout(ones_BTD, keys_B))


@BOTH
def test_what_is_evaluated_and_written_is_the_whole_model(config: Config) -> None:
    model, plain = dropping(config), build(config, seed=1)
    with torch.no_grad():
        expected = plain.loss(IDS_BT, TARGETS_BT)
        assert torch.equal(model.loss(IDS_BT, TARGETS_BT), expected)
        assert torch.equal(model(IDS_BT), plain(IDS_BT))
    assert model.loss(IDS_BT, TARGETS_BT).item() != pytest.approx(expected.item(), abs=1e-3)
    model.eval()
    assert model.loss(IDS_BT, TARGETS_BT).item() == pytest.approx(expected.item(), abs=1e-5)
    assert model.params().keys() == plain.params().keys()


@BOTH
def test_without_dropout_the_bits_are_those_of_a_model_that_never_had_it(config: Config) -> None:
    model, plain = dropping(config), build(config, seed=1)
    model.use_dropout(0.0)
    assert model.dropout is None
    assert same_bits(gradients(model), gradients(plain))


@pytest.mark.parametrize("share", [1.0, 1.5, -0.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    model = build(LLAMA)
    with pytest.raises(UsageError, match="`dropout` is a share of the residual stream, from 0 to below 1, found"):
        model.use_dropout(share)
    assert model.dropout is None


def test_a_model_with_an_adapter_is_refused() -> None:
    model = build(LLAMA)
    add_adapter(model, AdapterShape(("attn_q",), 4, 8.0, 0.0))
    with pytest.raises(UsageError, match="does not go with an adapter"):
        model.use_dropout(0.1)


def test_where_a_kernel_would_sum_a_biass_gradient_that_comes_from_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ops, "uses_triton", lambda x: True)
    dice = torch.Generator().manual_seed(0)
    out = Linear(8, 8, bias=True)
    with torch.no_grad():
        for parameter in out.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=dice))
    x_BTD, y_BTD = torch.zeros(2, 3, 8), torch.randn(2, 3, 8, generator=dice)
    keys_B = torch.tensor([1, 2], dtype=torch.int32)
    stream = ops.add_linear(Residual(x_BTD, mask_keys_B=keys_B), y_BTD, out, 0.5)
    assert stream.update_bias_D is None and stream.update_BTD is not None
    stream.total().sum().backward()  # type: ignore[no-untyped-call]
    assert stream.mask_keys_B is not None and torch.equal(stream.mask_keys_B, next_keys(keys_B))
    kept_BTD = (stream.update_BTD != 0) * 2.0
    assert torch.equal(stream.update_BTD, out(y_BTD) * kept_BTD)
    assert out.bias is not None and out.bias.grad is not None
    assert torch.equal(out.bias.grad, kept_BTD.sum((0, 1)))
