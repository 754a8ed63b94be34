"""What training asks of a model: the loss and its gradient, documents, precision, compilation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.architectures import layout
from linnet.errors import UsageError
from linnet.gguf.checkpoint import check_shapes
from linnet.kernels.head_loss import backward
from linnet.kernels.ops import head_loss
from linnet.models import Config, GPT2Config, LlamaConfig, build

LLAMA = LlamaConfig(vocab=97, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=64)
GPT2 = GPT2Config(vocab=97, d_model=32, n_heads=4, d_ff=48, n_layers=2, ctx=64)
BOTH = pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
DICE = torch.Generator().manual_seed(0)
IDS_BT = torch.randint(0, 97, (2, 48), generator=DICE)
TARGETS_BT = IDS_BT.roll(-1, 1)


@pytest.mark.parametrize("rows", [1, 100, 128, 300])
def test_chunked_loss_and_gradient_equal_plain_cross_entropy(rows: int) -> None:
    hidden_ND = torch.randn(rows, 24, generator=DICE, requires_grad=True)
    head_VD = torch.randn(97, 24, generator=DICE, requires_grad=True)
    targets_N = torch.randint(-1, 97, (rows,), generator=DICE)
    targets_N[0] = 5

    def gradients(loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(3.0 * loss, (hidden_ND, head_VD))

    plain = F.cross_entropy(hidden_ND @ head_VD.T, targets_N, ignore_index=-1)
    chunked = head_loss(hidden_ND, head_VD, targets_N)
    assert chunked.item() == pytest.approx(plain.item(), abs=1e-6, rel=1e-6)
    for ours, theirs in zip(gradients(chunked), gradients(plain), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        assert head_loss(hidden_ND, head_VD, targets_N).item() == pytest.approx(plain.item(), abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_backward_gives_the_gradients_of_torchs_own_to_the_bit_and_of_a_multiple_its_multiple(
    dtype: torch.dtype,
) -> None:
    hidden_ND = torch.randn(300, 24, generator=DICE).to(dtype).requires_grad_()
    head_VD = torch.randn(97, 24, generator=DICE, requires_grad=True)
    targets_N = torch.randint(-1, 97, (300,), generator=DICE)

    def gradients(factor: float | None, times: int = 1) -> tuple[Tensor, Tensor]:
        hidden_ND.grad = head_VD.grad = None
        loss = head_loss(hidden_ND, head_VD, targets_N)
        for _ in range(times):
            backward(loss) if factor is None else (factor * loss).backward(retain_graph=True)
        assert hidden_ND.grad is not None and head_VD.grad is not None
        return hidden_ND.grad, head_VD.grad

    ours = gradients(None)
    for factor, times in ((1.0, 1), (2.0, 1), (1.0, 2)):
        for one, other in zip(ours, gradients(factor, times), strict=True):
            assert torch.equal(one * factor * times, other)


def test_no_rows_at_all_have_a_gradient_of_zero() -> None:
    head_VD = torch.randn(97, 24, requires_grad=True)
    for dtype in (torch.float32, torch.bfloat16):
        loss = head_loss(torch.empty(0, 24, dtype=dtype), head_VD, torch.empty(0, dtype=torch.int64))
        (gradient,) = torch.autograd.grad(loss, head_VD)
        assert loss.item() == 0.0
        assert not gradient.any()


def test_a_divisor_makes_parts_of_a_step_add_up_to_the_whole() -> None:
    model = build(LLAMA)
    targets_BT = TARGETS_BT.clone()
    targets_BT[0, :30] = -1
    whole = model.loss(IDS_BT, targets_BT)
    count = (targets_BT >= 0).sum()
    parts = [model.loss(IDS_BT[i : i + 1], targets_BT[i : i + 1], divisor=count) for i in (0, 1)]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), abs=1e-6)


def test_no_target_at_all_is_a_loss_of_zero_not_nan() -> None:
    model = build(LLAMA)
    loss = model.loss(IDS_BT, torch.full_like(IDS_BT, -1))
    loss.backward()
    assert loss.item() == 0.0
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_documents_do_not_see_each_other() -> None:
    """llama's positions are relative, so a document in a row is worth the same as one alone."""
    model = build(LLAMA)
    documents_BT = torch.tensor([[0] * 20 + [1] * 28])
    packed = model(IDS_BT[:1], documents_BT)
    alone = torch.cat((model(IDS_BT[:1, :20]), model(IDS_BT[:1, 20:])), 1)
    assert torch.allclose(packed, alone, atol=1e-5)
    assert not torch.allclose(model(IDS_BT[:1]), alone, atol=1e-3)


def test_gpt2_documents_keep_their_place_in_the_row() -> None:
    model = build(GPT2)
    documents_BT = torch.tensor([[0] * 20 + [1] * 28])
    packed = model(IDS_BT[:1], documents_BT)
    other = IDS_BT[:1].clone()
    other[0, :20] = 3
    assert torch.equal(model(other, documents_BT)[:, 20:], packed[:, 20:])
    assert not torch.equal(model(other)[:, 20:], packed[:, 20:])


@BOTH
def test_a_sequence_beyond_the_context_is_refused(config: Config) -> None:
    with pytest.raises(UsageError, match="the sequence has 65 tokens and the model's context 64: shorten it"):
        build(config)(torch.zeros(1, 65, dtype=torch.int64))


@BOTH
def test_one_document_a_row_is_no_mask_at_all(config: Config) -> None:
    model = build(config)
    assert model.loss(IDS_BT, TARGETS_BT, torch.zeros_like(IDS_BT)).item() == pytest.approx(
        model.loss(IDS_BT, TARGETS_BT).item(), abs=1e-5
    )


@BOTH
def test_bf16_compute_keeps_float32_weights_gradients_and_loss(config: Config) -> None:
    model = build(config)
    exact = model.loss(IDS_BT, TARGETS_BT).item()
    model.set_compute_dtype(torch.bfloat16)
    loss = model.loss(IDS_BT, TARGETS_BT)
    loss.backward()
    assert loss.dtype == torch.float32 and model(IDS_BT).dtype == torch.float32
    assert loss.item() == pytest.approx(exact, abs=2e-2)
    for parameter in model.parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is not None and parameter.grad.dtype == torch.float32


@BOTH
def test_bf16_gradients_point_where_float32_ones_do(config: Config) -> None:
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        model = build(config)
        model.set_compute_dtype(dtype)
        model.loss(IDS_BT, TARGETS_BT).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert F.cosine_similarity(*gradients, dim=0).item() > 0.999


@BOTH
def test_compiles_as_one_graph_with_the_same_loss_and_gradients(config: Config) -> None:
    model = build(config)
    eager = model.loss(IDS_BT, TARGETS_BT)
    eager.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    compiled = torch.compile(model.loss, fullgraph=True, backend="aot_eager")(IDS_BT, TARGETS_BT)
    compiled.backward()
    assert compiled.item() == pytest.approx(eager.item(), abs=1e-6)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, expected[name], atol=1e-6), name


@BOTH
def test_names_and_shapes_are_those_of_the_gguf_table(config: Config) -> None:
    params = build(config).params()
    plan = layout(config)
    check_shapes(plan, params)
    assert set(params) == {name for name, param in plan.params.items() if not param.optional}


@BOTH
def test_it_learns_a_line_by_heart(config: Config) -> None:
    model = build(config)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    first = model.loss(IDS_BT, TARGETS_BT).item()
    for _ in range(40):
        optimiser.zero_grad()
        loss = model.loss(IDS_BT, TARGETS_BT)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.3 * first
