"""How well the model does on text it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from linnet.data import TokenSet, windows

_AT_ONCE = {"cpu": 4096, "cuda": 32_768}  # tokens that pass through the model together


@dataclass(frozen=True)
class Evaluation:
    """Mean loss in nats a token, perplexity, bits per byte of text (None without text), over how many tokens."""

    loss: float
    ppl: float
    bits_per_byte: float | None
    tokens: int

    @property
    def figures(self) -> dict[str, float]:
        """Each figure by its name."""
        found = {"loss": self.loss, "ppl": self.ppl}
        return found if self.bits_per_byte is None else found | {"bits_per_byte": self.bits_per_byte}


@torch.no_grad()
def evaluate(
    model: nn.Module,
    tokens: TokenSet,
    *,
    ctx: int,
    device: torch.device,
    most: int,
    bytes_per_token: float | None,
    told: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score up to `most` tokens, from the beginning of the set, always the same ones; `told(done, total)` of them."""
    loss_of: Any = model.loss
    losses: list[Tensor] = []  # they stay on the device until the end: nothing waits for one of them
    counts: list[int] = []
    at_once = _AT_ONCE["cuda" if device.type == "cuda" else "cpu"]
    rows = max(1, min(at_once // ctx, -(-min(most, len(tokens) - 1) // ctx)))
    for part in windows(tokens, ctx, rows, device=device):
        losses.append(loss_of(part.ids_BT, part.targets_BT))
        counts.append(part.n_targets)
        count = sum(counts)
        if told is not None:
            told(count, min(most, len(tokens) - 1))
        if count >= most:
            break
    count = sum(counts)
    total = sum(loss * n for loss, n in zip(torch.stack(losses).tolist(), counts, strict=True))
    loss = total / count if count else math.nan
    ppl = math.exp(loss) if loss < 700 else math.inf
    return Evaluation(loss, ppl, loss / math.log(2) / bytes_per_token if bytes_per_token else None, count)
