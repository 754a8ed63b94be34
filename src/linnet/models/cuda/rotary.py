"""The turning of q and k in a fused projection as one Triton kernel, forwards and backwards.

Forwards one tensor is written that holds turned q, turned k and v: attention keeps that one and no other. Backwards the
three gradients are turned back and joined on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


class TurnedHeads(torch.autograd.Function):
    """q, k and v of a fused projection [B, T, H + 2K, D]; q and k turned."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, qkv_BTGD: Tensor, table_TP2: Tensor, n_heads: int, n_kv: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(table_TP2)
        q, k, v = turn(qkv_BTGD, table_TP2, n_heads + n_kv).split((n_heads, n_kv, n_kv), dim=2)
        return q, k, v

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: D102
        (table_TP2,) = ctx.saved_tensors
        return turn_back(*gradients, table_TP2), None, None, None


@triton_op("linnet::turn", mutates_args={})
def turn(qkv_BTGD: Tensor, table_TP2: Tensor, n_turned: int) -> Tensor:
    """The heads of a fused projection [B, T, G, D], the first `n_turned` of them turned by their positions."""
    out_BTGD = torch.empty_like(qkv_BTGD, memory_format=torch.contiguous_format)
    q, k, v = qkv_BTGD, qkv_BTGD, qkv_BTGD[:, :, n_turned:]
    _launch(q, k, v, out_BTGD, table_TP2, n_turned, 0, 1.0)
    return out_BTGD


@triton_op("linnet::turn_back", mutates_args={})
def turn_back(grad_q_BTHD: Tensor, grad_k_BTKD: Tensor, grad_v_BTKD: Tensor, table_TP2: Tensor) -> Tensor:
    """The gradient of the fused projection [B, T, H + 2K, D]."""
    B, T, H, D = grad_q_BTHD.shape
    K = grad_k_BTKD.shape[2]
    out_BTGD = torch.empty(B, T, H + 2 * K, D, device=grad_q_BTHD.device, dtype=grad_q_BTHD.dtype)
    _launch(grad_q_BTHD, grad_k_BTKD, grad_v_BTKD, out_BTGD, table_TP2, H, K, -1.0)
    return out_BTGD


def _launch(q: Tensor, k: Tensor, v: Tensor, out: Tensor, table: Tensor, n_q: int, n_k: int, direction: float) -> None:
    B, T, G, D = out.shape
    strides = [s for x in (q, k, v) for s in x.stride()[:3]]
    block = triton.next_power_of_2(G * D)
    wrap_triton(_turned)[(B * T,)](  # of one dimension: a second one ends at 65,535
        q, k, v, out, table, *strides, T, n_q, n_k, direction, WIDTH=G * D, D=D, BLOCK=block, num_warps=4
    )


@triton.jit
def _turned(
    q, k, v, out, table,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h,
    T, n_q, n_k, direction,
    WIDTH: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    t = (tl.program_id(0) % T).to(tl.int64)
    b = (tl.program_id(0) // T).to(tl.int64)
    at = tl.arange(0, BLOCK)
    head, d = at // D, at % D
    is_q, is_v = head < n_q, head >= n_q + n_k
    is_k = (head >= n_q) & (head < n_q + n_k)
    inside = at < WIDTH
    from_q = q + b * q_b + t * q_t + head * q_h
    from_k = k + b * k_b + t * k_t + (head - n_q) * k_h
    from_v = v + b * v_b + t * v_t + (head - n_q - n_k) * v_h
    source = tl.where(is_q, from_q, tl.where(is_k, from_k, from_v))
    x = tl.load(source + d, mask=inside).to(tl.float32)
    partner = tl.load(source + (d ^ 1), mask=inside & (is_q | is_k)).to(tl.float32)
    pair = table + (t * (D // 2) + d // 2) * 2
    cos = tl.load(pair, mask=inside & (is_q | is_k), other=1.0)
    sin = tl.load(pair + 1, mask=inside & (is_q | is_k), other=0.0) * direction
    turned = x * cos + partner * tl.where(d % 2 == 0, -sin, sin)
    tl.store(out + (b * T + t) * WIDTH + at, tl.where(is_v, x, turned), mask=inside)
