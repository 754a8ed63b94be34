"""GELU's backward pass as one Triton kernel: each input is read once, and the bias before it gets its gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

_BLOCK, _ROWS = 256, 8
_PROGRAMS = 4224  # 32 for each multiprocessor of an H200

_TWICE_ROOT = tl.constexpr(2 * math.sqrt(2 / math.pi))  # gelu(x) = x · sigmoid(_TWICE_ROOT · (x + _CUBE · x³))
_CUBE = tl.constexpr(0.044715)


class GELULinear(torch.autograd.Function):
    """gelu(up) Wᵀ + b, and the gradient of the bias that `up` already holds. The activation is not kept."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, up_NF: Tensor, up_bias_F: Tensor | None, weight_DF: Tensor, bias_D: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(up_NF, weight_DF)
        act_NF = up_NF * torch.sigmoid(_TWICE_ROOT.value * (up_NF + _CUBE.value * up_NF**3))
        return F.linear(act_NF, weight_DF, bias_D)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        up_NF, weight_DF = ctx.saved_tensors
        (grad_ND,) = gradients
        grad_up_NF, again_NF, sums_PF = gelu_backward(up_NF, grad_ND @ weight_DF)
        by_up_bias = sums_PF.sum(0) if ctx.needs_input_grad[1] else None
        by_bias = grad_ND.sum(0) if ctx.needs_input_grad[3] else None
        return grad_up_NF, by_up_bias, grad_ND.T @ again_NF, by_bias


@triton_op("linnet::gelu_slopes", mutates_args={})
def gelu_backward(up_NF: Tensor, grad_NF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[N, F]: the gradient of `up`; [N, F]: gelu(up) once more; [P, F]: what adds up to the gradient's sum."""
    N, width = up_NF.shape
    up_NF, grad_NF = up_NF.contiguous(), grad_NF.contiguous()
    out_NF, again_NF = torch.empty_like(up_NF), torch.empty_like(up_NF)
    columns = triton.cdiv(width, _BLOCK)
    programs = max(1, min(_PROGRAMS // columns, triton.cdiv(N, _ROWS)))
    sums_PF = torch.empty(programs, width, device=up_NF.device)
    wrap_triton(_gelu_backward)[(programs * columns,)](
        up_NF, grad_NF, out_NF, again_NF, sums_PF, N, columns, programs, width,
        ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return out_NF, again_NF, sums_PF


@triton.jit
def _gelu_backward(
    up, grad, slopes, again, sums, N, columns, programs, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    program = tl.program_id(0) // columns
    column = tl.program_id(0) % columns * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in tl.range(program * ROWS, N, programs * ROWS, num_stages=3):
        row = first + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * width + column[None, :]
        there = (row < N)[:, None] & inside[None, :]
        x = tl.load(up + at, mask=there, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=there, other=0.0).to(tl.float32)
        square = x * x
        share = tl.sigmoid(_TWICE_ROOT * x * (1 + _CUBE * square))
        act = x * share
        slope = g * (share + act * (1 - share) * _TWICE_ROOT * (1 + 3 * _CUBE * square))
        tl.store(slopes + at, slope, mask=there)
        tl.store(again + at, act, mask=there)
        total += slope
    tl.store(sums + program * width + column, tl.sum(total, 0), mask=inside)
