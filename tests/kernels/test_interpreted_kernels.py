"""The Triton kernels compute what their plain versions do.

There is no GPU here: Triton's interpreter runs them. It must be asked for before Triton is imported: `conftest.py` runs
these cases in a process of their own.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from linnet.gguf.planes import SPLITTABLE
from linnet.gguf.tensor import GGMLType
from linnet.kernels import ops
from linnet.kernels.distillation import distillation_grad
from linnet.kernels.head_loss import cross_entropy_grad
from linnet.models import Config, GPT2Config, LlamaConfig, ViTConfig, build
from linnet.models.adapter_shape import AdapterShape, parse_targets
from linnet.models.adapters import add_adapter
from linnet.models.llama import rotary_table
from linnet.models.transformer import document_mask
from tests.kernels.packed_matrices import packed

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheel for this machine")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The kernels' modules, interpreted. What is wrapped for torch's compiler is launched as it is."""
    import torch.library
    from triton.runtime import interpreter

    monkeypatch.setattr(torch.library, "triton_op", lambda name, **_: lambda function: function)
    monkeypatch.setattr(torch.library, "wrap_triton", lambda kernel: kernel)
    # The interpreter makes arrays of one element of numbers, and numpy takes no such array for a number any more.
    wrap = interpreter._implicit_cvt
    monkeypatch.setattr(interpreter, "_implicit_cvt", lambda value: value if isinstance(value, int) else wrap(value))
    patch = interpreter._patch_lang_tensor

    def patch_and_mend(tensor: type, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_and_mend)
    names = (
        "activations",
        "cross_entropy",
        "distillation",
        "embedding",
        "heads",
        "muon",
        "norm",
        "ordered_attention",
        "short_attention",
        "unpack",
    )
    return {name: importlib.import_module(f"linnet.kernels.cuda.{name}") for name in names}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("vocab", "width"), [(8192, 8192), (9001, 9024), (97, 128)])
def test_cross_entropy_grad_equals_the_plain_one_also_with_padding(
    kernels: dict[str, ModuleType], vocab: int, width: int
) -> None:
    logits = 5 * random(6, width)
    targets = torch.tensor([0, vocab - 1, 17, -100, 3, 96])
    weights = torch.tensor([1.0, 0.5, 2.0, 0.0, 1.0, 0.25])
    expected_losses, expected = cross_entropy_grad(logits.clone(), targets, weights, vocab)
    given = logits.clone()
    losses, found = kernels["cross_entropy"].cross_entropy_grad(given, targets, weights, vocab)
    assert found.data_ptr() == given.data_ptr()
    assert torch.allclose(losses, expected_losses, atol=1e-5)
    assert torch.allclose(found, expected, atol=1e-6)


def test_cross_entropy_grad_of_logits_far_from_the_targets_or_not_finite(kernels: dict[str, ModuleType]) -> None:
    logits = random(5, 8256)
    logits[0, 4000], logits[1, 8250] = 500.0, 500.0  # far above the target, in a block and in what is over
    logits[2, 7] = -500.0  # the target's own, far below all
    logits[3, 9], logits[4, 8200] = math.nan, math.inf
    targets, weights = torch.full((5,), 7), torch.ones(5)
    expected_losses, expected = cross_entropy_grad(logits.clone(), targets, weights, 8251)
    losses, found = kernels["cross_entropy"].cross_entropy_grad(logits.clone(), targets, weights, 8251)
    assert torch.allclose(losses[:3], expected_losses[:3], rtol=1e-6)
    assert torch.allclose(found[:3], expected[:3], atol=1e-6)
    assert not torch.isfinite(losses[3:]).any() and not torch.isfinite(expected_losses[3:]).any()


@pytest.mark.parametrize("target", [60, 72])  # in the padding, and beyond the row
def test_cross_entropy_grad_of_a_token_that_is_none_is_no_number_and_harms_nobody(
    kernels: dict[str, ModuleType], target: int
) -> None:
    memory = torch.zeros(3, 64)
    losses, _ = kernels["cross_entropy"].cross_entropy_grad(memory[:2], torch.tensor([3, target]), torch.ones(2), 60)
    assert torch.isfinite(losses[0]) and torch.isnan(losses[1])
    assert not memory[2].any()


