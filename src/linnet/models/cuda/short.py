"""Attention of all to all in short sequences, such as an image's patches, by a Triton kernel each way.

The keys of a head fit a multiprocessor whole. So a softmax needs no second look at them, and one program makes all
gradients of a head: nothing is added up across programs, and they are written where the fused projection's gradient
belongs, with the sums that its bias wants.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

_LONGEST, _WIDEST = 256, 64  # tokens, and a head's width, that fit
_QUERIES, _KEYS = 64, 64  # of a program at once

_LOG2_E = tl.constexpr(1 / math.log(2))


def fits(qkv_BTGD: Tensor) -> bool:
    """Can the kernels take it?"""
    _, T, _, D = qkv_BTGD.shape
    return T <= _LONGEST and D <= _WIDEST and qkv_BTGD.element_size() == 2


class ShortAttention(torch.autograd.Function):
    """softmax(q kᵀ / √D) v of a fused projection [B, T, 3H, D], and the gradient of the bias that it already holds."""

    @staticmethod
    def forward(ctx: Any, qkv_BTGD: Tensor, bias_E: Tensor | None) -> Tensor:  # noqa: D102
        out_BTHD, logs_BHT = attended(qkv_BTGD)
        ctx.save_for_backward(qkv_BTGD, out_BTHD, logs_BHT)
        return out_BTHD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: D102
        (grad_BTHD,) = gradients
        grad_BTGD, sums_BE = attended_back(*ctx.saved_tensors, grad_BTHD)
        return grad_BTGD, sums_BE.sum(0) if ctx.needs_input_grad[1] else None


@triton_op("linnet::attended", mutates_args={})
def attended(qkv_BTGD: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T, H, D]: what each token takes from all; [B, H, T]: the logarithm (to base 2) of each softmax's sum."""
    B, T, G, D = qkv_BTGD.shape
    H = G // 3
    out_BTHD = torch.empty(B, T, H, D, device=qkv_BTGD.device, dtype=qkv_BTGD.dtype)
    logs_BHT = torch.empty(B, H, T, device=qkv_BTGD.device)
    block = max(16, triton.next_power_of_2(T))
    wrap_triton(_attended)[(B * H * triton.cdiv(T, _QUERIES),)](
        qkv_BTGD.contiguous(), out_BTHD, logs_BHT, T, H,
        D=D, SCALE=D**-0.5, QUERIES=min(_QUERIES, block), BLOCK=block, WIDTH=max(16, triton.next_power_of_2(D)),
        num_warps=4,
    )  # fmt: skip
    return out_BTHD, logs_BHT


