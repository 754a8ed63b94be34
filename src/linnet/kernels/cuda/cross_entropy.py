"""Cross entropy with its gradient as one Triton kernel: a row of logits is read, and again while it is replaced.

The compiler needs a pass over all logits for their sums and a second one for the gradient. One pass over memory less
is several per cent of a step of GPT-2 124M on an H200 (docs/log.md). `head_loss.cross_entropy_grad` says what is
computed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 8192  # with as many warps as there can be: few rows are worked on at once, and stay in the cache
_LOG2_E = tl.constexpr(1.4426950408889634)
_FAR = tl.constexpr(100.0)  # a vocabulary's worth of 2 to this power still fits float32


def cross_entropy_grad(logits_NV: Tensor, targets_N: Tensor, weights_N: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """[N]: −log p of each target, weighted; [N, V]: its derivative by the logits, in their place."""
    N, width = logits_NV.shape
    losses_N = torch.empty(N, device=logits_NV.device)
    whole = vocab // _BLOCK * _BLOCK
    _cross_entropy_grad[(N,)](
        logits_NV, targets_N, weights_N, losses_N, logits_NV.stride(0), vocab, width, whole,
        BLOCK=_BLOCK, REST=triton.next_power_of_2(max(width - whole, 1)), num_warps=32,
    )  # fmt: skip
    return losses_N, logits_NV


@triton.jit
def _cross_entropy_grad(
    logits, targets, weights, losses, stride, vocab, width, whole, BLOCK: tl.constexpr, REST: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    target = tl.maximum(tl.load(targets + row), 0)
    known = target < vocab  # no such token: its loss is no number, and nothing is written beside the row
    weight = tl.load(weights + row)
    # Read before the sums, for which all warps wait: a quick one may already write there when a slow one would read.
    of_target = tl.load(logits + target, mask=known, other=float("nan")).to(tl.float32)
    # What is over after whole blocks stays at hand. Masked by the width, a multiple of 64, it is read in vectors; by an
    # odd vocabulary it would not be.
    after = whole + tl.arange(0, REST)
    rest = tl.load(logits + after, mask=after < width, other=0.0).to(tl.float32)
    rest = tl.where(after < vocab, rest, float("-inf"))
    # Sums of exp(x − reference) want a reference near the largest logit. The target's is known without a search, and
    # nearly always near enough; where it is not, the largest is searched for.
    reference = of_target
    total = _sum(logits, rest, reference, whole, BLOCK)
    if total >= tl.exp2(_FAR):
        reference = tl.maximum(_largest(logits, whole, BLOCK), tl.max(rest))
        total = _sum(logits, rest, reference, whole, BLOCK)
    tl.store(losses + row, weight * (tl.log(total) + reference - of_target))
    shift = reference * _LOG2_E + tl.log2(total) - tl.log2(weight)  # without weight ∞, and all powers are 0
    column = tl.arange(0, BLOCK)
    for start in range(0, whole, BLOCK):
        x = tl.load(logits + start + column).to(tl.float32)
        tl.store(logits + start + column, tl.exp2(x * _LOG2_E - shift))
    tl.store(logits + after, tl.exp2(rest * _LOG2_E - shift), mask=after < width)
    tl.debug_barrier()  # the target's place is written a second time
    tl.store(logits + target, tl.exp2(of_target * _LOG2_E - shift) - weight, mask=known)


@triton.jit
def _sum(logits, rest, reference, whole, BLOCK: tl.constexpr):
    """Of exp(x − reference), where no power counts for more than 2 to the _FAR."""
    column = tl.arange(0, BLOCK)
    shift = reference * _LOG2_E
    totals = tl.zeros((BLOCK,), tl.float32)  # each lane has its own until the end: lanes need not wait for each other
    for start in range(0, whole, BLOCK):
        totals += _power(tl.load(logits + start + column).to(tl.float32), shift)
    return tl.sum(totals) + tl.sum(_power(rest, shift))


@triton.jit
def _power(x, shift):
    return tl.exp2(tl.minimum(x * _LOG2_E - shift, _FAR, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def _largest(logits, whole, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, whole, BLOCK):
        most = tl.maximum(most, tl.load(logits + start + column).to(tl.float32))
    return tl.max(most)
