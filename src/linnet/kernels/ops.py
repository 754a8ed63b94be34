"""A transformer's operations, and the one place that chooses among their forms: plain torch, eager, CPU, Triton.

A model calls these and knows nothing of the forms. Shapes: B batch, T tokens, S keys, H heads, K key/value heads,
D width or head size, N rows, V vocabulary.

| form | taken when | where |
|---|---|---|
| Triton kernels | a layer is compiled for CUDA | `cuda/` |
| plain torch | anything else is compiled; evaluation; MPS | here |
| hand-written backward passes | eager training | `autograd.py` |
| kernels for a CPU | eager training on a CPU in float32, where they are faster | `cpu.py` |
| products that keep nothing | a matrix is frozen and packed, or adapted | `frozen.py` |

A projection is an `nn.Linear`, whose weight the fused forms read, or another module (packed, adapted), which is called
with what it reads and with the keys of dropout's masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from linnet.kernels import autograd, cpu
from linnet.kernels.distillation import (
    Distillation,
    DistillationGrad,
    DistilledHeadLoss,
    DistilledLoss,
    distillation_grad,
)
from linnet.kernels.dropout import drop, next_keys
from linnet.kernels.executor import Executor, eager
from linnet.kernels.frozen import (
    AdaptedMatmul,
    EagerFrozenMatmul,
    FrozenMatmul,
    FrozenWeight,
    frozen_product,
)
from linnet.kernels.head_loss import (
    CPUHeadLoss,
    CrossEntropy,
    HeadLoss,
    PackedHeadLoss,
    TargetLogProbs,
    cross_entropy_grad,
    evaluated_head_loss,
)
from linnet.kernels.packed import PackedMatrix

Norm = nn.RMSNorm | nn.LayerNorm
AttentionBackend = Literal["flash", "cudnn"]


def uses_triton(x: Tensor) -> bool:
    """Are the operations on `x` computed by Triton kernels? Operations that share work must answer alike."""
    return torch.compiler.is_compiling() and x.is_cuda


_ordered = True  # see `ordered_sums`


@contextmanager
def ordered_sums(wanted: bool) -> Iterator[None]:
    """Take the forms that add up in one order, and so give the same bits every time; or else the quickest ones."""
    global _ordered
    before, _ordered = _ordered, wanted
    try:
        yield
    finally:
        _ordered = before


# Embeddings, linear layers and norms


def embedding(
    ids_BT: Tensor, weight_VD: Tensor, dtype: torch.dtype = torch.float32, plus_TD: Tensor | None = None
) -> Tensor:
    """[B, T, D]: the row of each id, plus `plus_TD`, in `dtype`."""
    if _ordered and uses_triton(weight_VD):
        from linnet.kernels.cuda.embedding import EmbeddingRows

        x_BTD: Tensor = EmbeddingRows.apply(ids_BT, weight_VD, plus_TD, dtype)
        return x_BTD
    rows_BTD = F.embedding(ids_BT, weight_VD)
    return (rows_BTD if plus_TD is None else rows_BTD + plus_TD).to(dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b in the dtype of x: […, in] → […, out]."""
    weight = weight.to(x.dtype)
    if bias is None and cpu.matmul_is_faster(x, weight):
        y: Tensor = cpu.Matmul.apply(x, weight)
        return y
    return F.linear(x, weight, _cast(bias, x.dtype))


