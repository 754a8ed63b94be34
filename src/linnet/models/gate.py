"""From the first product of a feed-forward to the end of the second: GELU or SwiGLU (silu(gate) · up) between."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.models import cuda
from linnet.models.layers import Linear


def gelu_product(up: Tensor, up_bias: Tensor | None, down: Linear) -> Tensor:
    """[…, F] → […, d_model]: down(gelu(up)), GELU by tanh. `up` holds its bias, which follows (`normed_product`)."""
    if cuda.used(up):
        from linnet.models.cuda.gelu import GeluProduct

        bias = None if down.bias is None else down.bias.to(up.dtype)
        product: Tensor = GeluProduct.apply(up.flatten(0, -2), up_bias, down.weight.to(up.dtype), bias)
        return product.view(*up.shape[:-1], -1)
    out: Tensor = down(F.gelu(up, approximate="tanh"))
    return out


def gated_product(gate_up: Tensor, down: Linear) -> Tensor:
    """[…, 2F] → […, d_model]: down(swiglu(gate_up))."""
    if cuda.used(gate_up) and down.bias is None:
        from linnet.models.cuda.gate import GatedProduct

        product: Tensor = GatedProduct.apply(gate_up.flatten(0, -2), down.weight.to(gate_up.dtype))
        return product.view(*gate_up.shape[:-1], -1)
    out: Tensor = down(swiglu(gate_up))
    return out


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
