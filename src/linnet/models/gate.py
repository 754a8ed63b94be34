"""SwiGLU: silu(gate) · up, of one matrix that holds both."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def swiglu(gate_up: Tensor) -> Tensor:
    """[…, 2F] → […, F]."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and gate_up.requires_grad):
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up
    out: Tensor = _SwiGLU.apply(gate_up)
    return out


class _SwiGLU(torch.autograd.Function):
    """The same for eager training: one tensor is kept instead of three, and the gradient is written in place."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        (grad_out,) = gradients
        gate, up = gate_up.chunk(2, -1)
        grad = torch.empty_like(gate_up)
        grad_gate, grad_up = grad.chunk(2, -1)
        torch.mul(F.silu(gate), grad_out, out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grad_out * up, gate, grad_input=grad_gate)
        return grad