@pytest.mark.parametrize(("vocab", "width"), [(4096, 4096), (5001, 5056), (97, 128)])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_distillation_grad_equals_the_plain_one_also_with_padding_and_far_from_each_other(
    kernels: dict[str, ModuleType], vocab: int, width: int, temperature: float
) -> None:
    logits, teacher = 5 * random(6, width), 5 * random(6, width, seed=1)
    logits[0, 90], teacher[1, 3], teacher[2, 96] = 300.0, 300.0, -300.0
    targets = torch.tensor([0, vocab - 1, 17, -100, 3, 96])
    weights = torch.tensor([1.0, 0.5, 2.0, 0.0, 1.0, 0.25])
    arguments = (targets, weights, vocab, teacher, 0.4, temperature)
    expected = distillation_grad(logits.clone(), *arguments)
    given, before = logits.clone(), teacher.clone()
    found = kernels["distillation"].distillation_grad(given, *arguments)
    assert found[2].data_ptr() == given.data_ptr() and torch.equal(teacher, before)
    for part, other in zip(found, expected, strict=True):
        assert torch.allclose(part, other, rtol=1e-5, atol=2e-5)


def test_distillation_grad_of_logits_that_are_no_numbers_or_of_a_token_that_is_none(
    kernels: dict[str, ModuleType],
) -> None:
    memory, teacher = random(5, 64), random(4, 64, seed=1)
    memory[0, 9], teacher[1, 9] = math.nan, math.nan
    last = memory[4].clone()
    targets = torch.tensor([3, 3, 72, 3])
    entropies, divergences, _ = kernels["distillation"].distillation_grad(
        memory[:4], targets, torch.ones(4), 60, teacher, 0.5, 2.0
    )
    assert torch.isnan(entropies).tolist() == [True, False, True, False]
    assert torch.isnan(divergences).tolist() == [True, True, False, False]
    assert torch.equal(memory[4], last)


@pytest.mark.parametrize("width", [64, 1500])
def test_swiglu_backward_equals_autograds(kernels: dict[str, ModuleType], width: int) -> None:
    gate_up = random(5, 2 * width).requires_grad_()
    grad = random(5, width, seed=1)
    gate, up = gate_up.chunk(2, -1)
    expected = F.silu(gate) * up
    expected.backward(grad)
    assert gate_up.grad is not None
    slopes, again = kernels["activations"].swiglu_backward(gate_up.detach(), grad)
    assert torch.allclose(slopes, gate_up.grad, atol=1e-5)
    assert torch.allclose(again, expected.detach(), atol=1e-6)


def test_rope_and_its_backward_equal_the_plain_ones(kernels: dict[str, ModuleType]) -> None:
    H, K, D, B, T = 6, 2, 8, 2, 5
    table = rotary_table(LlamaConfig(vocab=9, d_model=H * D, n_heads=H, n_kv=K, d_ff=8, n_layers=1, ctx=T))
    qkv = random(B, T, (H + 2 * K) * D).requires_grad_()
    expected = ops.split_rope(qkv, table, H, K)
    grads = [random(*part.shape, seed=3 + i) for i, part in enumerate(expected)]
    torch.autograd.backward(expected, grads)
    assert qkv.grad is not None
    heads = qkv.detach().unflatten(-1, (H + 2 * K, D))
    found = kernels["heads"].rope(heads, table, H + K).split((H, K, K), dim=2)
    for part, other in zip(found, expected, strict=True):
        assert torch.allclose(part, other.detach(), atol=1e-6)
    # Attention gives gradients in an order of its own: heads before tokens, or tokens last of all.
    for order in ((0, 2, 1, 3), (0, 2, 3, 1)):
        back = kernels["heads"].rope_backward(*(_laid_out(grad, order) for grad in grads), table)
        assert torch.allclose(back.flatten(2), qkv.grad, atol=1e-6)


