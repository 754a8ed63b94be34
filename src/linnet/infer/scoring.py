"""How likely a model finds a text: `score` in one number, `top_tokens` place by place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from linnet.errors import UsageError
from linnet.infer.generation import prompt_tensor
from linnet.models.language_model import LanguageModel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Score:
    """The loss over a text: `total` nats over `tokens` predicted tokens."""

    total: float
    tokens: int

    @property
    def mean(self) -> float:
        """Nats a token."""
        return self.total / self.tokens

    @property
    def perplexity(self) -> float:
        """e to the mean; infinite where that is beyond a float."""
        return math.exp(self.mean) if self.mean < 700 else math.inf

    def bits_per_byte(self, n_bytes: int) -> float:
        """The total in bits, over the bytes of the text the predicted tokens stand for."""
        return self.total / math.log(2) / n_bytes


@dataclass(frozen=True)
class Candidate:
    """A token and its log-probability (natural)."""

    token: int
    logprob: float


@dataclass(frozen=True)
class Prediction:
    """What the model expected at one place: the likeliest tokens, and the one that is there (None after the last)."""

    top: tuple[Candidate, ...]
    actual: Candidate | None


def score(
    model: LanguageModel, tokens: Sequence[int] | NDArray[np.integer], *, ctx: int | None = None, batch: int = 8
) -> Score:
    """The loss over a text of any length, in windows of `ctx` tokens (the model's own by default).

    Windows do not overlap and every token but the first is predicted once, from those before it in its window.
    """
    T = model.config.ctx if ctx is None else ctx
    if not 1 <= T <= model.config.ctx:
        raise UsageError(f"ctx is {T}: give a number from 1 to the model's context, {model.config.ctx}")
    ids_N = np.asarray(tokens).astype(np.int64)
    if ids_N.size < 2:
        raise UsageError(f"the text has {ids_N.size} tokens: to predict one from another it needs two")
    low, high = int(ids_N.min()), int(ids_N.max())
    if low < 0 or high >= model.config.vocab:
        wrong = low if low < 0 else high
        vocab = model.config.vocab
        raise UsageError(f"the text has the token {wrong}, and the model's vocabulary goes from 0 to {vocab - 1}")
    T = min(T, ids_N.size - 1)  # a window beyond the text would be filled with targets to ignore
    one = torch.ones((), device=model.device)
    total = 0.0
    with torch.inference_mode():
        for ids_BT, targets_BT in _batches(ids_N, T, batch):
            total += float(model.loss(ids_BT.to(model.device), targets_BT.to(model.device), divisor=one))
    return Score(total, ids_N.size - 1)


def _batches(ids_N: NDArray[np.int64], T: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows as [B, T] and their targets, the last one filled up with targets to ignore."""
    count = ids_N.size - 1
    rows = -(-count // T)
    inputs, targets = np.zeros(rows * T, np.int64), np.full(rows * T, -1, np.int64)
    inputs[:count], targets[:count] = ids_N[:-1], ids_N[1:]
    for start in range(0, rows, batch):
        part = slice(start * T, (start + batch) * T)
        yield torch.from_numpy(inputs[part].reshape(-1, T)), torch.from_numpy(targets[part].reshape(-1, T))


def top_tokens(model: LanguageModel, prompt: Sequence[int], k: int = 10) -> list[Prediction]:
    """For each token of a prompt, what the model expects after it: the `k` likeliest, and what does come."""
    ids_BT = prompt_tensor(model, prompt)
    if not 1 <= k <= model.config.vocab:
        raise UsageError(f"k is {k}: give a number from 1 to the vocabulary, {model.config.vocab}")
    with torch.inference_mode():
        logp_TV = model(ids_BT)[0].log_softmax(-1)
        values_TK, tokens_TK = logp_TV.topk(k, -1)
        actual_T = logp_TV[:-1].gather(1, ids_BT[0, 1:, None])[:, 0].tolist()
    tops = [
        tuple(Candidate(token, logprob) for token, logprob in zip(*pair, strict=True))
        for pair in zip(tokens_TK.tolist(), values_TK.tolist(), strict=True)
    ]
    actual = [Candidate(int(token), logprob) for token, logprob in zip(prompt[1:], actual_T, strict=True)]
    return [Prediction(top, there) for top, there in zip(tops, [*actual, None], strict=True)]
