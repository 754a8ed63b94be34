"""How likely a model finds a text: `score` in one number, `top_tokens` token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from linnet.data import Batch, windows
from linnet.errors import UsageError
from linnet.infer.generation import prompt_tensor
from linnet.models import LanguageModel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Ranks(Protocol):
    """Processes that score together."""

    rank: int
    count: int

    def gather(self, value: list[float]) -> list[list[float]]:
        """What each of them gives."""


@dataclass(frozen=True)
class Score:
    """The cross entropy of a text: `total` nats over `tokens` predicted tokens."""

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
    """What the model expected after a token: the likeliest ones, and the one that comes (None after the last)."""

    top: tuple[Candidate, ...]
    actual: Candidate | None


def score(
    model: LanguageModel, tokens: Sequence[int] | NDArray[np.integer], *, ctx: int | None = None, batch: int = 8
) -> Score:
    """The loss over a text of any length, in windows of `ctx` tokens (the model's own by default).

    Every token but the first is predicted once, from those before it in its window; only the last window overlaps.
    """
    most, vocab = model.config.ctx, model.config.vocab
    T = most if ctx is None else ctx
    if not 1 <= T <= most:
        raise UsageError(f"ctx is {T}: give a number from 1 to the model's context, {most}")
    ids_N = np.asarray(tokens)
    if ids_N.size < 2:
        raise UsageError(f"the text has {ids_N.size} tokens: to predict one from another it needs two")
    for token in (int(ids_N.min()), int(ids_N.max())):
        if not 0 <= token < vocab:
            raise UsageError(f"the text has the token {token}, and the model's vocabulary goes from 0 to {vocab - 1}")
    return score_batches(model, windows(ids_N, min(T, ids_N.size - 1), batch, device=model.device))


@torch.no_grad()
def score_batches(
    model: LanguageModel,
    batches: Iterable[Batch],
    most: int | None = None,
    on_progress: Callable[[int], None] | None = None,
    ranks: Ranks | None = None,
) -> Score:
    """The loss over batches, until at least `most` tokens are scored; `on_progress(tokens)` after each batch.

    Of several `ranks` each takes some of the batches, and all get the score of the whole, to the bit as one would.
    """
    losses: list[Tensor] = []  # they stay on the device until the end: nothing waits for one of them
    counts: list[int] = []
    rank, count = (0, 1) if ranks is None else (ranks.rank, ranks.count)
    scored = 0
    for batch in batches:
        if len(counts) % count == rank:
            losses.append(model.loss(batch.ids_BT, batch.targets_BT, batch.documents_BT))
        counts.append(batch.n_targets)
        scored += batch.n_targets
        if on_progress is not None:
            on_progress(scored)
        if most is not None and scored >= most:
            break
    means = torch.stack(losses).tolist() if losses else []
    if ranks is not None and count > 1:
        shares = ranks.gather(means)
        means = [shares[number % count][number // count] for number in range(len(counts))]
    return Score(sum(mean * count for mean, count in zip(means, counts, strict=True)), scored)


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
    return [Prediction(*pair) for pair in zip(tops, [*actual, None], strict=True)]