@pytest.mark.parametrize("width", [64, 300])
@pytest.mark.parametrize("kind", ["layer", "layer without shift", "rms"])
def test_norm_linear_has_autograds_gradients(kernels: dict[str, ModuleType], kind: str, width: int) -> None:
    N, E, centred = 7, 24, kind != "rms"
    x, added = random(N, width).requires_grad_(), (3 + random(N, width, seed=1)).requires_grad_()
    scale = random(width, seed=2).requires_grad_()
    shift = random(width, seed=3).requires_grad_() if kind == "layer" else None
    weight, bias = random(E, width, seed=4).requires_grad_(), random(E, seed=5).requires_grad_()
    held = random(width, seed=8).requires_grad_()  # a bias that `added` holds
    taken = [tensor for tensor in (x, added, scale, shift, weight, bias) if tensor is not None]
    total = x + added
    normed = F.layer_norm(total, (width,), scale, shift, 1e-5) if centred else F.rms_norm(total, (width,), scale, 1e-5)
    grads = (random(N, width, seed=6), random(N, E, seed=7))
    expected = torch.autograd.grad((total, F.linear(normed, weight, bias)), taken, grads)
    found = kernels["norm"].NormLinear.apply(x, added, held, scale, shift, 1e-5, centred, weight, bias)
    assert torch.allclose(found[0], total) and torch.allclose(found[1], F.linear(normed, weight, bias), atol=1e-5)
    by_held, *others = torch.autograd.grad(found, [held, *taken], grads)
    for gradient, other in zip(others, expected, strict=True):
        assert torch.allclose(gradient, other, rtol=1e-4, atol=1e-4)
    assert torch.allclose(by_held, expected[1].sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norm_alone_has_autograds_gradients(kernels: dict[str, ModuleType], kind: str) -> None:
    N, width, centred = 7, 300, kind == "layer"
    x, added = random(N, width).requires_grad_(), (3 + random(N, width, seed=1)).requires_grad_()
    scale, shift = random(width, seed=2).requires_grad_(), random(width, seed=3).requires_grad_() if centred else None
    taken = [tensor for tensor in (x, added, scale, shift) if tensor is not None]
    total = x + added
    normed = F.layer_norm(total, (width,), scale, shift, 1e-5) if centred else F.rms_norm(total, (width,), scale, 1e-5)
    grads = (random(N, width, seed=6), random(N, width, seed=7))
    expected = torch.autograd.grad((total, normed), taken, grads)
    found = kernels["norm"].NormRows.apply(x, added, None, scale, shift, 1e-5, centred)
    assert torch.allclose(found[0], total) and torch.allclose(found[1], normed, atol=1e-5)
    for gradient, other in zip(torch.autograd.grad(found, taken, grads), expected, strict=True):
        assert torch.allclose(gradient, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("type", SPLITTABLE, ids=lambda type: type.name)
def test_a_packed_matrix_is_decoded_as_on_a_cpu(kernels: dict[str, ModuleType], type: GGMLType) -> None:
    matrix, exact = packed((type, 130), values=256)
    ((packing, planes),) = matrix.parts
    found = kernels["unpack"].unpack(packing, planes, torch.float32, None)
    assert torch.allclose(found.T, torch.from_numpy(exact), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("width", [64, 300])
def test_gelu_linear_has_autograds_gradients_also_for_the_bias_before_it(
    kernels: dict[str, ModuleType], width: int
) -> None:
    N, D = 37, 24
    up, up_bias = random(N, width), random(width, seed=1).requires_grad_()
    weight, bias = random(D, width, seed=2).requires_grad_(), random(D, seed=3).requires_grad_()
    grad = random(N, D, seed=4)
    biased = (up + up_bias).detach().requires_grad_()
    plain = F.linear(F.gelu(biased, approximate="tanh"), weight, bias)
    by_up, *expected = torch.autograd.grad(plain, (biased, weight, bias), grad)
    found = kernels["activations"].GELULinear.apply(biased, up_bias, weight, bias)
    assert torch.allclose(found, plain, atol=1e-5)
    slopes, by_up_bias, *others = torch.autograd.grad(found, (biased, up_bias, weight, bias), grad)
    assert torch.allclose(slopes, by_up, atol=1e-5)
    assert torch.allclose(by_up_bias, by_up.sum(0), rtol=1e-4, atol=1e-4)
    for gradient, other in zip(others, expected, strict=True):
        assert torch.allclose(gradient, other, rtol=1e-4, atol=1e-4)


def test_gradients_of_heads_are_concatenated_and_summed(kernels: dict[str, ModuleType]) -> None:
    B, T, H, D = 3, 25, 2, 12
    qkv, bias = random(B, T, 3 * H, D).requires_grad_(), random(3 * H * D, seed=1).requires_grad_()
    # Attention gives gradients in an order of its own: heads before tokens, or tokens last of all.
    orders = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 1, 2, 3))
    grads = [_laid_out(random(B, T, H, D, seed=2 + i), order) for i, order in enumerate(orders)]
    parts = kernels["heads"].SplitHeads.apply(qkv, bias)
    for part, other in zip(parts, qkv.chunk(3, dim=2), strict=True):
        assert torch.equal(part, other)
    by_qkv, by_bias = torch.autograd.grad(parts, (qkv, bias), grads)
    assert torch.equal(by_qkv, torch.cat(grads, dim=2))
    assert torch.allclose(by_bias, by_qkv.flatten(2).sum((0, 1)), atol=1e-5)


@pytest.mark.parametrize("T", [5, 49, 64, 70, 196])
def test_short_attention_has_autograds_gradients_also_for_the_bias(kernels: dict[str, ModuleType], T: int) -> None:
    B, H, D = 2, 3, 24
    qkv, bias = random(B, T, 3 * H, D).requires_grad_(), random(3 * H * D, seed=1).requires_grad_()
    grad = random(B, T, H, D, seed=2)
    q, k, v = (part.transpose(1, 2) for part in qkv.chunk(3, dim=2))
    expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    found = kernels["short_attention"].ShortAttention.apply(qkv, bias)
    assert torch.allclose(found, expected, atol=1e-5)
    (wanted,) = torch.autograd.grad(expected, qkv, grad)
    by_qkv, by_bias = torch.autograd.grad(found, (qkv, bias), grad)
    assert torch.allclose(by_qkv, wanted, atol=1e-5)
    assert torch.allclose(by_bias, wanted.flatten(2).sum((0, 1)), atol=1e-4)


@pytest.mark.parametrize("seen", ["causal", "documents", "all"])
@pytest.mark.parametrize(("T", "D", "heads"), [(5, 8, (2, 2)), (33, 24, (4, 2)), (40, 16, (3, 1))])
def test_ordered_attention_has_autograds_gradients(
    kernels: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, T: int, D: int, heads: tuple[int, int], seen: str
) -> None:
    module, (H, K), B = kernels["ordered_attention"], heads, 2
    few = dict.fromkeys((16, 32), (16, 16, 4, 1))  # so that each program goes round several times
    monkeypatch.setattr(module, "_BLOCKS", {"forward": few, "queries": dict.fromkeys(few, (32, 16, 4, 1)), "keys": few})
    documents = torch.arange(T).div(7, rounding_mode="floor").expand(B, -1) if seen == "documents" else None
    qkv = random(B, T, H + 2 * K, D).requires_grad_()
    grad = _laid_out(random(B, T, H, D, seed=2), (0, 2, 1, 3))
    q, k, v = qkv.split((H, K, K), dim=2)
    visible = torch.ones(T, T, dtype=torch.bool) if seen == "all" else torch.ones(T, T, dtype=torch.bool).tril()
    mask = visible if documents is None else document_mask(documents)
    spread = (x.transpose(1, 2).repeat_interleave(H // x.shape[2], 1) for x in (q, k, v))
    expected = F.scaled_dot_product_attention(*spread, attn_mask=mask).transpose(1, 2)
    found = module.OrderedAttention.apply(q, k, v, seen != "all", documents)
    assert torch.allclose(found, expected, atol=1e-5)
    (wanted,), (by_qkv,) = (torch.autograd.grad(out, qkv, grad) for out in (expected, found))
    assert torch.allclose(by_qkv, wanted, atol=1e-5)


@pytest.mark.parametrize("D", [16, 1030])
def test_gradients_of_an_embedding_are_exact_sums(kernels: dict[str, ModuleType], D: int) -> None:
    ids = torch.tensor([[3, 0, 3, 3], [1, 3, 0, 6]])
    weight, positions = random(7, D).requires_grad_(), random(4, D, seed=1).requires_grad_()
    grad = random(2, 4, D, seed=2) * torch.logspace(-3, 3, D)  # sizes far apart
    rows = kernels["embedding"].EmbeddingRows.apply(ids, weight, positions, torch.float32)
    assert torch.equal(rows, weight[ids] + positions)
    by_weight, by_positions = torch.autograd.grad(rows, (weight, positions), grad)
    exact = torch.zeros(7, D, dtype=torch.float64).index_add_(0, ids.flatten(), grad.flatten(0, 1).double())
    assert torch.equal(by_weight, exact.float())
    assert torch.allclose(by_positions, grad.sum(0))


@pytest.mark.parametrize("odd", [0.0, 1e-44, 3e38, math.inf, math.nan])
def test_gradients_of_an_embedding_show_what_is_not_finite_and_hold_what_is(
    kernels: dict[str, ModuleType], odd: float
) -> None:
    grad = torch.full((3, 4), odd)
    found = kernels["embedding"].embedding_backward(grad, grad.abs().amax(), torch.tensor([0, 1, 1]), 3)
    if math.isfinite(odd):
        assert torch.equal(found, torch.tensor([1.0, 2.0, 0.0])[:, None].expand(3, 4) * torch.tensor(odd))
    else:
        assert torch.isnan(found).all()


def _laid_out(x: Tensor, order: tuple[int, ...]) -> Tensor:
    """The same numbers, in memory with the dimensions in this order."""
    back = [order.index(dim) for dim in range(x.ndim)]
    return x.permute(order).contiguous().permute(back)


MODELS = {
    "llama": LlamaConfig(vocab=64, d_model=24, n_heads=4, n_kv=2, d_ff=40, n_layers=2, ctx=8),
    "llama with biases": LlamaConfig(
        vocab=64,
        d_model=24,
        n_heads=4,
        n_kv=4,
        d_ff=40,
        n_layers=2,
        ctx=8,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
    ),
    "gpt2": GPT2Config(vocab=64, d_model=24, n_heads=3, d_ff=40, n_layers=2, ctx=8),
}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS.keys())
def test_a_model_by_kernels_has_the_plain_ones_gradients(
    kernels: dict[str, ModuleType], config: Config, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(config, seed=1)
    model.use_dropout(dropout)
    ids = torch.arange(16).reshape(2, 8) * 7 % 64
    # So few programs, with so little at once, that each goes round several times.
    few = {"norm": {"PROGRAMS": 3, "NUMBERS": 2}, "activations": {"GELU_PROGRAMS": 3, "GELU_ROWS": 2}}
    for name, sizes in (few | {"heads": {"CONCAT_PROGRAMS": 18, "CONCAT_TOKENS": 2}}).items():
        for constant, size in sizes.items():
            monkeypatch.setattr(kernels[name], constant, size)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2]] * 2)
    with sdpa_kernel(SDPBackend.MATH):  # its gradients lie in memory as no other's do
        _agree(model, lambda: model.loss(ids, ids.roll(-1, 1), documents), monkeypatch)


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS.keys())
def test_an_adapted_model_by_kernels_has_the_plain_ones_gradients(
    kernels: dict[str, ModuleType], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(config, seed=1)
    targets = ["attn_output", "ffn_up", "ffn_down"]  # one projection stays as it was
    add_adapter(model, AdapterShape(parse_targets(targets, config), rank=3, dropout=0.2))
    ids = torch.arange(16).reshape(2, 8) * 7 % 64
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2]] * 2)
    with sdpa_kernel(SDPBackend.MATH):
        _agree(model, lambda: model.loss(ids, ids.roll(-1, 1), documents), monkeypatch)


