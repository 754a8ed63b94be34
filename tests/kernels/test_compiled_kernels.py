"""The parts that share work with a kernel, traced as the compiler does it: no gradient is lost or counted twice.

Plain functions stand in for the kernels, which no CPU runs under the compiler (see `test_interpreted_kernels.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.gguf.tensor import GGMLType
from linnet.kernels import frozen as frozen_products
from linnet.kernels import ops
from linnet.kernels import packed as packed_matrices
from linnet.kernels.executor import Compiled, Executor, eager
from linnet.kernels.packed import Packing, Planes
from linnet.models import Config, GPT2Config, LlamaConfig, ViTConfig, build
from linnet.models.adapter_shape import AdapterShape, parse_targets
from linnet.models.adapters import add_adapter
from linnet.models.layers import Linear, PackedLinear
from tests.kernels.packed_matrices import packed

pytest.importorskip("triton", reason="Triton has no wheel for this machine")

from linnet.kernels.cuda import activations, embedding, heads, norm, short_attention, unpack

GPT2 = GPT2Config(vocab=64, d_model=24, n_heads=3, d_ff=40, n_layers=3, ctx=8)
LLAMA = LlamaConfig(
    vocab=64, d_model=24, n_heads=4, n_kv=2, d_ff=40, n_layers=2, ctx=8, qkv_bias=True, output_bias=True, ffn_bias=True
)
VIT = ViTConfig(image_size=8, patch_size=4, d_model=24, n_heads=2, d_ff=40, n_layers=2, num_classes=5)
IDS_BT = torch.arange(16).reshape(2, 8) * 7 % 64
IMAGES = torch.arange(2 * 3 * 64).reshape(2, 3, 8, 8) * 37 % 256


def norm_backward(
    x: Tensor,
    grad: Tensor,
    beside: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    eps: float,
    centred: bool,
    summed: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    g = grad.float()
    value = x.float() - x.float().mean(1, keepdim=True) if centred else x.float()
    unit = torch.rsqrt((value * value).mean(1, keepdim=True) + eps)
    hat, slope = value * unit, g * scale
    inner = slope - hat * (slope * hat).mean(1, keepdim=True)
    found = beside.float() + (inner - slope.mean(1, keepdim=True) if centred else inner) * unit
    again = hat * scale + (0 if shift is None else shift)
    sums = [(g * hat).sum(0), *([] if shift is None else [g.sum(0)]), *([found.sum(0)] if summed else [])]
    return found.to(x.dtype), again.to(x.dtype), torch.stack(sums)[None]


def gelu_backward(up: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, root, cube = up.float(), 2 * math.sqrt(2 / math.pi), 0.044715
    share = torch.sigmoid(root * x * (1 + cube * x * x))
    slope = grad.float() * (share + x * share * (1 - share) * root * (1 + 3 * cube * x * x))
    return slope.to(up.dtype), (x * share).to(up.dtype), slope.sum(0)[None]


def concat_qkv_grad(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    whole = torch.cat((q, k, v), 2)
    return whole, whole.float().flatten(2).sum((0, 1))[None]


def rotate(qkv: Tensor, table: Tensor, n_rotated: int) -> Tensor:
    a, b = qkv[:, :, :n_rotated].float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    rotated = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    return torch.cat((rotated.to(qkv.dtype), qkv[:, :, n_rotated:]), 2)


def rope_backward(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    return rotate(torch.cat((q, k, v), 2), table * torch.tensor([1.0, -1.0]), q.shape[2] + k.shape[2])


def swiglu_backward(gate_up: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    gates, up = gate_up.chunk(2, -1)
    share, silu = torch.sigmoid(gates), F.silu(gates)
    return torch.cat((grad * up * (share + silu * (1 - share)), grad * silu), -1), silu * up


def embedding_backward(grad: Tensor, largest: Tensor, ids: Tensor, rows: int) -> Tensor:
    return torch.zeros(rows, grad.shape[1]).index_add(0, ids, grad.float())


def unpack_planes(
    low: Tensor, high: Tensor | None, scale: Tensor, minimum: Tensor | None, sub_scale: Tensor | None,
    sub_minimum: Tensor | None, after: Tensor | None, dtype: torch.dtype, bits: int, high_bits: int, group: int,
    block: int, offset: int, minimum_sign: int, low_levels: int, high_levels: int,
) -> Tensor:  # fmt: skip
    found = [(each >> 8 * place) & 255 for each in (low_levels, high_levels) for place in range(8)]
    levels = tuple(level - 256 if level > 127 else level for level in found) if low_levels or high_levels else ()
    packing = Packing(bits, high_bits, group, block, offset, minimum_sign, levels)
    planes = Planes(low, high, scale, minimum, sub_scale, sub_minimum)
    return packed_matrices.unpack([(packing, planes)], dtype).T


def unpack_as_on_a_gpu(parts: Any, dtype: torch.dtype, after: Tensor | None = None, memory: object = None) -> Tensor:
    return torch.cat([unpack.unpack(packing, planes, dtype, after) for packing, planes in parts], 1).T


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch, without_inductor: None) -> None:
    for module, function in (
        (norm, norm_backward),
        (activations, gelu_backward),
        (heads, concat_qkv_grad),
        (heads, rope_backward),
        (activations, swiglu_backward),
        (embedding, embedding_backward),
        (unpack, unpack_planes),
    ):
        monkeypatch.setattr(module, function.__name__, function)
    monkeypatch.setattr(heads, "rope", rotate)
    monkeypatch.setattr(short_attention, "fits", lambda qkv: False)
    monkeypatch.setattr(ops, "uses_triton", lambda x: torch.compiler.is_compiling())


def agree(model: nn.Module, loss_of: Callable[[Executor], Tensor], dtype: torch.dtype) -> None:
    """A step of two parts, compiled, has the gradients of a plain one; those that are frozen have none."""
    model.set_compute_dtype(dtype)  # type: ignore[operator]
    with torch.no_grad():
        for parameter in model.parameters():
            made = torch.Generator().manual_seed(parameter.numel())
            parameter += 0.1 * torch.randn(parameter.shape, generator=made)  # biases are no zeros
    loss_of(eager).backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    executor = Compiled(dtype)
    executor.before_step()
    for _ in range(2):
        (loss_of(executor) / 2).backward()
        executor.after_backward()
    limit = 1e-4 if dtype == torch.float32 else 0.06
    for name, parameter in model.named_parameters():
        wanted, found = expected[name], parameter.grad
        assert (wanted is None) == (found is None), name
        if wanted is not None and found is not None:
            assert found.dtype == torch.float32
            assert (found - wanted).norm() <= limit * wanted.norm() + 1e-6, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("frozen", ["nothing", "norm", "bias", "attn_output.bias", "blocks.0"])
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_every_parameter_of_a_language_model_gets_its_gradient(config: Config, frozen: str, dtype: torch.dtype) -> None:
    model = build(config, seed=1)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen not in name)
    agree(model, lambda executor: model.loss(IDS_BT, IDS_BT.roll(-1, 1), executor=executor), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_every_parameter_gets_the_gradient_of_what_dropout_has_left(config: Config, dtype: torch.dtype) -> None:
    model = build(config, seed=1)
    model.use_dropout(0.2)
    agree(model, lambda executor: model.loss(IDS_BT, IDS_BT.roll(-1, 1), executor=executor), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("changes", [{}, {"pooling": "cls"}, {"act": "silu"}, {"norm": "rms", "bias": False}])
def test_every_parameter_of_a_vision_transformer_gets_its_gradient(changes: dict[str, Any], dtype: torch.dtype) -> None:
    model = build(dataclasses.replace(VIT, **changes), seed=1)
    agree(model, lambda executor: model.loss(IMAGES, torch.tensor([1, 4]), executor=executor)[0], dtype)


@pytest.mark.parametrize(
    ("type", "dropout"), [(GGMLType.Q4_1, 0.0), (GGMLType.IQ4_NL, 0.2)], ids=["Q4_1", "IQ4_NL, dropout"]
)
def test_every_pair_beside_a_packed_base_gets_its_gradient(
    type: GGMLType, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(dataclasses.replace(LLAMA, d_model=64, d_ff=96), seed=1).requires_grad_(False)
    for block in model.blocks:
        for name, layer in list(block.named_modules()):
            if isinstance(layer, Linear):
                owner, _, attribute = name.rpartition(".")
                rows, values = layer.weight.shape
                matrix, _ = packed((type, rows), values=values)
                for scale in matrix.buffers():  # as small as weights are, so that rounding stays small
                    if scale.dtype == torch.float16:
                        scale *= 0.05
                setattr(block.get_submodule(owner), attribute, PackedLinear(matrix, layer.bias))
    adapter = add_adapter(model, AdapterShape(parse_targets(["all"], model.config), 4, dropout=dropout))
    adapter.begin_step(3)
    monkeypatch.setattr(frozen_products, "unpack", unpack_as_on_a_gpu)
    agree(model, lambda executor: model.loss(IDS_BT, IDS_BT.roll(-1, 1), executor=executor), torch.float32)
