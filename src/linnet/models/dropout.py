"""Dropout of the residual stream: of the embeddings, and of what each attention and feed-forward adds to it.

Masks are a hash (`kernels/dropout.py`) of seed, step, the tokens of a row, the place in the model and in the row.
Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linnet.errors import UsageError
from linnet.kernels.dropout import drop, row_keys
from linnet.models.layers import Device

_SALT = 0x2545F491  # another one than adapters have, by chance


class ResidualDropout(nn.Module):
    """Drops a share of the embeddings, and makes the keys of all masks of a step. `LanguageModel.use_dropout` puts it.

    The training step is a tensor that is written in place, so that captured steps read it.
    """

    step: Tensor

    def __init__(self, share: float, seed: int = 0, device: Device | None = None) -> None:
        super().__init__()
        if not 0 <= share < 1:
            raise UsageError(f"`dropout` is a share of the residual stream, from 0 to below 1, found {share:g}")
        self.share, self._seed = share, seed
        self.register_buffer("step", torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        self.begin_step(0)

    def begin_step(self, step: int) -> None:
        """The training step that comes, counted from 0."""
        self.step.fill_(((self._seed & 0x7FFFFFFF) << 32) + step)

    def row_keys(self, ids_BT: Tensor) -> Tensor:
        """[B] int32: what the first masks of these rows are made from; each mask hands on those of the next."""
        return row_keys(ids_BT, self.step)

    def forward(self, x_BTD: Tensor, keys_B: Tensor) -> Tensor:
        """The embeddings, with a share of their numbers zero and the others as much larger."""
        return drop(x_BTD, keys_B, _SALT, self.share)
