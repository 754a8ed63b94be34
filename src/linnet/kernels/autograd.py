"""Hand-written backward passes for eager training: fewer passes over memory than autograd's own, and less is kept.

The compiler fuses the plain formulas itself; `ops.py` says where which is taken.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels.cuda import contiguous_rows


class RMSNorm(torch.autograd.Function):
    """x / rms(x) · weight on a CPU, where torch has no kernel of its own for it: half the passes over x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(norm.new_full((), eps), norm, norm, value=1 / x.shape[-1]).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (grad,) = gradients
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        product = (grad * normed).flatten(0, -2)
        # d/dx = scale · (grad·w − normed · mean(grad·w·normed))
        zero = weight.new_zeros(())
        mean = torch.addmv(zero, product, weight, beta=0, alpha=1 / x.shape[-1]).view_as(scale)
        grad_x = (grad * weight).sub_(normed.mul_(mean)).mul_(scale)
        return grad_x, product.sum(0) if ctx.needs_input_grad[1] else None, None


class SwiGLU(torch.autograd.Function):
    """silu(gate) · up of [gate, up]: one tensor is kept instead of three, and the gradient is written in place."""

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


class SplitRope(torch.autograd.Function):
    """q, k and v of a fused projection, q and k rotated: a pair is a complex number, the gradient is written once.

    Plain autograd would make a zero-filled gradient of the whole projection for each of q, k and v and add them.
    """

    @staticmethod
    def forward(ctx: Any, qkv_BTE: Tensor, rope_TP2: Tensor, n_heads: int, n_kv: int) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(rope_TP2)
        ctx.heads = (n_heads, n_kv)
        qk, v = qkv_BTE.unflatten(-1, (n_heads + 2 * n_kv, -1)).split((n_heads + n_kv, n_kv), dim=2)
        rotated = torch.view_as_real(_pairs(qk.float()) * torch.view_as_complex(rope_TP2)[:, None]).flatten(-2).to(v)
        return rotated[:, :, :n_heads], rotated[:, :, n_heads:], v

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (rope_TP2,) = ctx.saved_tensors
        n_heads, n_kv = ctx.heads
        grad_q, grad_k, grad_v = gradients
        B, T, _, D = grad_q.shape
        grad = grad_q.new_empty(B, T, n_heads + 2 * n_kv, D)
        back = torch.view_as_complex(rope_TP2).conj().resolve_conj()[:, None]  # once for both
        by_q, by_k, by_v = grad.split((n_heads, n_kv, n_kv), dim=2)
        for grad_rotated, grad_head in ((grad_q, by_q), (grad_k, by_k)):
            if grad_rotated.dtype == torch.float32:
                torch.mul(_pairs(grad_rotated), back, out=_pairs(grad_head))
            else:
                grad_head.copy_(torch.view_as_real(_pairs(grad_rotated.float()) * back).flatten(-2))
        by_v.copy_(grad_v)
        return grad.flatten(2), None, None, None


def _pairs(x_BTHD: Tensor) -> Tensor:
    """Neighbours as one complex number each: a view, if they are neighbours in memory too."""
    return torch.view_as_complex(contiguous_rows(x_BTHD).unflatten(-1, (-1, 2)))
