"""`slope` as one Triton kernel: each row of logits is read, and read again from the cache while it is replaced.

The compiler needs a pass over all logits for their sums and a second one for their slopes. One pass over memory less is
several per cent of a step of GPT-2 124M on an H200 (docs/log.md). `loss.slope` says what is computed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_NOTHING = tl.constexpr(-1e30)  # a logit that adds nothing; not −∞, whose difference from itself is no number


def slope(logits_NV: Tensor, targets_N: Tensor, weights_N: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """[N]: −log p of each target, weighted; [N, V]: its derivative by the logits, in their place."""
    N, width = logits_NV.shape
    losses_N = torch.empty(N, device=logits_NV.device)
    _slopes[(N,)](logits_NV, targets_N, weights_N, losses_N, logits_NV.stride(0), vocab, width, BLOCK=4096, num_warps=8)
    return losses_N, logits_NV


@triton.jit
def _slopes(logits, targets, weights, losses, stride, vocab, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    target = tl.maximum(tl.load(targets + row), 0)
    weight = tl.load(weights + row)
    # Before the sums, for which all warps wait: a quick one may already write there when a slow one would read.
    of_target = tl.load(logits + target).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    # Each lane has a maximum and a sum of its own until the end: lanes need not wait for each other.
    largest = tl.full((BLOCK,), _NOTHING, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        at = start + columns
        # Masked by the width, a multiple of 64, a load is made in vectors; by an odd vocabulary it would not be.
        x = tl.load(logits + at, mask=at < width, other=_NOTHING).to(tl.float32)
        x = tl.where(at < vocab, x, _NOTHING)
        # Of exp(largest − new largest) and exp(x − new largest) one is 1: a single exponential will do.
        above = x - largest
        less = tl.exp(-tl.abs(above))
        total = tl.where(above > 0, total * less + 1, total + less)
        largest = tl.maximum(largest, x)
    top = tl.max(largest)
    log_total = top + tl.log(tl.sum(total * tl.exp(largest - top)))
    tl.store(losses + row, weight * (log_total - of_target))
    for start in range(0, width, BLOCK):
        at = start + columns
        x = tl.load(logits + at, mask=at < width, other=_NOTHING).to(tl.float32)
        p = tl.where(at < vocab, tl.exp(x - log_total), 0.0)
        tl.store(logits + at, weight * (p - (at == target)), mask=at < width)
