"""The rows of an embedding, with a gradient that is the same whatever the order in which tokens add to it.

Float addition depends on the order, and atomic additions have none. Sums of integers do not: each gradient is added as
a fixed-point number of 64 bits, with the point where the largest of all leaves room for as many as there are tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

_BLOCK = 1024
_BITS = tl.constexpr(62)  # of a sum; besides a sign, and one that is spare


class EmbeddingRows(torch.autograd.Function):
    """The row [D] of each id, plus `plus_TD`, in `dtype`."""

    @staticmethod
    def forward(ctx: Any, ids_BT: Tensor, weight_VD: Tensor, plus_TD: Tensor | None, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(ids_BT)
        ctx.rows = weight_VD.shape[0]
        rows_BTD = F.embedding(ids_BT, weight_VD)
        return (rows_BTD if plus_TD is None else rows_BTD + plus_TD).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (ids_BT,) = ctx.saved_tensors
        (grad_BTD,) = gradients
        grad_ND = grad_BTD.flatten(0, -2)
        by_weight = None
        if ctx.needs_input_grad[1]:
            by_weight = embedding_backward(grad_ND, grad_ND.abs().amax().float(), ids_BT.flatten(), ctx.rows)
        by_plus = grad_BTD.float().sum(0) if ctx.needs_input_grad[2] else None
        return None, by_weight, by_plus, None


@triton_op("linnet::embedding_backward", mutates_args={})
def embedding_backward(grad_ND: Tensor, largest: Tensor, ids_N: Tensor, rows: int) -> Tensor:
    """[rows, D] in float32: the sum of the gradients of each id; `largest` is the largest of them, without its sign."""
    N, D = grad_ND.shape
    grad_ND, ids_N = grad_ND.contiguous(), ids_N.contiguous()
    room = _BITS.value - N.bit_length()  # for one number, so that N of them do not overflow
    sums_VD = torch.zeros(rows, D, device=grad_ND.device, dtype=torch.int64)
    columns = triton.cdiv(D, _BLOCK)
    wrap_triton(_add_rows)[(N * columns,)](grad_ND, largest, ids_N, sums_VD, D, room, columns, BLOCK=_BLOCK)
    grad_VD = torch.empty(rows, D, device=grad_ND.device)
    blocks = triton.cdiv(rows * D, _BLOCK)
    wrap_triton(_to_float)[(blocks,)](sums_VD, largest, grad_VD, rows * D, room, BLOCK=_BLOCK)
    return grad_VD


@triton.jit
def _add_rows(grad, largest, ids, sums, D, room, columns, BLOCK: tl.constexpr):
    n = (tl.program_id(0) // columns).to(tl.int64)
    d = tl.program_id(0) % columns * BLOCK + tl.arange(0, BLOCK)
    inside = d < D
    value = tl.load(grad + n * D + d, mask=inside, other=0.0).to(tl.float64)
    fixed = (value * _power(room - _exponent(largest))).to(tl.int64)
    tl.atomic_add(sums + tl.load(ids + n) * D + d, fixed, mask=inside, sem="relaxed")


@triton.jit
def _to_float(sums, largest, out, size, room, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    fixed = tl.load(sums + at, mask=at < size, other=0).to(tl.float64)
    value = (fixed * _power(_exponent(largest) - room)).to(tl.float32)
    not_finite = tl.load(largest) * 0.0  # nan where a gradient was none or ∞, else 0
    tl.store(out + at, value + not_finite, mask=at < size)


@triton.jit
def _exponent(largest):
    """e, where 2ᵉ is above the largest number."""
    return ((tl.load(largest).to(tl.int32, bitcast=True) >> 23) & 0xFF) - 126


@triton.jit
def _power(exponent):
    """2 to this power, exactly."""
    return ((exponent + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)
