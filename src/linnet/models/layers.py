"""Linear layers and embeddings. Weights are float32; a product is done in the dtype of its input.

Nothing here draws random numbers: `initial.py` fills every parameter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.models import cuda
from linnet.models.cpu.products import Product, pays


class Linear(nn.Module):
    """y = x Wᵀ + b, with the weight cast to the dtype of x."""

    ready: Callable[[Tensor], Tensor] | None = None  # a form of the weight for decoding, while there is one (ready.py)

    def __init__(self, into: int, out: int, *, bias: bool = False, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, into, device=device))
        self.bias = nn.Parameter(torch.empty(out, device=device)) if bias else None

    def forward(self, x: Tensor, bias_follows: bool = False) -> Tensor:
        """[…, into] → […, out].

        Where kernels compute, `bias_follows` says that who reads the result has the bias's gradient at hand and sees to
        it: `attend_all`, `fused_heads`, `gelu_product`, or `normed_product` of what is added.
        """
        if self.ready is not None:
            return self.ready(x)
        weight = self.weight.to(x.dtype)
        if self.bias is None and pays(x, weight):
            y: Tensor = Product.apply(x, weight)
            return y
        return F.linear(x, weight, self.bias_for(x, bias_follows))

    def bias_for(self, x: Tensor, bias_follows: bool = False) -> Tensor | None:
        """The bias in the dtype of x, cut off from its gradient where that follows."""
        if self.bias is None:
            return None
        bias = self.bias.detach() if bias_follows and cuda.used(x) else self.bias
        return bias.to(x.dtype)


class Embedding(nn.Module):
    """A row for each id."""

    def __init__(self, rows: int, width: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width, device=device))

    def forward(self, ids_BT: Tensor, dtype: torch.dtype = torch.float32, plus_TD: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, width]: the rows, plus what is to be added to them, in `dtype`."""
        rows_BTD = F.embedding(ids_BT, self.weight)
        return (rows_BTD if plus_TD is None else rows_BTD + plus_TD).to(dtype)
