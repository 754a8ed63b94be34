"""A few words by the model, to see with one's own eyes what it has learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.infer import generate
from linnet.models import LanguageModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def write_sample(model: LanguageModel, tokenizer: Tokenizer, prompt: str, tokens: int) -> str:
    """Continue a prompt, always with the same seed, so that samples differ only as the model does."""
    ids = tokenizer.encode(prompt).ids
    return str(tokenizer.decode(list(generate(model, ids, max_tokens=tokens, temperature=0.8, top_k=50, seed=0))))
