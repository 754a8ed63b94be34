"""Matmuls in float32 by oneDNN, where that is quicker than the BLAS torch was built with.

torch multiplies by MKL, which takes its lesser kernels on processors that are not Intel's: with AVX-512 oneDNN is 7 to
10 % ahead there. Which one is used depends on the machine alone, so a run computes the same bits every time.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_LEAST = 1 << 22  # multiplications; below it a call costs more than it saves


@functools.cache
def mkl_is_slow() -> bool:
    """Does torch multiply by MKL, with AVX-512, on a processor that is not Intel's?"""
    if not torch.backends.mkl.is_available() or "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def is_faster(x_NK: Tensor, weight_MK: Tensor) -> bool:
    """Is oneDNN faster for x Wᵀ?"""
    return (
        x_NK.device.type == "cpu"
        and x_NK.dtype == weight_MK.dtype == torch.float32
        and x_NK.numel() * weight_MK.shape[0] >= _LEAST
        and not torch.compiler.is_compiling()
        and mkl_is_slow()
        and torch.backends.mkldnn.is_available()
    )


def times_transposed(x_NK: Tensor, weight_MK: Tensor) -> Tensor:
    """x Wᵀ, by oneDNN; W may be a transposed view."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x_NK, weight_MK, None, "none", [], "")
    return y


class Matmul(torch.autograd.Function):
    """x Wᵀ with its gradients. That of W stays with torch: oneDNN would have to transpose x first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_MK: Tensor) -> Tensor:
        """[…, K] → […, M]."""
        ctx.save_for_backward(x, weight_MK)
        return times_transposed(x, weight_MK)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """By x and the weight."""
        x, weight_MK = ctx.saved_tensors
        grad = gradients[0]
        by_x = times_transposed(grad, weight_MK.T) if ctx.needs_input_grad[0] else None
        by_weight = grad.flatten(0, -2).T @ x.flatten(0, -2) if ctx.needs_input_grad[1] else None
        return by_x, by_weight
