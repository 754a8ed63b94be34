"""Rotary positions (RoPE) applied to q and k of a fused projection: one Triton kernel, forwards and backwards.

Forwards one tensor is written that holds rotated q, rotated k and v: attention keeps that one and no other. Backwards
the three gradients are rotated back and concatenated on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from linnet.kernels.cuda import contiguous_rows

_TOKENS = 8  # of a program


class SplitRope(torch.autograd.Function):
    """q, k and v of a fused projection [B, T, H + 2K, D]; q and k rotated."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, qkv_BTGD: Tensor, table_TP2: Tensor, n_heads: int, n_kv: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(table_TP2)
        q, k, v = rope(qkv_BTGD, table_TP2, n_heads + n_kv).split((n_heads, n_kv, n_kv), dim=2)
        return q, k, v

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: D102
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
    wrap_triton(_rope)[(triton.cdiv(B * T, _TOKENS),)](
        q, k, v, out, table, *strides, B * T, T, n_q, n_k, G - n_q - n_k,
        DIRECTION=direction, D=D, TOKENS=_TOKENS, BLOCK=triton.next_power_of_2(D), num_warps=1,
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
    there = (token < N) & (d < D)
    b, t = token // T, token % T
    cos, sin = _pairs(tl.load(table + t * D + d, mask=there, other=0.0))
    sin = sin * DIRECTION
    target = out + token * (n_q + n_k + n_v) * D + d
    for head in range(n_q):
        x, y = _pairs(tl.load(q + b * q_b + t * q_t + head * q_h + d, mask=there, other=0.0).to(tl.float32))
        turned = tl.reshape(tl.join(x * cos - y * sin, y * cos + x * sin), (TOKENS, BLOCK))
        tl.store(target + head * D, turned, mask=there)
    for head in range(n_k):
        x, y = _pairs(tl.load(k + b * k_b + t * k_t + head * k_h + d, mask=there, other=0.0).to(tl.float32))
        turned = tl.reshape(tl.join(x * cos - y * sin, y * cos + x * sin), (TOKENS, BLOCK))
        tl.store(target + (n_q + head) * D, turned, mask=there)
    for head in range(n_v):
        same = tl.load(v + b * v_b + t * v_t + head * v_h + d, mask=there)
        tl.store(target + (n_q + n_k + head) * D, same, mask=there)


@triton.jit
def _pairs(x):
    """Neighbours apart: [TOKENS, BLOCK] → two of [TOKENS, BLOCK / 2]."""
    return tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))
