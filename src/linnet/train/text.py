"""A language model while it trains: its loss on held-out text, and samples of what it writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from linnet.data import TokenSet, windows
from linnet.infer import Score, generate, score_batches
from linnet.models import LanguageModel
from linnet.train.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_AT_ONCE = {"cpu": 4096, "cuda": 32_768}  # tokens that pass through the model together


@dataclass(frozen=True)
class Evaluation:
    """Mean loss in nats a token, perplexity, bits per byte of text (None without text), over how many tokens."""

    loss: float
    ppl: float
    bits_per_byte: float | None
    tokens: int

    @classmethod
    def of(cls, score: Score, bytes_per_token: float | None = None) -> Evaluation:
        """From the sum over the tokens."""
        loss = score.mean
        bits_per_byte = loss / math.log(2) / bytes_per_token if bytes_per_token else None
        return cls(loss, score.perplexity, bits_per_byte, score.tokens)

    @property
    def figures(self) -> dict[str, float]:
        """Each metric by its name."""
        metrics = {"loss": self.loss, "ppl": self.ppl}
        return metrics if self.bits_per_byte is None else metrics | {"bits_per_byte": self.bits_per_byte}


def evaluate(
    model: LanguageModel,
    tokens: TokenSet,
    *,
    ctx: int,
    device: torch.device,
    most: int,
    bytes_per_token: float | None,
    on_progress: Callable[[int, int], None] | None = None,
    ranks: Ranks = ALONE,
) -> Evaluation:
    """Score up to `most` tokens, from the beginning of the set, always the same; `on_progress(done, total)` of them.

    Several `ranks` share the batches out among them.
    """
    most = min(most, len(tokens) - 1)
    rows = rows_at_once(device, ctx, -(-most // ctx))
    on_batch = None if on_progress is None else lambda done: on_progress(done, most)
    score = score_batches(model, windows(tokens, ctx, rows, device=device), most, on_batch, ranks)
    return Evaluation.of(score, bytes_per_token)


def rows_at_once(device: torch.device, ctx: int, rows: int) -> int:
    """How many rows of `ctx` tokens are scored together, of so many."""
    return max(1, min(_AT_ONCE["cuda" if device.type == "cuda" else "cpu"] // ctx, rows))


def write_sample(model: LanguageModel, tokenizer: Tokenizer, prompt: str, tokens: int) -> str:
    """Continue a prompt, always with the same seed, so that samples differ only as the model does."""
    return continue_ids(model, tokenizer, tokenizer.encode(prompt).ids, tokens)


def continue_ids(
    model: LanguageModel, tokenizer: Tokenizer, ids: Sequence[int], tokens: int, stop: Collection[int] = ()
) -> str:
    """The same of a prompt's ids, up to an id of `stop`."""
    written = generate(model, ids, max_tokens=tokens, temperature=0.8, top_k=50, seed=0, stop=stop)
    return str(tokenizer.decode(list(written)))