def packed_linear(x: Tensor, matrix: PackedMatrix, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b with a W that is not trained and is decoded for each product."""
    if torch.compiler.is_compiling():
        planes = [plane for _, part in matrix.parts for plane in part]
        y: Tensor = FrozenMatmul.apply(x, tuple(packing for packing, _ in matrix.parts), *planes)
    elif torch.is_grad_enabled() and x.requires_grad:
        y = EagerFrozenMatmul.apply(x, matrix)
    else:
        y = frozen_product(x, matrix)
    return y if bias is None else y + bias.to(x.dtype)


def adapted_linear(x: Tensor, base: FrozenWeight, a_RK: Tensor, b_MR: Tensor, dropped: Tensor | None = None) -> Tensor:
    """A frozen layer's x Wᵀ + b, and the trained x Aᵀ Bᵀ; `dropped` is what the latter reads instead of x."""
    read = x if dropped is None else dropped
    trains = torch.is_grad_enabled() and (read.requires_grad or a_RK.requires_grad)
    if trains and x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling():
        y: Tensor = AdaptedMatmul.apply(x, dropped, a_RK, b_MR, base)
        return y
    weight = base.weight
    frozen = packed_linear(x, weight, base.bias) if isinstance(weight, PackedMatrix) else linear(x, weight, base.bias)
    return frozen + F.linear(F.linear(read, a_RK.to(x.dtype)), b_MR.to(x.dtype))


def dropout(x_BTD: Tensor, keys_B: Tensor | None, salt: int, share: float) -> Tensor | None:
    """What dropout leaves of x, by the keys of its rows; None: nothing is dropped."""
    return None if keys_B is None or not share else drop(x_BTD, keys_B, salt, share)


def rms_norm(x: Tensor, weight: Tensor, eps: float | None) -> Tensor:
    """x / rms(x) · weight, computed in float32, in the dtype of x."""
    if torch.compiler.is_compiling() or x.device.type != "cpu" or not torch.is_grad_enabled():
        return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)
    y: Tensor = autograd.RMSNorm.apply(x.float(), weight, eps)
    return y.to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """(x − mean) / std · weight + bias, computed in float32, in the dtype of x."""
    return F.layer_norm(x.float(), weight.shape, weight, bias, eps).to(x.dtype)


# The residual stream: what is read from it, normed, and what is added to it


_UPDATE = 0x1B873593  # the salt of what is dropped of an update


class Residual(NamedTuple):
    """x + update, where the sum is left to the norm that reads it: on CUDA one kernel does both (`norm_linear`).

    A model only adds to it and hands it on. It is a plain tuple of tensors, so that it passes through a compiled layer.
    """

    x_BTD: Tensor
    update_BTD: Tensor | None = None
    update_bias_D: Tensor | None = None  # a bias that the update holds, whose gradient the same kernel sums up
    mask_keys_B: Tensor | None = None  # of what is dropped (`dropout.row_keys`); None: nothing

    def plus(self, update_BTD: Tensor, bias_D: Tensor | None = None, dropout: float = 0.0) -> Residual:
        """The stream with one update more, or with what dropout leaves of it."""
        assert self.update_BTD is None, "an update is added by the next norm: there is one between two of them"
        if not self.drops(dropout):
            return Residual(self.x_BTD, update_BTD, bias_D, self.mask_keys_B)
        assert bias_D is None and self.mask_keys_B is not None, "the norm would sum what was dropped for the bias"
        keys_B = next_keys(self.mask_keys_B)
        return Residual(self.x_BTD, drop(update_BTD, keys_B, _UPDATE, dropout), None, keys_B)

    def drops(self, dropout: float) -> bool:
        """Is something dropped of an update, where the layer has this share?"""
        return bool(dropout) and self.mask_keys_B is not None

    def total(self) -> Tensor:
        """[B, T, d_model]: the sum itself."""
        frozen = self.update_bias_D is None or not self.update_bias_D.requires_grad
        assert frozen, "nobody would compute the gradient of this bias"
        return self.x_BTD if self.update_BTD is None else self.x_BTD + self.update_BTD


def residual(x_BTD: Tensor, executor: Executor = eager, mask_keys_B: Tensor | None = None) -> Residual:
    """The residual stream as the first layer reads it.

    Compiled, it has an update of zeros with a gradient as any layer's: the first layer is compiled with the others.
    """
    if executor is eager:
        return Residual(x_BTD, mask_keys_B=mask_keys_B)
    zeros_BTD = torch.zeros_like(x_BTD).requires_grad_(x_BTD.requires_grad)
    return Residual(x_BTD, zeros_BTD, mask_keys_B=mask_keys_B)


def project(projection: nn.Module, x_BTD: Tensor, stream: Residual) -> Tensor:
    """projection(x), of a layer that `stream` passes through."""
    y: Tensor = projection(x_BTD) if isinstance(projection, nn.Linear) else projection(x_BTD, stream.mask_keys_B)
    return y


