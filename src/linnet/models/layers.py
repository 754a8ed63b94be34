"""The layers llama and GPT-2 are made of. Weights are float32; a product is done in the dtype of its input.

Nothing here draws random numbers: `initial.py` fills every parameter.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Module):
    """y = x Wᵀ + b, with the weight cast to the dtype of x."""

    def __init__(self, into: int, out: int, *, bias: bool = False, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, into, device=device))
        self.bias = nn.Parameter(torch.empty(out, device=device)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[…, into] → […, out]."""
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Embedding(nn.Module):
    """A row for each id."""

    def __init__(self, rows: int, width: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width, device=device))

    def forward(self, ids: Tensor) -> Tensor:
        """[…] → […, width], in float32."""
        return F.embedding(ids, self.weight)


class RMSNorm(nn.Module):
    """x / rms(x) · weight, computed in float32."""

    def __init__(self, width: int, eps: float, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] → […, width], in the dtype of x."""
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps).to(x.dtype)


class LayerNorm(nn.Module):
    """(x − mean) / std · weight + bias, computed in float32."""

    def __init__(self, width: int, eps: float, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device))
        self.bias = nn.Parameter(torch.empty(width, device=device))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] → […, width], in the dtype of x."""
        return F.layer_norm(x.float(), self.weight.shape, self.weight, self.bias, self.eps).to(x.dtype)
