"""RMSNorm and LayerNorm, in float32 whatever the dtype around them; and with the sum before and the product after."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.models import cuda
from linnet.models.layers import Linear


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


def normed_product(
    x_BTD: Tensor,
    added_BTD: Tensor | None,
    norm: nn.Module,
    product: Linear,
    *,
    bias_follows: bool = False,
    added_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """x + added, and product(norm(x + added)).

    `bias_follows`: who reads the product sees to the gradient of its bias (`Linear.forward`). `added_bias`: that of
    what is added, if it follows here.
    """
    if cuda.used(x_BTD):
        from linnet.models.cuda.norm import NormedProduct

        assert isinstance(norm, RMSNorm | LayerNorm)
        added_BTD = torch.zeros_like(x_BTD) if added_BTD is None else added_BTD
        shift = norm.bias if isinstance(norm, LayerNorm) else None
        sum_ND, out_NE = NormedProduct.apply(
            x_BTD.flatten(0, -2), added_BTD.flatten(0, -2), added_bias,
            norm.weight, shift, norm.eps, isinstance(norm, LayerNorm),
            product.weight.to(x_BTD.dtype), product.bias_for(x_BTD, bias_follows),
        )  # fmt: skip
        return sum_ND.view_as(x_BTD), out_NE.view(*x_BTD.shape[:-1], -1)
    sum_BTD = x_BTD if added_BTD is None else x_BTD + added_BTD
    return sum_BTD, product(norm(sum_BTD), bias_follows)