def norm_linear(
    x: Residual, norm: Norm, projection: nn.Module, *, defer_bias_grad: bool = False
) -> tuple[Residual, Tensor]:
    """The residual stream with its update added, and projection(norm(x)).

    `defer_bias_grad`: the kernel that reads the projection, in the same operation, sums the gradient of its bias.
    """
    if not uses_triton(x.x_BTD):
        sum_BTD = x.total()
        return Residual(sum_BTD, mask_keys_B=x.mask_keys_B), project(projection, norm(sum_BTD), x)
    x_BTD, update_BTD, update_bias_D, mask_keys_B = x
    update_BTD = torch.zeros_like(x_BTD) if update_BTD is None else update_BTD
    centred = isinstance(norm, nn.LayerNorm)
    if not isinstance(projection, nn.Linear):
        from linnet.kernels.cuda.norm import NormRows

        sum_ND, normed_ND = NormRows.apply(
            x_BTD.flatten(0, -2), update_BTD.flatten(0, -2), update_bias_D,
            norm.weight, norm.bias if centred else None, norm.eps, centred,
        )  # fmt: skip
        sum_BTD = sum_ND.view_as(x_BTD)
        return Residual(sum_BTD, mask_keys_B=mask_keys_B), project(projection, normed_ND.view_as(x_BTD), x)
    from linnet.kernels.cuda.norm import NormLinear

    sum_ND, out_NE = NormLinear.apply(
        x_BTD.flatten(0, -2), update_BTD.flatten(0, -2), update_bias_D,
        norm.weight, norm.bias if centred else None, norm.eps, centred,
        projection.weight.to(x_BTD.dtype), _cast(projection.bias, x_BTD.dtype, defer_grad=defer_bias_grad),
    )  # fmt: skip
    return Residual(sum_ND.view_as(x_BTD), mask_keys_B=mask_keys_B), out_NE.view(*x_BTD.shape[:-1], -1)


def norm_heads(x: Residual, norm: Norm, qkv: nn.Module, n_heads: int) -> tuple[Residual, tuple[Tensor, ...]]:
    """The residual stream, and q, k and v [B, T, H, D] of qkv(norm(x))."""
    x, qkv_BTE = norm_linear(x, norm, qkv, defer_bias_grad=True)
    return x, _split_heads(qkv_BTE, _bias(qkv), n_heads)


def norm_attention(
    x: Residual, norm: Norm, qkv: nn.Linear, n_heads: int, first_only: bool = False
) -> tuple[Residual, Tensor]:
    """The residual stream, and bidirectional self-attention of qkv(norm(x)): [B, T, H·D].

    `first_only`: both for the first token alone, which still attends to all.
    """
    x, qkv_BTE = norm_linear(x, norm, qkv, defer_bias_grad=True)
    if not first_only:
        return x, _attend_all(qkv_BTE, qkv.bias, n_heads)
    q_BTHD, k_BTHD, v_BTHD = _split_heads(qkv_BTE, qkv.bias, n_heads)
    q_BH1D, k_BHTD, v_BHTD = q_BTHD[:, :1].transpose(1, 2), k_BTHD.transpose(1, 2), v_BTHD.transpose(1, 2)
    _observe(q_BH1D, k_BHTD, v_BHTD, None, causal=False)
    if _ordered and uses_triton(qkv_BTE):
        scores_BH1T = (q_BH1D @ k_BHTD.mT).float() * q_BH1D.shape[-1] ** -0.5
        out_BH1D = scores_BH1T.softmax(-1).to(v_BHTD.dtype) @ v_BHTD
    else:
        out_BH1D = F.scaled_dot_product_attention(q_BH1D, k_BHTD, v_BHTD)
    return Residual(x.x_BTD[:, :1]), out_BH1D.transpose(1, 2).flatten(2)


def add_linear(x: Residual, y_BTE: Tensor, projection: nn.Module, dropout: float = 0.0) -> Residual:
    """x + projection(y); a norm must follow in the same layer (on CUDA it sums the gradient of the bias).

    `dropout`: the share of what is added that is dropped, where the stream has keys for masks. So in the operations
    below.
    """
    if uses_triton(y_BTE) and isinstance(projection, nn.Linear) and not x.drops(dropout):
        weight = projection.weight.to(y_BTE.dtype)
        return x.plus(F.linear(y_BTE, weight, _cast(projection.bias, y_BTE.dtype, defer_grad=True)), projection.bias)
    return x.plus(project(projection, y_BTE, x), dropout=dropout)


