"""Residual sum, norm and linear layer as one operation; one Triton kernel does its backward pass but for the matmuls.

The kernel reads the sum and both gradients once. It writes the gradient of the sum, makes the normed rows again for
the linear layer's weights, and adds up the gradients of the norm's own weights on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

PROGRAMS = 1056  # eight for each multiprocessor of an H200; each leaves a row of sums
NUMBERS = 1024  # of a warp at once. Up to that width a program is a single one, which waits for no other
_AHEAD = 2048  # the widest rows that are loaded some iterations ahead; of wider ones too few would fit


class NormLinear(torch.autograd.Function):
    """s = x + added, and norm(s) Wᵀ + b: `centred` by LayerNorm, otherwise by RMSNorm. Of all of it s is kept.

    Also the gradient of a bias that `added` already holds.
    """

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, added_ND: Tensor, added_bias_D: Tensor | None,
        scale_D: Tensor, shift_D: Tensor | None, eps: float, centred: bool,
        weight_ED: Tensor, bias_E: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        # Added as float32 and rounded, which is the same. Else the compiler lets the matmul before this add to a copy.
        sum_ND = (x_ND.float() + added_ND).to(x_ND.dtype)
        ctx.save_for_backward(sum_ND, scale_D, shift_D, weight_ED)
        ctx.eps, ctx.centred = eps, centred
        return sum_ND, F.linear(_normed(sum_ND, scale_D, shift_D, eps, centred), weight_ED, bias_E)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sum_ND, scale_D, shift_D, weight_ED = ctx.saved_tensors
        beside_ND, grad_NE = gradients
        grad_ND, normed_ND, sums_PSD = norm_backward(
            sum_ND, grad_NE @ weight_ED, beside_ND, scale_D, shift_D, ctx.eps, ctx.centred, ctx.needs_input_grad[2]
        )
        sums = _summed(sums_PSD, shift_D is not None, ctx.needs_input_grad[2])
        by_weight = grad_NE.T @ normed_ND if ctx.needs_input_grad[7] else None
        by_bias = grad_NE.sum(0) if ctx.needs_input_grad[8] else None
        return grad_ND, grad_ND, *sums, None, None, by_weight, by_bias


class NormRows(torch.autograd.Function):
    """The same without a linear layer: s = x + added, and norm(s)."""

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, added_ND: Tensor, added_bias_D: Tensor | None,
        scale_D: Tensor, shift_D: Tensor | None, eps: float, centred: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        sum_ND = (x_ND.float() + added_ND).to(x_ND.dtype)
        ctx.save_for_backward(sum_ND, scale_D, shift_D)
        ctx.eps, ctx.centred = eps, centred
        return sum_ND, _normed(sum_ND, scale_D, shift_D, eps, centred)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sum_ND, scale_D, shift_D = ctx.saved_tensors
        beside_ND, grad_ND = gradients
        by_sum_ND, _, sums_PSD = norm_backward(
            sum_ND, grad_ND, beside_ND, scale_D, shift_D, ctx.eps, ctx.centred, ctx.needs_input_grad[2]
        )
        return by_sum_ND, by_sum_ND, *_summed(sums_PSD, shift_D is not None, ctx.needs_input_grad[2]), None, None


def _normed(sum_ND: Tensor, scale_D: Tensor, shift_D: Tensor | None, eps: float, centred: bool) -> Tensor:
    exact = sum_ND.float()
    if centred:
        normed = F.layer_norm(exact, scale_D.shape, scale_D, shift_D, eps)
    else:
        normed = F.rms_norm(exact, scale_D.shape, scale_D, eps)
    return normed.to(sum_ND.dtype)


def _summed(sums_PSD: Tensor, shifted: bool, summed: bool) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """The gradients of the bias that was added, of scale and of shift."""
    sums = list(sums_PSD.sum(0))
    by_scale = sums.pop(0)
    by_shift = sums.pop(0) if shifted else None
    return sums.pop(0) if summed else None, by_scale, by_shift


@triton_op("linnet::norm_slopes", mutates_args={})
def norm_backward(
    x_ND: Tensor,
    grad_ND: Tensor,
    beside_ND: Tensor,
    scale_D: Tensor,
    shift_D: Tensor | None,
    eps: float,
    centred: bool,
    summed: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """[N, D]: the gradient of x by way of its norm, and `beside`; [N, D]: norm(x) once more; [P, S, D]: sums.

    Summed over P, a row for each program, they are the gradient of scale; that of shift, where there is one; and the
    sum of the first result, where it is wanted (`summed`).
    """
    N, D = x_ND.shape
    x_ND, grad_ND, beside_ND = x_ND.contiguous(), grad_ND.contiguous(), beside_ND.contiguous()
    out_ND, normed_ND = torch.empty_like(x_ND), torch.empty_like(x_ND)
    block = triton.next_power_of_2(D)
    rows = max(1, NUMBERS // block)
    programs = min(PROGRAMS, triton.cdiv(N, rows))
    sums_PSD = torch.empty(programs, 1 + (shift_D is not None) + summed, D, device=x_ND.device)
    wrap_triton(_norm_backward)[(programs,)](
        x_ND, grad_ND, beside_ND, scale_D, scale_D if shift_D is None else shift_D,
        out_ND, normed_ND, sums_PSD, N,
        WIDTH=D, EPS=eps, CENTRED=centred, SHIFTED=shift_D is not None, SUMMED=summed,
        ROWS=rows, BLOCK=block, STAGES=3 if block <= _AHEAD else 1, num_warps=max(1, block // NUMBERS),
    )  # fmt: skip
    return out_ND, normed_ND, sums_PSD


@triton.jit
def _norm_backward(
    x, grad, beside, scale, shift, out, normed, sums, N,
    WIDTH: tl.constexpr, EPS: tl.constexpr, CENTRED: tl.constexpr, SHIFTED: tl.constexpr, SUMMED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    w = tl.load(scale + column, mask=inside, other=0.0)
    by_scale = tl.zeros((BLOCK,), tl.float32)
    if SHIFTED:
        b = tl.load(shift + column, mask=inside, other=0.0)
        by_shift = tl.zeros((BLOCK,), tl.float32)
    if SUMMED:
        total = tl.zeros((BLOCK,), tl.float32)
    for first in tl.range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS, num_stages=STAGES):
        row = first + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * WIDTH + column[None, :]
        mask = (row < N)[:, None] & inside[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        aside = tl.load(beside + at, mask=mask, other=0.0).to(tl.float32)
        if CENTRED:
            value = tl.where(mask, value - tl.sum(value, 1)[:, None] / WIDTH, 0.0)
        unit = tl.rsqrt(tl.sum(value * value, 1) / WIDTH + EPS)[:, None]
        hat = value * unit
        slope = g * w[None, :]
        inner = slope - hat * (tl.sum(slope * hat, 1)[:, None] / WIDTH)
        if CENTRED:
            inner -= tl.sum(slope, 1)[:, None] / WIDTH
        result = aside + inner * unit
        tl.store(out + at, result, mask=mask)
        if SUMMED:
            total += tl.sum(result, 0)
        output = hat * w[None, :]
        by_scale += tl.sum(g * hat, 0)
        if SHIFTED:
            output += b[None, :]
            by_shift += tl.sum(g, 0)
        tl.store(normed + at, output, mask=mask)
    sums += tl.program_id(0) * (1 + SHIFTED + SUMMED) * WIDTH + column
    tl.store(sums, by_scale, mask=inside)
    if SHIFTED:
        tl.store(sums + WIDTH, by_shift, mask=inside)
    if SUMMED:
        tl.store(sums + (1 + SHIFTED) * WIDTH, total, mask=inside)
