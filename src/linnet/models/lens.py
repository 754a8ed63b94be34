"""`Lens`: a donor's embedding rows seen at another width. Shapes: V vocabulary, W the donor's width, D the model's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linnet.errors import UsageError
from linnet.models.initial import EMBEDDING_STD, fill_normal
from linnet.models.layers import Device, Embedding, Linear
from linnet.models.transformer import LanguageModel

SEEN_STD = 3.0  # of each dimension of the rows seen through a fitted lens
_ROWS = 8192  # projected at a time


class Lens(nn.Module):
    """Projects looked-up rows of width W onto D. Its one matrix is `lens.proj.weight` [D, W], as in Toy's files."""

    def __init__(self, width: int, d_model: int, device: Device | None = None) -> None:
        super().__init__()
        self.proj = Linear(width, d_model, device=device)

    def forward(self, rows_BTW: Tensor) -> Tensor:
        """[B, T, W] → [B, T, D]."""
        out_BTD: Tensor = self.proj(rows_BTW)
        return out_BTD


@torch.no_grad()
def put_lens(model: LanguageModel, width: int, *, seed: int, train_table: bool = False) -> Lens:
    """Give a model an embedding of the donor's width behind a lens; both have random values until some are uploaded.

    The table is not trained unless `train_table` says so; the output head must be the model's own.
    """
    config, device = model.config, model.device
    if model.output is None:
        raise UsageError(
            f"a lens needs an output head of its own: the embedding is {width} wide and the head {config.d_model};"
            " make the config with tied=False"
        )
    model.token_embd = Embedding(config.vocab, width, device)
    lens = Lens(width, config.d_model, device)
    fill_normal(model.token_embd.weight, EMBEDDING_STD, seed, "token_embd.weight")
    fill_normal(lens.proj.weight, width**-0.5, seed, "lens.proj.weight")
    model.token_embd.weight.requires_grad_(train_table)
    model.lens = lens
    return lens


@torch.no_grad()
def fit_lens(model: LanguageModel) -> None:
    """Centre the table, give each dimension that is seen through the lens the same spread, and let the head begin so.

    What all of a donor's rows share can be two thirds of their length. The spread is a large one: beside the outputs of
    the layers, rows of the size of a fresh embedding (0.02) are lost, and learn worse than none (docs/log.md).
    """
    lens, table_VW = model.lens, model.token_embd.weight
    assert lens is not None and model.output is not None
    table_VW.sub_(table_VW.mean(0))
    seen_VD = model.output.weight
    for start in range(0, len(table_VW), _ROWS):
        seen_VD[start : start + _ROWS] = lens(table_VW[start : start + _ROWS])
    spread_D = seen_VD.square().mean(0).sqrt()
    # A direction in which the donor's rows do not differ has nothing to be scaled up.
    scale_D = torch.where(spread_D > 1e-6 * spread_D.max(), SEEN_STD / spread_D.clamp(min=1e-30), 1.0)
    lens.proj.weight.mul_(scale_D[:, None])
    seen_VD.mul_(scale_D * (EMBEDDING_STD / SEEN_STD))
