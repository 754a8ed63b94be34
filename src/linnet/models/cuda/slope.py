"""`slope` as one Triton kernel: each row of logits is read, and read again from the cache while it is replaced.

The compiler needs a pass over all logits for their sums and a second one for their slopes. One pass over memory less is
6 % of a whole step of GPT-2 124M on an H200 (docs/log.md). `loss.slope` says what is computed; a test compares them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# So few rows are in work at a time that they stay in the cache between the two looks at them.
_PROGRAMS = 528
_BLOCK, _WARPS = 4096, 8


def slope(logits_NV: Tensor, targets_N: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """[N]: −log p of each target; [N, V]: p − one-hot, in the place of the logits."""
    N, width = logits_NV.shape
    losses_N = torch.empty(N, device=logits_NV.device)
    programs = min(N, _PROGRAMS)
    sizes = (logits_NV.stride(0), N, triton.cdiv(N, programs), vocab, width)
    _slopes[(programs,)](logits_NV, targets_N, losses_N, *sizes, BLOCK=_BLOCK, num_warps=_WARPS)
    return losses_N, logits_NV


@triton.jit
def _slopes(logits, targets, losses, stride, N, rows, vocab, width, BLOCK: tl.constexpr):
    for turn in range(0, rows):
        row = tl.program_id(0) + turn * tl.num_programs(0)
        if row < N:
            _slopes_of(logits + row.to(tl.int64) * stride, targets + row, losses + row, vocab, width, BLOCK)


@triton.jit
def _slopes_of(logits, target, loss, vocab, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    right = tl.maximum(tl.load(target), 0)
    largest = float("-inf")
    total = 0.0
    for start in range(0, width, BLOCK):
        at = start + columns
        # Masked by the width, a multiple of 64, a load is made in vectors; by an odd vocabulary it would not be.
        x = tl.load(logits + at, mask=at < width, other=float("-inf")).to(tl.float32)
        x = tl.where(at < vocab, x, float("-inf"))
        before, largest = largest, tl.maximum(largest, tl.max(x))
        total = total * tl.exp(before - largest) + tl.sum(tl.exp(x - largest))
    log_total = largest + tl.log(total)
    tl.store(loss, log_total - tl.load(logits + right).to(tl.float32))
    for start in range(0, width, BLOCK):
        at = start + columns
        x = tl.load(logits + at, mask=at < width, other=float("-inf")).to(tl.float32)
        p = tl.where(at < vocab, tl.exp(x - log_total), 0.0)
        tl.store(logits + at, p - (at == right), mask=at < width)
