"""Bidirectional self-attention over short sequences, such as an image's patches: a Triton kernel each way.

A head fits a multiprocessor whole. So a softmax needs no second look at its keys, and one program makes all gradients
of a head: nothing is added up across programs, and they are written where the fused projection's gradient belongs,
with the sums that its bias wants.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

# Numbers of a head, both sizes as powers of two: what fits the memory of an H100's multiprocessor, and of any other's.
_FITS_HOPPER, _FITS = 256 * 64, 128 * 64
_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
_STRIPE = 64  # queries forwards, keys backwards, that a program works on at once

_LOG2_E = tl.constexpr(1 / math.log(2))


def fits(qkv_BTGD: Tensor, hopper: bool = _HOPPER) -> bool:
    """Can the kernels take it?"""
    sizes = _sizes(qkv_BTGD)
    limit = _FITS_HOPPER if hopper else _FITS
    return sizes["BLOCK"] * sizes["WIDTH"] <= limit and sizes["WIDTH"] <= 64 and qkv_BTGD.element_size() == 2


def _sizes(qkv_BTGD: Tensor) -> dict[str, Any]:
    """What the kernels are compiled for. T is cut into stripes and a rest, both powers of two."""
    _, T, _, D = qkv_BTGD.shape
    whole = T // _STRIPE * _STRIPE
    powers = {"REST": _power(T - whole) if whole < T else 0, "BLOCK": _power(T), "WIDTH": _power(D)}
    return {"T": T, "D": D, "SCALE": D**-0.5, "STRIPE": _STRIPE, **powers}


def _power(n: int) -> int:
    """The next power of two, from the least that a GPU's matrix units take."""
    power = 16
    while power < n:
        power *= 2
    return power


class ShortAttention(torch.autograd.Function):
    """softmax(q kᵀ / √D) v of a fused projection [B, T, 3H, D], and the gradient of the bias that it already holds."""

    @staticmethod
    def forward(ctx: Any, qkv_BTGD: Tensor, bias_E: Tensor | None) -> Tensor:
        out_BTHD, logs_BHT = attention(qkv_BTGD)
        ctx.save_for_backward(qkv_BTGD, out_BTHD, logs_BHT)
        return out_BTHD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        (grad_BTHD,) = gradients
        grad_BTGD, sums_BE = attention_backward(*ctx.saved_tensors, grad_BTHD)
        return grad_BTGD, sums_BE.sum(0) if ctx.needs_input_grad[1] else None


@triton_op("linnet::attended", mutates_args={})
def attention(qkv_BTGD: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T, H, D]: what each token takes from all; [B, H, T]: the logarithm (to base 2) of each softmax's sum."""
    B, T, G, D = qkv_BTGD.shape
    H = G // 3
    out_BTHD = torch.empty(B, T, H, D, device=qkv_BTGD.device, dtype=qkv_BTGD.dtype)
    logs_BHT = torch.empty(B, H, T, device=qkv_BTGD.device)
    wrap_triton(_attention)[(B * H,)](
        qkv_BTGD.contiguous(), out_BTHD, logs_BHT, H, **_sizes(qkv_BTGD), num_warps=4, num_stages=1
    )  # fmt: skip
    return out_BTHD, logs_BHT


