"""Linear layers, norms and embeddings. Weights are float32; a matmul is done in the dtype of its input.

Nothing here draws random numbers: `initial.py` fills every parameter.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linnet.kernels import ops
from linnet.kernels.packed import PackedMatrix

Device = torch.device | str


class Linear(nn.Linear):
    """y = x Wᵀ + b, with the weight cast to the dtype of x."""

    bias: nn.Parameter | None  # type: ignore[assignment]  # torch's own annotation knows no layer without one

    def __init__(self, into: int, out: int, *, bias: bool = False, device: Device | None = None) -> None:
        super().__init__(into, out, bias=bias, device=device)

    def reset_parameters(self) -> None:
        """Leave the parameters without a value."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, into] → […, out]."""
        return ops.linear(x, self.weight, self.bias)


class RMSNorm(nn.RMSNorm):
    """x / rms(x) · weight, computed in float32."""

    def __init__(self, width: int, eps: float, device: Device | None = None) -> None:
        super().__init__(width, eps, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] → […, width], in the dtype of x."""
        return ops.rms_norm(x, self.weight, self.eps)


class LayerNorm(nn.LayerNorm):
    """(x − mean) / std · weight + bias, computed in float32."""

    def __init__(self, width: int, eps: float, device: Device | None = None, *, bias: bool = True) -> None:
        super().__init__(width, eps, bias=bias, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] → […, width], in the dtype of x."""
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class Embedding(nn.Module):
    """A row for each id."""

    def __init__(self, rows: int, width: int, device: Device | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width, device=device))

    def forward(self, ids_BT: Tensor, dtype: torch.dtype = torch.float32, plus_TD: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, width]: the rows, plus `plus_TD`, in `dtype`."""
        return ops.embedding(ids_BT, self.weight, dtype, plus_TD)


class PackedLinear(nn.Module):
    """A linear layer that is not trained, whose weight stays in the bits it came in and is decoded at each use."""

    def __init__(self, weight: PackedMatrix, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor, mask_keys_B: Tensor | None = None) -> Tensor:
        """[…, into] → […, out]."""
        return ops.packed_linear(x, self.weight, self.bias)


class PackedEmbedding(nn.Module):
    """A row for each id, of a table that is not trained and stays in the bits it came in."""

    def __init__(self, weight: PackedMatrix) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, ids_BT: Tensor, dtype: torch.dtype = torch.float32, plus_TD: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, width]: the rows, plus `plus_TD`, in `dtype`."""
        rows_BTD = self.weight.rows(ids_BT)
        return (rows_BTD if plus_TD is None else rows_BTD + plus_TD).to(dtype)
