"""Triton kernels for what the compiler does badly, each beside a plain version that says what it computes.

They are here because they gain 7 to 16 % of a whole step on an H200 (docs/decisions.md), and are used only where models
are compiled for CUDA.
"""

from __future__ import annotations

import torch
from torch import Tensor


def can_order_attention(head_size: int, dtype: torch.dtype, capability: tuple[int, int]) -> bool:
    """Is attention with such heads done by `ordered_attention`? It is for 16 bits, and was measured on Hopper."""
    return capability == (9, 0) and head_size % 8 == 0 and head_size <= 128 and dtype.itemsize == 2


def contiguous_rows(x: Tensor) -> Tensor:
    """With neighbours in the last dimension next to each other in memory: some of torch's attentions transpose."""
    return x if x.stride(-1) == 1 else x.contiguous()
