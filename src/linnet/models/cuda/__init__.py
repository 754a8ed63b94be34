"""Triton kernels for what the compiler does badly, each beside a plain version that says what it computes.

A kernel is here because it gains several per cent of a whole step on an H200 (docs/log.md), and is used only where
models are compiled for CUDA.
"""

from __future__ import annotations

import torch
from torch import Tensor


def used(x: Tensor) -> bool:
    """Is what becomes of `x` computed by the kernels? Asked by parts that must agree, since they share work."""
    return torch.compiler.is_compiling() and x.is_cuda
