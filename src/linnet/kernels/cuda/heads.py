"""The gradients of q, k and v concatenated to that of a fused projection by one Triton kernel, which also sums them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from linnet.kernels.cuda import contiguous_rows

_TOKENS = 32  # a program works on at once
_PROGRAMS = 1056  # eight for each multiprocessor of an H200


class SplitHeads(torch.autograd.Function):
    """q, k and v of a fused projection [B, T, 3H, D], and the gradient of the bias that it already holds."""

    @staticmethod
    def forward(ctx: Any, qkv_BTGD: Tensor, bias_E: Tensor | None) -> tuple[Tensor, ...]:  # noqa: D102
        return qkv_BTGD.chunk(3, dim=2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: D102
        grad_BTGD, sums_PE = concat_qkv_grad(*gradients)
        return grad_BTGD, sums_PE.sum(0) if ctx.needs_input_grad[1] else None


@triton_op("linnet::joined", mutates_args={})
def concat_qkv_grad(q_BTHD: Tensor, k_BTHD: Tensor, v_BTHD: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T, 3H, D]: all three; [P, 3H·D]: what adds up to their sum over all tokens."""
    B, T, H, D = q_BTHD.shape
    out_BTGD = torch.empty(B, T, 3 * H, D, device=q_BTHD.device, dtype=q_BTHD.dtype)
    programs = max(1, min(_PROGRAMS // (3 * H), triton.cdiv(B * T, _TOKENS)))
    sums_PE = torch.empty(programs, 3 * H * D, device=q_BTHD.device)
    q_BTHD, k_BTHD, v_BTHD = contiguous_rows(q_BTHD), contiguous_rows(k_BTHD), contiguous_rows(v_BTHD)
    strides = [s for x in (q_BTHD, k_BTHD, v_BTHD) for s in x.stride()[:3]]
    wrap_triton(_concat_qkv_grad)[(programs * 3 * H,)](
        q_BTHD, k_BTHD, v_BTHD, out_BTGD, sums_PE, *strides, B * T, T, H, programs,
        D=D, TOKENS=_TOKENS, BLOCK=triton.next_power_of_2(D), num_warps=4,
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
        there = (token < N) & (d < D)
        x = tl.load(source + token // T * by_batch + token % T * by_token, mask=there, other=0.0)
        tl.store(out + (token * 3 * H + head) * D + d, x, mask=there)
        total += x.to(tl.float32)
    column = tl.arange(0, BLOCK)
    tl.store(sums + (program * 3 * H + head) * D + column, tl.sum(total, 0), mask=column < D)