def swiglu_mlp(x: Residual, norm: Norm, gate_up: nn.Module, down: nn.Module, dropout: float = 0.0) -> Residual:
    """x + down(silu(gate) · up), where gate and up are the two halves of gate_up(norm(x))."""
    x, gate_up_BT2F = norm_linear(x, norm, gate_up)
    if uses_triton(gate_up_BT2F) and isinstance(down, nn.Linear) and _bias(down) is None:
        from linnet.kernels.cuda.activations import SwiGLULinear

        y_ND: Tensor = SwiGLULinear.apply(gate_up_BT2F.flatten(0, -2), down.weight.to(gate_up_BT2F.dtype))
        return x.plus(y_ND.view(*gate_up_BT2F.shape[:-1], -1), dropout=dropout)
    if uses_triton(gate_up_BT2F) and not isinstance(down, nn.Linear):
        from linnet.kernels.cuda.activations import SwiGLU

        act_NF: Tensor = SwiGLU.apply(gate_up_BT2F.flatten(0, -2))
        return x.plus(project(down, act_NF.view(*gate_up_BT2F.shape[:-1], -1), x), dropout=dropout)
    return x.plus(project(down, swiglu(gate_up_BT2F), x), dropout=dropout)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) · up: […, 2F] → […, F]."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and gate_up.requires_grad):
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up
    y: Tensor = autograd.SwiGLU.apply(gate_up)
    return y


def gelu_mlp(x: Residual, norm: Norm, up: nn.Module, down: nn.Module, dropout: float = 0.0) -> Residual:
    """x + down(gelu(up(norm(x)))), GELU by tanh."""
    fused = isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
    x, up_BTF = norm_linear(x, norm, up, defer_bias_grad=fused)
    if uses_triton(up_BTF) and isinstance(up, nn.Linear) and isinstance(down, nn.Linear):
        from linnet.kernels.cuda.activations import GELULinear

        bias = _cast(down.bias, up_BTF.dtype)
        y_ND: Tensor = GELULinear.apply(up_BTF.flatten(0, -2), up.bias, down.weight.to(up_BTF.dtype), bias)
        return x.plus(y_ND.view(*up_BTF.shape[:-1], -1), dropout=dropout)
    return x.plus(project(down, F.gelu(up_BTF, approximate="tanh"), x), dropout=dropout)


def _bias(projection: nn.Module) -> Tensor | None:
    """Its bias, if it has one: torch's annotation knows no layer without."""
    bias: Tensor | None = projection.bias  # type: ignore[assignment]
    return bias


def _cast(bias: Tensor | None, dtype: torch.dtype, *, defer_grad: bool = False) -> Tensor | None:
    """A bias in this dtype, detached where another kernel computes its gradient."""
    if bias is None:
        return None
    return (bias.detach() if defer_grad else bias).to(dtype)


# Attention


# Queries [B, H, T, D], keys and values [B, K, S, D], the mask, and whether attention without a mask is causal.
AttentionObserver = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], None]

_attention_observer: AttentionObserver | None = None


@contextmanager
def observed_attention(observer: AttentionObserver) -> Iterator[None]:
    """Hand the inputs of every attention that runs eagerly to a function: what it computes inside is never a module's.

    For one forward pass at a time: attention in other threads is handed over too.
    """
    global _attention_observer
    before, _attention_observer = _attention_observer, observer
    try:
        yield
    finally:
        _attention_observer = before


def _observe(q_BHTD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask_TS: Tensor | None, *, causal: bool) -> None:
    # The compiler is asked first: then what it compiles does not depend on the observer.
    if not torch.compiler.is_compiling() and _attention_observer is not None:
        _attention_observer(q_BHTD, k_BKSD, v_BKSD, mask_TS, causal)


@contextmanager
def attention_backend(first: AttentionBackend) -> Iterator[None]:
    """Let torch's scaled_dot_product_attention try this kernel first; on a CPU there is only one."""
    if first == "flash":
        yield
        return
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(order, set_priority=True):
        yield


def split_rope(qkv_BTE: Tensor, rope_TP2: Tensor, n_heads: int, n_kv: int) -> tuple[Tensor, Tensor, Tensor]:
    """A fused projection as q [B, T, H, D], k and v [B, T, K, D], with q and k rotated by their positions."""
    if uses_triton(qkv_BTE):
        from linnet.kernels.cuda.heads import SplitRope

        q, k, v = SplitRope.apply(qkv_BTE.unflatten(-1, (n_heads + 2 * n_kv, -1)), rope_TP2, n_heads, n_kv)
        return q, k, v
    if torch.compiler.is_compiling() or qkv_BTE.device.type == "mps":
        heads = qkv_BTE.unflatten(-1, (n_heads + 2 * n_kv, -1))
        q, k, v = heads.split((n_heads, n_kv, n_kv), dim=2)
        return rope(q, rope_TP2), rope(k, rope_TP2), v
    q, k, v = autograd.SplitRope.apply(qkv_BTE, rope_TP2, n_heads, n_kv)
    return q, k, v


