"""RMSNorm and LayerNorm, in float32 whatever the dtype around them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / rms(x) · weight, computed in float32."""

    def __init__(self, width: int, eps: float, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] → […, width], in the dtype of x."""
        if torch.compiler.is_compiling() or x.device.type != "cpu" or not torch.is_grad_enabled():
            return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps).to(x.dtype)
        y: Tensor = _RMSNorm.apply(x.float(), self.weight, self.eps)
        return y.to(x.dtype)


class _RMSNorm(torch.autograd.Function):
    """The same for eager training on a CPU, where torch has no kernel of its own for it: half the passes over x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(norm.new_full((), eps), norm, norm, value=1 / x.shape[-1]).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = gradients
        x, weight, scale = ctx.saved_tensors
        normed = x * scale
        product = (grad * normed).flatten(0, -2)
        # d/dx = scale · (grad·w − normed · mean(grad·w·normed))
        zero = weight.new_zeros(())
        mean = torch.addmv(zero, product, weight, beta=0, alpha=1 / x.shape[-1]).view_as(scale)
        grad_x = (grad * weight).sub_(normed.mul_(mean)).mul_(scale)
        return grad_x, product.sum(0), None


class LayerNorm(nn.Module):
    """(x − mean) / std · weight + bias, computed in float32."""

    def __init__(self, width: int, eps: float, device: torch.device | str | None = None, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device))
        self.bias = nn.Parameter(torch.empty(width, device=device)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] → […, width], in the dtype of x."""
        return F.layer_norm(x.float(), self.weight.shape, self.weight, self.bias, self.eps).to(x.dtype)
