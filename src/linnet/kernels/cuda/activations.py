"""Backward passes of SwiGLU and GELU as one Triton kernel each: every input is read once.

The activation is made again on the way, for the linear layer that followed it. GELU's kernel also sums the gradient of
the bias before it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

SWIGLU_BLOCK = 1024
GELU_BLOCK, GELU_ROWS = 256, 8
GELU_PROGRAMS = 4224  # 32 for each multiprocessor of an H200

_TWICE_ROOT = tl.constexpr(2 * math.sqrt(2 / math.pi))  # gelu(x) = x · sigmoid(_TWICE_ROOT · (x + _CUBE · x³))
_CUBE = tl.constexpr(0.044715)


class SwiGLULinear(torch.autograd.Function):
    """swiglu(gate_up) Wᵀ. The activation is not kept."""

    @staticmethod
    def forward(ctx: Any, gate_up_N2F: Tensor, weight_DF: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up_N2F, weight_DF)
        gate, up = gate_up_N2F.chunk(2, -1)
        return (F.silu(gate) * up) @ weight_DF.T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        gate_up_N2F, weight_DF = ctx.saved_tensors
        (grad_ND,) = gradients
        grad_N2F, again_NF = swiglu_backward(gate_up_N2F, grad_ND @ weight_DF)
        return grad_N2F, grad_ND.T @ again_NF if ctx.needs_input_grad[1] else None


class SwiGLU(torch.autograd.Function):
    """silu(gate) · up, for a linear layer that is another operation."""

    @staticmethod
    def forward(ctx: Any, gate_up_N2F: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up_N2F)
        gate, up = gate_up_N2F.chunk(2, -1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gate_up_N2F,) = ctx.saved_tensors
        return swiglu_backward(gate_up_N2F, gradients[0])[0]


@triton_op("linnet::swiglu_slopes", mutates_args={})
def swiglu_backward(gate_up_N2F: Tensor, grad_NF: Tensor) -> tuple[Tensor, Tensor]:
    """[N, 2F]: the gradient by gate and up; [N, F]: silu(gate) · up once more, for the matmul that followed it."""
    N, width = grad_NF.shape
    gate_up_N2F, grad_NF = gate_up_N2F.contiguous(), grad_NF.contiguous()
    out_N2F, again_NF = torch.empty_like(gate_up_N2F), torch.empty_like(grad_NF)
    grid = (N * triton.cdiv(width, SWIGLU_BLOCK),)  # of one dimension: a second one ends at 65,535
    wrap_triton(_swiglu_backward)[grid](gate_up_N2F, grad_NF, out_N2F, again_NF, width, BLOCK=SWIGLU_BLOCK, num_warps=4)
    return out_N2F, again_NF


@triton.jit
def _swiglu_backward(gate_up, grad, slopes, out, width, BLOCK: tl.constexpr):
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    g = tl.load(grad + row * width + at, mask=inside).to(tl.float32)
    gate = tl.load(gate_up + row * 2 * width + at, mask=inside).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    silu = gate * sigmoid
    tl.store(out + row * width + at, silu * up, mask=inside)
    tl.store(slopes + row * 2 * width + at, g * up * (sigmoid + silu * (1 - sigmoid)), mask=inside)
    tl.store(slopes + row * 2 * width + width + at, g * silu, mask=inside)


class GELULinear(torch.autograd.Function):
    """gelu(up) Wᵀ + b, and the gradient of the bias that `up` already holds. The activation is not kept."""

    @staticmethod
    def forward(ctx: Any, up_NF: Tensor, up_bias_F: Tensor | None, weight_DF: Tensor, bias_D: Tensor | None) -> Tensor:
        ctx.save_for_backward(up_NF, weight_DF)
        act_NF = up_NF * torch.sigmoid(_TWICE_ROOT.value * (up_NF + _CUBE.value * up_NF**3))
        return F.linear(act_NF, weight_DF, bias_D)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        up_NF, weight_DF = ctx.saved_tensors
        (grad_ND,) = gradients
        grad_up_NF, again_NF, sums_PF = gelu_backward(up_NF, grad_ND @ weight_DF)
        by_up_bias = sums_PF.sum(0) if ctx.needs_input_grad[1] else None
        by_bias = grad_ND.sum(0) if ctx.needs_input_grad[3] else None
        return grad_up_NF, by_up_bias, grad_ND.T @ again_NF if ctx.needs_input_grad[2] else None, by_bias


@triton_op("linnet::gelu_slopes", mutates_args={})
def gelu_backward(up_NF: Tensor, grad_NF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[N, F]: the gradient of `up`; [N, F]: gelu(up) once more; [P, F]: what adds up to the gradient's sum."""
    N, width = up_NF.shape
    up_NF, grad_NF = up_NF.contiguous(), grad_NF.contiguous()
    out_NF, again_NF = torch.empty_like(up_NF), torch.empty_like(up_NF)
    columns = triton.cdiv(width, GELU_BLOCK)
    programs = max(1, min(GELU_PROGRAMS // columns, triton.cdiv(N, GELU_ROWS)))
    sums_PF = torch.empty(programs, width, device=up_NF.device)
    wrap_triton(_gelu_backward)[(programs * columns,)](
        up_NF, grad_NF, out_NF, again_NF, sums_PF, N, columns, programs, width,
        ROWS=GELU_ROWS, BLOCK=GELU_BLOCK, num_warps=4,
    )  # fmt: skip
    return out_NF, again_NF, sums_PF


@triton.jit
def _gelu_backward(
    up, grad, slopes, out, sums, N, columns, programs, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    program = tl.program_id(0) // columns
    column = tl.program_id(0) % columns * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in tl.range(program * ROWS, N, programs * ROWS, num_stages=3):
        row = first + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * width + column[None, :]
        mask = (row < N)[:, None] & inside[None, :]
        x = tl.load(up + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        square = x * x
        share = tl.sigmoid(_TWICE_ROOT * x * (1 + _CUBE * square))
        act = x * share
        slope = g * (share + act * (1 - share) * _TWICE_ROOT * (1 + 3 * _CUBE * square))
        tl.store(slopes + at, slope, mask=mask)
        tl.store(out + at, act, mask=mask)
        total += slope
    tl.store(sums + program * width + column, tl.sum(total, 0), mask=inside)