def rope(x_BTHD: Tensor, rope_TP2: Tensor) -> Tensor:
    """Neighbouring pairs rotated by their positions' angles, in float32; the compiler fuses it with what is around."""
    cos, sin = rope_TP2[:, None, :, 0], rope_TP2[:, None, :, 1]
    a, b = x_BTHD.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x_BTHD.dtype)


def attends_by_documents(head_size: int, dtype: torch.dtype, device: torch.device, executor: Executor) -> bool:
    """Does `attend` take the numbers of documents as they are, so that no mask of all pairs need be made?"""
    return executor is not eager and device.type == "cuda" and _ordered_attention_fits(head_size, dtype)


def _ordered_attention_fits(head_size: int, dtype: torch.dtype) -> bool:
    if not _ordered:
        return False
    from linnet.kernels.cuda import ordered_attention

    return ordered_attention.fits(head_size, dtype)


def attend(q_BHTD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask_TS: Tensor | None = None) -> Tensor:
    """Softmax attention; K divides H. Without a mask it is causal: token t sees keys 0…t (T = S).

    A mask is true where a token sees, or is what is added to its scores; or it is the number of each token's document
    [B, T], and of the tokens before it one sees those of its own (only where `attends_by_documents`).
    """
    _observe(q_BHTD, k_BKSD, v_BKSD, mask_TS, causal=True)
    by_documents = mask_TS is not None and mask_TS.dtype in (torch.int32, torch.int64)
    if by_documents or (mask_TS is None and uses_triton(q_BHTD)):
        if _ordered_attention_fits(q_BHTD.shape[-1], q_BHTD.dtype):
            return _attend_in_order(q_BHTD, k_BKSD, v_BKSD, causal=True, documents_BT=mask_TS)
        assert not by_documents
    if mask_TS is None and cpu.attention_is_faster(q_BHTD, k_BKSD):
        return cpu.causal_attention(q_BHTD, k_BKSD, v_BKSD)
    groups = q_BHTD.shape[1] // k_BKSD.shape[1]
    grouped = groups > 1
    if grouped and mask_TS is not None and q_BHTD.is_cuda:
        # The kernel that takes a mask knows no groups, and the one that knows both writes all T × S scores.
        if q_BHTD.shape[2] == 1:
            return _attend_one_token(q_BHTD, k_BKSD, v_BKSD, mask_TS)
        k_BKSD, v_BKSD = k_BKSD.repeat_interleave(groups, 1), v_BKSD.repeat_interleave(groups, 1)
        grouped = False
    return F.scaled_dot_product_attention(
        q_BHTD, k_BKSD, v_BKSD, attn_mask=mask_TS, is_causal=mask_TS is None, enable_gqa=grouped
    )


def _attend_in_order(
    q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor, *, causal: bool, documents_BT: Tensor | None = None
) -> Tensor:
    """The same by a kernel whose backward pass adds in one order."""
    from linnet.kernels.cuda.ordered_attention import OrderedAttention

    heads = (x.transpose(1, 2) for x in (q_BHTD, k_BKTD, v_BKTD))
    out_BTHD: Tensor = OrderedAttention.apply(*heads, causal, documents_BT)
    return out_BTHD.transpose(1, 2)


def _attend_one_token(q_BH1D: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask_1S: Tensor) -> Tensor:
    """The same for one token: the heads that share keys look at them as if they were so many tokens."""
    q_BKGD = q_BH1D.unflatten(1, (k_BKSD.shape[1], -1)).squeeze(3)
    return F.scaled_dot_product_attention(q_BKGD, k_BKSD, v_BKSD, attn_mask=mask_1S).flatten(1, 2).unsqueeze(2)


def _split_heads(qkv_BTE: Tensor, bias_E: Tensor | None, n_heads: int) -> tuple[Tensor, ...]:
    """q, k and v [B, T, H, D] of a projection whose bias gradient was deferred (`norm_linear`)."""
    qkv_BTGD = qkv_BTE.unflatten(-1, (3 * n_heads, -1))
    if uses_triton(qkv_BTE):
        from linnet.kernels.cuda.heads import SplitHeads

        heads: tuple[Tensor, ...] = SplitHeads.apply(qkv_BTGD, bias_E)
        return heads
    return qkv_BTGD.chunk(3, dim=2)


