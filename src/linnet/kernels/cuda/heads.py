"""Heads of a fused projection: split (`SplitHeads`), or split and rotated by their positions (`SplitRope`).

Splitting is a view; backwards one Triton kernel concatenates the gradients of q, k and v and sums them for the bias.
Rotating is a kernel each way: forwards one tensor is written that holds rotated q, rotated k and v, and attention keeps
that one and no other; backwards the three gradients are rotated back and concatenated on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from linnet.kernels.cuda import contiguous_rows

CONCAT_TOKENS = 32  # a program works on at once
CONCAT_PROGRAMS = 1056  # eight for each multiprocessor of an H200
ROPE_TOKENS = 8  # of a program


class SplitHeads(torch.autograd.Function):
    """q, k and v of a fused projection [B, T, 3H, D], and the gradient of the bias that it already holds."""

    @staticmethod
    def forward(ctx: Any, qkv_BTGD: Tensor, bias_E: Tensor | None) -> tuple[Tensor, ...]:
        return qkv_BTGD.chunk(3, dim=2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        grad_BTGD, sums_PE = concat_qkv_grad(*gradients)
        return grad_BTGD, sums_PE.sum(0) if ctx.needs_input_grad[1] else None


@triton_op("linnet::joined", mutates_args={})
def concat_qkv_grad(q_BTHD: Tensor, k_BTHD: Tensor, v_BTHD: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T, 3H, D]: all three; [P, 3H·D]: what adds up to their sum over all tokens."""
    B, T, H, D = q_BTHD.shape
    out_BTGD = torch.empty(B, T, 3 * H, D, device=q_BTHD.device, dtype=q_BTHD.dtype)
    programs = max(1, min(CONCAT_PROGRAMS // (3 * H), triton.cdiv(B * T, CONCAT_TOKENS)))
    sums_PE = torch.empty(programs, 3 * H * D, device=q_BTHD.device)
    q_BTHD, k_BTHD, v_BTHD = contiguous_rows(q_BTHD), contiguous_rows(k_BTHD), contiguous_rows(v_BTHD)
    strides = [s for x in (q_BTHD, k_BTHD, v_BTHD) for s in x.stride()[:3]]
    wrap_triton(_concat_qkv_grad)[(programs * 3 * H,)](
        q_BTHD, k_BTHD, v_BTHD, out_BTGD, sums_PE, *strides, B * T, T, H, programs,
        D=D, TOKENS=CONCAT_TOKENS, BLOCK=triton.next_power_of_2(D), num_warps=4,
    )  # fmt: skip
    return out_BTGD, sums_PE


@triton.jit
def _concat_qkv_grad(
    q, k, v, out, sums,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h,
    N, T, H, programs,
    D: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0) % (3 * H)
    program = tl.program_id(0) // (3 * H)
    source, by_batch, by_token, by_head = q, q_b, q_t, q_h
    if head >= 2 * H:
        source, by_batch, by_token, by_head = v, v_b, v_t, v_h
    elif head >= H:
        source, by_batch, by_token, by_head = k, k_b, k_t, k_h
    d = tl.arange(0, BLOCK)[None, :]
    source += (head % H) * by_head + d
    total = tl.zeros((TOKENS, BLOCK), tl.float32)
    for first in range(program * TOKENS, N, programs * TOKENS):
        token = first + tl.arange(0, TOKENS).to(tl.int64)[:, None]
        mask = (token < N) & (d < D)
        x = tl.load(source + token // T * by_batch + token % T * by_token, mask=mask, other=0.0)
        tl.store(out + (token * 3 * H + head) * D + d, x, mask=mask)
        total += x.to(tl.float32)
    column = tl.arange(0, BLOCK)
    tl.store(sums + (program * 3 * H + head) * D + column, tl.sum(total, 0), mask=column < D)


class SplitRope(torch.autograd.Function):
    """q, k and v of a fused projection [B, T, H + 2K, D]; q and k rotated."""

    @staticmethod
    def forward(
        ctx: Any, qkv_BTGD: Tensor, table_TP2: Tensor, n_heads: int, n_kv: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(table_TP2)
        q, k, v = rope(qkv_BTGD, table_TP2, n_heads + n_kv).split((n_heads, n_kv, n_kv), dim=2)
        return q, k, v

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (table_TP2,) = ctx.saved_tensors
        return rope_backward(*gradients, table_TP2), None, None, None


@triton_op("linnet::turn", mutates_args={})
def rope(qkv_BTGD: Tensor, table_TP2: Tensor, n_rotated: int) -> Tensor:
    """The heads of a fused projection [B, T, G, D], the first `n_rotated` of them rotated by their positions."""
    out_BTGD = torch.empty_like(qkv_BTGD, memory_format=torch.contiguous_format)
    q, k, v = qkv_BTGD, qkv_BTGD, qkv_BTGD[:, :, n_rotated:]
    _launch(q, k, v, out_BTGD, table_TP2, n_rotated, 0, 1.0)
    return out_BTGD


@triton_op("linnet::turn_back", mutates_args={})
def rope_backward(grad_q_BTHD: Tensor, grad_k_BTKD: Tensor, grad_v_BTKD: Tensor, table_TP2: Tensor) -> Tensor:
    """The gradient of the fused projection [B, T, H + 2K, D]."""
    B, T, H, D = grad_q_BTHD.shape
    K = grad_k_BTKD.shape[2]
    out_BTGD = torch.empty(B, T, H + 2 * K, D, device=grad_q_BTHD.device, dtype=grad_q_BTHD.dtype)
    _launch(grad_q_BTHD, grad_k_BTKD, grad_v_BTKD, out_BTGD, table_TP2, H, K, -1.0)
    return out_BTGD


def _launch(q: Tensor, k: Tensor, v: Tensor, out: Tensor, table: Tensor, n_q: int, n_k: int, direction: float) -> None:
    B, T, G, D = out.shape
    q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
    strides = [s for x in (q, k, v) for s in x.stride()[:3]]
    wrap_triton(_rope)[(triton.cdiv(B * T, ROPE_TOKENS),)](
        q, k, v, out, table, *strides, B * T, T, n_q, n_k, G - n_q - n_k,
        DIRECTION=direction, D=D, TOKENS=ROPE_TOKENS, BLOCK=triton.next_power_of_2(D), num_warps=1,
    )  # fmt: skip


@triton.jit
def _rope(
    q, k, v, out, table,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h,
    N, T, n_q, n_k, n_v,
    DIRECTION: tl.constexpr, D: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)[:, None]
    d = tl.arange(0, BLOCK)[None, :]
    mask = (token < N) & (d < D)
    b, t = token // T, token % T
    cos, sin = _pairs(tl.load(table + t * D + d, mask=mask, other=0.0))
    sin = sin * DIRECTION
    target = out + token * (n_q + n_k + n_v) * D + d
    for head in range(n_q):
        x, y = _pairs(tl.load(q + b * q_b + t * q_t + head * q_h + d, mask=mask, other=0.0).to(tl.float32))
        turned = tl.reshape(tl.join(x * cos - y * sin, y * cos + x * sin), (TOKENS, BLOCK))
        tl.store(target + head * D, turned, mask=mask)
    for head in range(n_k):
        x, y = _pairs(tl.load(k + b * k_b + t * k_t + head * k_h + d, mask=mask, other=0.0).to(tl.float32))
        turned = tl.reshape(tl.join(x * cos - y * sin, y * cos + x * sin), (TOKENS, BLOCK))
        tl.store(target + (n_q + head) * D, turned, mask=mask)
    for head in range(n_v):
        same = tl.load(v + b * v_b + t * v_t + head * v_h + d, mask=mask)
        tl.store(target + (n_q + n_k + head) * D, same, mask=mask)


@triton.jit
def _pairs(x):
    """Neighbours apart: [TOKENS, BLOCK] → two of [TOKENS, BLOCK / 2]."""
    return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))