@pytest.mark.parametrize("changes", [{}, {"pooling": "cls"}, {"norm": "rms", "act": "silu", "bias": False}])
def test_a_vision_transformer_by_kernels_has_the_plain_ones_gradients(
    kernels: dict[str, ModuleType], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"image_size": 8, "patch_size": 4, "d_model": 24, "n_heads": 2, "d_ff": 40, "n_layers": 2, "num_classes": 5}
    model = build(ViTConfig(**shape, **changes), seed=1)
    images = torch.arange(2 * 3 * 64).reshape(2, 3, 8, 8) * 37 % 256
    _agree(model, lambda: model.loss(images, torch.tensor([1, 4]))[0], monkeypatch)


def _agree(model: nn.Module, loss_of: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * random(*parameter.shape, seed=parameter.numel())  # biases are no zeros
    expected = loss_of()
    expected.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    monkeypatch.setattr(ops, "uses_triton", lambda x: True)
    monkeypatch.setattr("linnet.kernels.cuda.short_attention.fits", lambda qkv: True)
    loss = loss_of()
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    for name, parameter in model.named_parameters():
        wanted, found = gradients[name], parameter.grad
        assert (wanted is None) == (found is None), name
        assert wanted is None or found is None or torch.allclose(found, wanted, rtol=1e-3, atol=1e-5), name


def test_launches_have_room_for_any_number_of_rows(
    kernels: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[tuple[int, ...]] = []

    class Launch:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            grids.append(grid)
            return lambda *_, **__: None

    monkeypatch.setattr(kernels["activations"], "_swiglu_backward", Launch())
    monkeypatch.setattr(kernels["heads"], "_rope", Launch())
    rows = 64 * 1024
    kernels["activations"].swiglu_backward(torch.empty(rows, 4), torch.empty(rows, 2))
    kernels["heads"].rope(torch.empty(rows, 1, 3, 2), torch.empty(1, 1, 2), 2)
    assert [math.prod(grid) for grid in grids] == [rows, rows / kernels["heads"].ROPE_TOKENS]
    for grid in grids:
        assert all(size <= 65_535 for size in grid[1:])  # CUDA's bound on all dimensions but the first


@pytest.mark.parametrize("scaled", [False, True])
def test_muons_kernels_move_as_the_plain_optimizer_does(kernels: dict[str, ModuleType], scaled: bool) -> None:
    kernel = kernels["muon"]
    starts = [random(24, 40, seed=seed) for seed in range(3)]
    gradients, buffers = random(3, 24, 40, seed=5), 0.1 * random(3, 24, 40, seed=6)
    scale, lr, momentum = torch.tensor(2.5), torch.tensor(0.02), torch.tensor(0.95)
    weights = [start.clone() for start in starts]
    expected = buffers.lerp(gradients / scale if scaled else gradients, 0.05)
    ahead = kernel.momentum_ahead(gradients, buffers, scale if scaled else None, momentum)
    assert torch.allclose(buffers, expected, atol=1e-6)
    wanted = (gradients / scale if scaled else gradients).lerp(expected, 0.95)
    assert ahead.dtype == torch.bfloat16 and torch.allclose(ahead.float(), wanted, rtol=1e-2)
    gram = ahead.float() @ ahead.float().mT
    gram[2] = 0  # of a matrix that is nothing
    half, scales = kernel.normalised(gram, 1e-14)
    norms = torch.linalg.vector_norm(gram, dim=(1, 2)).clamp(min=1e-14)
    assert torch.allclose(half.float(), gram / norms[:, None, None], atol=1e-3)
    assert torch.allclose(scales, norms.rsqrt())
    large = random(2, 72, 72, seed=8)  # more than a block
    assert torch.allclose(kernel.normalised(large, 1e-14)[1], torch.linalg.vector_norm(large, dim=(1, 2)).rsqrt())
    factor = kernel.quintic(half, half @ half, 3.0, -2.0, 0.5).float()
    plain = 3 * torch.eye(24) - 2 * half.float() + 0.5 * (half @ half).float()
    assert torch.allclose(factor, plain, atol=5e-3)
    update = kernel.scaled(ahead[:2], scales[:2])
    assert update.dtype == torch.float16
    assert torch.allclose(update.float(), ahead[:2].float() * scales[:2, None, None], rtol=2e-3, atol=1e-6)
    kernel.move(torch.tensor([weight.data_ptr() for weight in weights[:2]]), update, lr, 0.1, 3.0)
    for weight, start, step in zip(weights[:2], starts[:2], update.float(), strict=True):
        assert torch.allclose(weight, start * (1 - 0.02 * 0.1) - 0.02 * 3.0 * step, atol=1e-6)
    assert torch.equal(weights[2], starts[2])