@triton_op("linnet::attended_back", mutates_args={})
def attention_backward(
    qkv_BTGD: Tensor, out_BTHD: Tensor, logs_BHT: Tensor, grad_BTHD: Tensor
) -> tuple[Tensor, Tensor]:
    """[B, T, 3H, D]: the gradient of the projection; [B, 3H·D]: what adds up to its sum over all tokens."""
    B, T, G, D = qkv_BTGD.shape
    grad_BTGD = torch.empty(B, T, G, D, device=qkv_BTGD.device, dtype=qkv_BTGD.dtype)
    sums_BE = torch.empty(B, G * D, device=qkv_BTGD.device)
    sizes = _sizes(qkv_BTGD)
    wrap_triton(_attention_backward)[(B * G // 3,)](
        qkv_BTGD.contiguous(), out_BTHD, logs_BHT, grad_BTHD.contiguous(), grad_BTGD, sums_BE, G // 3,
        **sizes, num_warps=8 if sizes["BLOCK"] > 64 else 4,
    )  # fmt: skip
    return grad_BTGD, sums_BE


@triton.jit
def _attention(
    qkv, out, logs, H, T: tl.constexpr, D: tl.constexpr, SCALE: tl.constexpr,
    STRIPE: tl.constexpr, REST: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(0) % H
    b = (tl.program_id(0) // H).to(tl.int64)
    qkv += b * T * 3 * H * D + h * D
    out += b * T * H * D + h * D
    logs += tl.program_id(0).to(tl.int64) * T
    k, _ = _rows(qkv + H * D, 0, 3 * H * D, T, D, BLOCK, WIDTH)
    v, _ = _rows(qkv + 2 * H * D, 0, 3 * H * D, T, D, BLOCK, WIDTH)
    for first in range(0, T // STRIPE * STRIPE, STRIPE):
        _attend_stripe(qkv, out, logs, k, v, first, H, T, D, SCALE, STRIPE, BLOCK, WIDTH)
    if REST > 0:
        _attend_stripe(qkv, out, logs, k, v, T // STRIPE * STRIPE, H, T, D, SCALE, REST, BLOCK, WIDTH)


@triton.jit
def _attend_stripe(
    qkv, out, logs, k, v, first, H, T: tl.constexpr, D: tl.constexpr, SCALE: tl.constexpr,
    STRIPE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Attention of a stripe of queries to all keys."""
    q, inside = _rows(qkv, first, 3 * H * D, T, D, STRIPE, WIDTH)
    scores = tl.dot(q, tl.trans(k)) * (SCALE * _LOG2_E)
    scores = tl.where((tl.arange(0, BLOCK) < T)[None, :], scores, float("-inf"))
    largest = tl.max(scores, 1)
    p = tl.exp2(scores - largest[:, None])
    total = tl.sum(p, 1)
    attended = tl.dot(p.to(v.dtype), v) / total[:, None]
    t = first + tl.arange(0, STRIPE)
    tl.store(out + t[:, None] * H * D + tl.arange(0, WIDTH)[None, :], attended, mask=inside)
    tl.store(logs + t, largest + tl.log2(total), mask=t < T)


@triton.jit
def _attention_backward(
    qkv, out, logs, grad, grads, sums, H, T: tl.constexpr, D: tl.constexpr, SCALE: tl.constexpr,
    STRIPE: tl.constexpr, REST: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(0) % H
    b = (tl.program_id(0) // H).to(tl.int64)
    qkv += b * T * 3 * H * D + h * D
    grads += b * T * 3 * H * D + h * D
    out += b * T * H * D + h * D
    grad += b * T * H * D + h * D
    sums += b * 3 * H * D + h * D
    t = tl.arange(0, BLOCK)
    q, inside = _rows(qkv, 0, 3 * H * D, T, D, BLOCK, WIDTH)
    g, _ = _rows(grad, 0, H * D, T, D, BLOCK, WIDTH)
    seen, _ = _rows(out, 0, H * D, T, D, BLOCK, WIDTH)
    inner = tl.sum(g.to(tl.float32) * seen.to(tl.float32), 1)
    # Beyond T all probabilities are 0.
    log = tl.load(logs + tl.program_id(0).to(tl.int64) * T + t, mask=t < T, other=float("inf"))
    by_q = tl.zeros((BLOCK, WIDTH), tl.float32)
    sum_k = tl.zeros((WIDTH,), tl.float32)
    sum_v = tl.zeros((WIDTH,), tl.float32)
    for first in range(0, T // STRIPE * STRIPE, STRIPE):
        by_q, of_k, of_v = _stripe_grads(qkv, grads, q, g, inner, log, by_q, first, H, T, D, SCALE, STRIPE, WIDTH)
        sum_k += of_k
        sum_v += of_v
    if REST > 0:
        by_q, of_k, of_v = _stripe_grads(
            qkv, grads, q, g, inner, log, by_q, T // STRIPE * STRIPE, H, T, D, SCALE, REST, WIDTH
        )
        sum_k += of_k
        sum_v += of_v
    d = tl.arange(0, WIDTH)
    tl.store(grads + t[:, None] * 3 * H * D + d[None, :], by_q, mask=inside)
    tl.store(sums + d, tl.sum(by_q, 0), mask=d < D)
    tl.store(sums + H * D + d, sum_k, mask=d < D)
    tl.store(sums + 2 * H * D + d, sum_v, mask=d < D)


@triton.jit
def _stripe_grads(
    qkv, grads, q, g, inner, log, by_q, first, H, T: tl.constexpr, D: tl.constexpr, SCALE: tl.constexpr,
    STRIPE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradients of a stripe of keys and values, written, and their sums; that of q with their share added."""
    k, inside = _rows(qkv + H * D, first, 3 * H * D, T, D, STRIPE, WIDTH)
    v, _ = _rows(qkv + 2 * H * D, first, 3 * H * D, T, D, STRIPE, WIDTH)
    s = first + tl.arange(0, STRIPE)
    p = tl.exp2(tl.dot(q, tl.trans(k)) * (SCALE * _LOG2_E) - log[:, None])
    p = tl.where((s < T)[None, :], p, 0.0)
    by_v = tl.dot(tl.trans(p.to(g.dtype)), g)
    slope = (p * (tl.dot(g, tl.trans(v)) - inner[:, None]) * SCALE).to(k.dtype)
    by_k = tl.dot(tl.trans(slope), q)
    by_q += tl.dot(slope, k)
    row = grads + s[:, None] * 3 * H * D + tl.arange(0, WIDTH)[None, :]
    tl.store(row + H * D, by_k, mask=inside)
    tl.store(row + 2 * H * D, by_v, mask=inside)
    return by_q, tl.sum(by_k, 0), tl.sum(by_v, 0)


@triton.jit
def _rows(x, first, stride, T: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """[ROWS, WIDTH]: the head's numbers of these tokens, 0 beyond T and D; and where that is not."""
    t = first + tl.arange(0, ROWS)
    d = tl.arange(0, WIDTH)
    inside = (t < T)[:, None] & (d < D)[None, :]
    return tl.load(x + t[:, None] * stride + d[None, :], mask=inside, other=0.0), inside
