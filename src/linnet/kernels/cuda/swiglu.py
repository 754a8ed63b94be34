"""SwiGLU's backward pass as one Triton kernel: each input is read once, and the activation is made again on the way."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

_BLOCK = 1024


class SwiGLULinear(torch.autograd.Function):
    """swiglu(gate_up) Wᵀ. The activation is not kept."""

    @staticmethod
    def forward(ctx: Any, gate_up_N2F: Tensor, weight_DF: Tensor) -> Tensor:  # noqa: D102
        ctx.save_for_backward(gate_up_N2F, weight_DF)
        gate, up = gate_up_N2F.chunk(2, -1)
        return (F.silu(gate) * up) @ weight_DF.T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        gate_up_N2F, weight_DF = ctx.saved_tensors
        (grad_ND,) = gradients
        grad_N2F, again_NF = swiglu_backward(gate_up_N2F, grad_ND @ weight_DF)
        return grad_N2F, grad_ND.T @ again_NF


@triton_op("linnet::swiglu_slopes", mutates_args={})
def swiglu_backward(gate_up_N2F: Tensor, grad_NF: Tensor) -> tuple[Tensor, Tensor]:
    """[N, 2F]: the gradient by gate and up; [N, F]: silu(gate) · up once more, for the matmul that followed it."""
    N, width = grad_NF.shape
    gate_up_N2F, grad_NF = gate_up_N2F.contiguous(), grad_NF.contiguous()
    out_N2F, again_NF = torch.empty_like(gate_up_N2F), torch.empty_like(grad_NF)
    grid = (N * triton.cdiv(width, _BLOCK),)  # of one dimension: a second one ends at 65,535
    wrap_triton(_swiglu_backward)[grid](gate_up_N2F, grad_NF, out_N2F, again_NF, width, BLOCK=_BLOCK, num_warps=4)
    return out_N2F, again_NF


@triton.jit
def _swiglu_backward(gate_up, grad, slopes, again, width, BLOCK: tl.constexpr):
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    g = tl.load(grad + row * width + at, mask=inside).to(tl.float32)
    gate = tl.load(gate_up + row * 2 * width + at, mask=inside).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    silu = gate * sigmoid
    tl.store(again + row * width + at, silu * up, mask=inside)
    tl.store(slopes + row * 2 * width + at, g * up * (sigmoid + silu * (1 - sigmoid)), mask=inside)
    tl.store(slopes + row * 2 * width + width + at, g * silu, mask=inside)
