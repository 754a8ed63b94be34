"""`generate(model, ids, max_tokens)`: the tokens that follow a prompt, one by one as they come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from linnet.errors import UsageError
from linnet.infer.sampling import Sampling
from linnet.models.cache import KVCache
from linnet.models.language_model import LanguageModel


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    stop: Collection[int] = (),
) -> Iterator[int]:
    """Yield up to `max_tokens` ids; ends after an id of `stop` (which is yielded), or where the context is full.

    The same seed gives the same tokens. Wrong arguments are refused at the call, not at the first token.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    ids_BT = prompt_tensor(model, prompt)
    if max_tokens < 0:
        raise UsageError(f"max_tokens is {max_tokens}: give a number from 0")
    room = min(max_tokens, model.config.ctx - len(prompt) + 1)
    return _tokens(model, ids_BT, room, sampling, seed, frozenset(stop))


def prompt_tensor(model: LanguageModel, prompt: Sequence[int]) -> Tensor:
    """A prompt as [1, T] on the model's device; refused when it is empty, too long, or has ids of another model."""
    ctx, vocab = model.config.ctx, model.config.vocab
    if not len(prompt):
        raise UsageError("the prompt is empty: give at least one token")
    if len(prompt) > ctx:
        raise UsageError(f"the prompt has {len(prompt)} tokens and the model's context {ctx}: shorten the prompt")
    for token in prompt:
        if not 0 <= token < vocab:
            raise UsageError(f"the prompt has the token {token}, and the model's vocabulary goes from 0 to {vocab - 1}")
    return torch.tensor([list(prompt)], device=model.device)


def _tokens(
    model: LanguageModel, ids_BT: Tensor, room: int, sampling: Sampling, seed: int, stop: frozenset[int]
) -> Iterator[int]:
    dice = torch.Generator().manual_seed(seed)  # on the CPU, so that every device draws the same
    slots = min(ids_BT.shape[1] + room, model.config.ctx)
    with torch.inference_mode():
        cache = KVCache(model.config, slots, device=model.device, dtype=model.compute_dtype)
    seen_N, next_BT = ids_BT[0], ids_BT
    for _ in range(room):
        # Only around the step: between two tokens the caller's own mode counts.
        with torch.inference_mode():
            logits_V = model.logits(model.hidden(next_BT, cache=cache)[:, -1:])[0, 0]
            chance = torch.rand((), generator=dice, dtype=torch.float64).item()
            token = sampling.choose(logits_V, seen_N, chance)
            next_BT, seen_N = token.view(1, 1), torch.cat((seen_N, token.view(1)))
        yield (chosen := int(token))
        if chosen in stop:
            return
