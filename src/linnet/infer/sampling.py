"""How the next token is chosen from the logits: greedily, or by chance within bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """The bounds are applied in llama.cpp's order: repetition penalty, top-k, top-p, min-p, temperature."""

    temperature: float = 0.0  # 0: always the likeliest
    top_k: int = 0  # only so many of the likeliest; 0: all
    top_p: float = 1.0  # only the likeliest that together have this probability; 1: all
    min_p: float = 0.0  # only those at least so likely, measured by the likeliest; 0: all
    repetition_penalty: float = 1.0  # above 1: tokens that were there before become less likely

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, math.inf),
            ("top_k", 0, math.inf),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high or value == math.inf:
                upto = f" to {high:g}" if high < math.inf else " on"
                raise UsageError(f"{name} is {value}: give a number from {low:g}{upto}")
        if not 0 < self.repetition_penalty < math.inf:
            raise UsageError(f"repetition_penalty is {self.repetition_penalty}: give a number above 0 (1: none)")

    @property
    def greedy(self) -> bool:
        """Is it always the likeliest token, by the logits as they are?"""
        return self.temperature == 0 and self.repetition_penalty == 1.0

    def choose(self, logits_V: Tensor, seen_N: Tensor, chance: float) -> Tensor:
        """The next token's id, a tensor of one number. `seen_N`: ids so far; `chance`: a draw from [0, 1)."""
        if self.repetition_penalty != 1.0:
            held = logits_V[seen_N]
            held = torch.where(held > 0, held / self.repetition_penalty, held * self.repetition_penalty)
            logits_V = logits_V.index_put((seen_N,), held)
        if self.temperature == 0:
            return logits_V.argmax()
        logits_V, order_V = logits_V.sort(descending=True, stable=True)
        if 0 < self.top_k < len(logits_V):
            logits_V, order_V = logits_V[: self.top_k], order_V[: self.top_k]
        p_V = logits_V.softmax(0)
        kept_V = (p_V.cumsum(0) - p_V < self.top_p) & (p_V >= self.min_p * p_V[0])
        kept_V[0] = True
        p_V = (logits_V / self.temperature).softmax(0).masked_fill(~kept_V, 0.0)
        up_to_V = p_V.cumsum(0)
        place = torch.searchsorted(up_to_V, up_to_V[-1:] * chance, right=True)
        # Rounding may put the draw at the very end: the last kept token is meant.
        return order_V[place.clamp(max=kept_V.sum() - 1)][0]