def _attend_all(qkv_BTE: Tensor, bias_E: Tensor | None, n_heads: int) -> Tensor:
    """[B, T, H·D]: attention of all tokens to all, of a projection whose bias gradient was deferred."""
    if uses_triton(qkv_BTE):
        from linnet.kernels.cuda import short_attention

        qkv_BTGD = qkv_BTE.unflatten(-1, (3 * n_heads, -1))
        if short_attention.fits(qkv_BTGD):
            out_BTHD: Tensor = short_attention.ShortAttention.apply(qkv_BTGD, bias_E)
            return out_BTHD.flatten(2)
    q_BHTD, k_BHTD, v_BHTD = (heads.transpose(1, 2) for heads in _split_heads(qkv_BTE, bias_E, n_heads))
    _observe(q_BHTD, k_BHTD, v_BHTD, None, causal=False)
    if uses_triton(qkv_BTE) and _ordered_attention_fits(q_BHTD.shape[-1], q_BHTD.dtype):
        return _attend_in_order(q_BHTD, k_BHTD, v_BHTD, causal=False).transpose(1, 2).flatten(2)
    return F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD).transpose(1, 2).flatten(2)


# The output head and its loss


def head_loss(
    hidden_ND: Tensor,
    head_VD: Tensor | PackedMatrix,
    targets_N: Tensor,
    divisor: Tensor | None = None,
    executor: Executor = eager,
) -> Tensor:
    """Cross entropy in nats, summed over the targets that are not negative, and divided by their number.

    `divisor` replaces that number: a step of several batches divides each by the tokens of all.
    The head is cast to the dtype of `hidden_ND`; softmax and sums are in float32.
    """
    if divisor is None:
        divisor = (targets_N >= 0).sum().clamp(min=1)
    trains_head = isinstance(head_VD, Tensor) and head_VD.requires_grad
    if not torch.is_grad_enabled() or not (hidden_ND.requires_grad or trains_head):
        return evaluated_head_loss(hidden_ND, head_VD, targets_N, divisor)
    scale = divisor.float().reciprocal()
    loss: Tensor
    if hidden_ND.device.type == "cpu" and hidden_ND.dtype == torch.float32:
        by_rows = CPUHeadLoss if isinstance(head_VD, Tensor) else PackedHeadLoss
        loss = by_rows.apply(hidden_ND, head_VD, targets_N, scale)
    else:
        head = head_VD if isinstance(head_VD, Tensor) else head_VD.unpacked(hidden_ND.dtype)
        loss = HeadLoss.apply(hidden_ND, head, targets_N, scale, _cross_entropy(hidden_ND, executor))
    return loss


def target_log_probs(hidden_ND: Tensor, head_VD: Tensor | PackedMatrix, targets_N: Tensor) -> Tensor:
    """[N]: log p of each target, in float32; 0 where it is negative."""
    log_p_N: Tensor = TargetLogProbs.apply(hidden_ND, head_VD, targets_N)
    return log_p_N


def _cross_entropy(hidden_ND: Tensor, executor: Executor) -> CrossEntropy:
    """Where models are compiled for CUDA there is a kernel for it; everywhere else torch does it."""
    if executor is eager or not hidden_ND.is_cuda:
        return cross_entropy_grad
    from linnet.kernels.cuda.cross_entropy import cross_entropy_grad as kernel

    return kernel


def distilled_head_loss(
    hidden_ND: Tensor,
    head_VD: Tensor | PackedMatrix,
    targets_N: Tensor,
    distillation: Distillation,
    divisor: Tensor | None = None,
    executor: Executor = eager,
) -> DistilledLoss:
    """The loss of a student: cross entropy as in `head_loss`, and the divergence from its teacher (distillation.py).

    Rows without a target have no part in either.
    """
    if divisor is None:
        divisor = (targets_N >= 0).sum().clamp(min=1)
    scale = divisor.float().reciprocal()
    grad = _distillation(hidden_ND, executor)
    head = head_VD if isinstance(head_VD, Tensor) else head_VD.unpacked(hidden_ND.dtype)
    return DistilledLoss(*DistilledHeadLoss.apply(hidden_ND, head, targets_N, scale, distillation, grad))


def _distillation(hidden_ND: Tensor, executor: Executor) -> DistillationGrad:
    """As with cross entropy: a kernel where models are compiled for CUDA, torch's operations everywhere else."""
    if executor is eager or not hidden_ND.is_cuda:
        return distillation_grad
    from linnet.kernels.cuda.distillation import distillation_grad as kernel

    return kernel