@triton_op("linnet::attended_back", mutates_args={})
def attended_back(qkv_BTGD: Tensor, out_BTHD: Tensor, logs_BHT: Tensor, grad_BTHD: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T, 3H, D]: the gradient of the projection; [B, 3H·D]: what adds up to its sum over all tokens."""
    B, T, G, D = qkv_BTGD.shape
    H = G // 3
    grad_BTGD = torch.empty(B, T, G, D, device=qkv_BTGD.device, dtype=qkv_BTGD.dtype)
    sums_BE = torch.empty(B, G * D, device=qkv_BTGD.device)
    block = max(16, triton.next_power_of_2(T))
    wrap_triton(_attended_back)[(B * H,)](
        qkv_BTGD.contiguous(), out_BTHD, logs_BHT, grad_BTHD.contiguous(), grad_BTGD, sums_BE, T, H,
        D=D, SCALE=D**-0.5, KEYS=min(_KEYS, block), BLOCK=block, WIDTH=max(16, triton.next_power_of_2(D)),
        num_warps=8 if block > 64 else 4,
    )  # fmt: skip
    return grad_BTGD, sums_BE


@triton.jit
def _attended(
    qkv, out, logs, T, H,
    D: tl.constexpr, SCALE: tl.constexpr, QUERIES: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    parts = tl.cdiv(T, QUERIES)
    part = tl.program_id(0) % parts
    h = tl.program_id(0) // parts % H
    b = (tl.program_id(0) // parts // H).to(tl.int64)
    d = tl.arange(0, WIDTH)
    t = part * QUERIES + tl.arange(0, QUERIES)
    s = tl.arange(0, BLOCK)
    of_query = (t < T)[:, None] & (d < D)[None, :]
    of_key = (s < T)[:, None] & (d < D)[None, :]
    qkv += b * T * 3 * H * D + h * D
    q = tl.load(qkv + t[:, None] * 3 * H * D + d[None, :], mask=of_query, other=0.0)
    k = tl.load(qkv + (s[:, None] * 3 + 1) * H * D + d[None, :], mask=of_key, other=0.0)
    v = tl.load(qkv + (s[:, None] * 3 + 2) * H * D + d[None, :], mask=of_key, other=0.0)
    scores = tl.dot(q, tl.trans(k)) * (SCALE * _LOG2_E)
    scores = tl.where((s < T)[None, :], scores, float("-inf"))
    largest = tl.max(scores, 1)
    p = tl.exp2(scores - largest[:, None])
    total = tl.sum(p, 1)
    seen = tl.dot(p.to(v.dtype), v) / total[:, None]
    tl.store(out + ((b * T + t[:, None]) * H + h) * D + d[None, :], seen, mask=of_query)
    tl.store(logs + (b * H + h) * T + t, largest + tl.log2(total), mask=t < T)


@triton.jit
def _attended_back(
    qkv, out, logs, grad, grads, sums, T, H,
    D: tl.constexpr, SCALE: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(0) % H
    b = (tl.program_id(0) // H).to(tl.int64)
    d = tl.arange(0, WIDTH)
    t = tl.arange(0, BLOCK)
    of_query = (t < T)[:, None] & (d < D)[None, :]
    qkv += b * T * 3 * H * D + h * D
    grads += b * T * 3 * H * D + h * D
    sums += b * 3 * H * D + h * D
    q = tl.load(qkv + t[:, None] * 3 * H * D + d[None, :], mask=of_query, other=0.0)
    place = ((b * T + t[:, None]) * H + h) * D + d[None, :]
    g = tl.load(grad + place, mask=of_query, other=0.0)
    seen = tl.load(out + place, mask=of_query, other=0.0)
    inner = tl.sum(g.to(tl.float32) * seen.to(tl.float32), 1)
    log = tl.load(logs + (b * H + h) * T + t, mask=t < T, other=float("inf"))  # beyond T all probabilities are 0
    by_q = tl.zeros((BLOCK, WIDTH), tl.float32)
    sum_k = tl.zeros((WIDTH,), tl.float32)
    sum_v = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, T, KEYS):
        s = start + tl.arange(0, KEYS)
        of_key = (s < T)[:, None] & (d < D)[None, :]
        from_k = (s[:, None] * 3 + 1) * H * D + d[None, :]
        from_v = (s[:, None] * 3 + 2) * H * D + d[None, :]
        k = tl.load(qkv + from_k, mask=of_key, other=0.0)
        v = tl.load(qkv + from_v, mask=of_key, other=0.0)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * (SCALE * _LOG2_E) - log[:, None])
        p = tl.where((s < T)[None, :], p, 0.0)
        by_v = tl.dot(tl.trans(p.to(g.dtype)), g)
        slope = (p * (tl.dot(g, tl.trans(v)) - inner[:, None]) * SCALE).to(k.dtype)
        by_k = tl.dot(tl.trans(slope), q)
        by_q += tl.dot(slope, k)
        tl.store(grads + from_k, by_k, mask=of_key)
        tl.store(grads + from_v, by_v, mask=of_key)
        sum_k += tl.sum(by_k, 0)
        sum_v += tl.sum(by_v, 0)
    tl.store(grads + t[:, None] * 3 * H * D + d[None, :], by_q, mask=of_query)
    tl.store(sums + d, tl.sum(by_q, 0), mask=d < D)
    tl.store(sums + H * D + d, sum_k, mask=d < D)
    tl.store(sums + 2 * H * D + d, sum_v, mask=d < D)
