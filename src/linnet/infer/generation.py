"""`generate(model, ids, max_tokens)`: the tokens that follow a prompt, one by one as they come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from linnet.errors import UsageError
from linnet.infer.decoder import Decoder
from linnet.infer.sampling import Sampling
from linnet.models.language_model import LanguageModel

_AT_ONCE = 8  # tokens a GPU makes between two readings


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
    if isinstance(prompt, str | bytes):
        raise UsageError(
            "the prompt is text, and a model reads token ids: give tokenizer.encode(text).ids; the tokenizer of a file"
            " is linnet.gguf.rebuild_tokenizer(GGUFFile.open(path).metadata)"
        )
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
    if room < 1:
        return
    slots = min(ids_BT.shape[1] + room, model.config.ctx)
    with torch.inference_mode():
        decoder = Decoder(model, slots)
        logits_V = decoder.read(ids_BT)
    found = (
        _likeliest(decoder, logits_V, room) if sampling.greedy else _drawn(decoder, logits_V, ids_BT, sampling, seed)
    )
    for _, token in zip(range(room), found, strict=False):
        yield token
        if token in stop:
            return


def _likeliest(decoder: Decoder, logits_V: Tensor, room: int) -> Iterator[int]:
    """The device runs ahead of what is read from it, by a few tokens where waiting for it costs."""
    at_once = _AT_ONCE if logits_V.is_cuda else 1
    with torch.inference_mode():
        token = logits_V.argmax()
    first = True
    for start in range(0, room, at_once):
        # Only around the step: between two tokens the caller's own mode counts.
        with torch.inference_mode():
            tokens = []
            for _ in range(min(at_once, room - start)):
                if not first:
                    _, token = decoder.next(token)
                first = False
                tokens.append(token.clone())
            chosen = torch.stack(tokens).tolist()
        yield from chosen


def _drawn(decoder: Decoder, logits_V: Tensor, ids_BT: Tensor, sampling: Sampling, seed: int) -> Iterator[int]:
    dice = torch.Generator().manual_seed(seed)  # on the CPU, so that every device draws the same
    seen_N = ids_BT[0]
    while True:
        with torch.inference_mode():
            chance = torch.rand((), generator=dice, dtype=torch.float64).item()
            token = sampling.choose(logits_V, seen_N, chance)
            seen_N = torch.cat((seen_N, token.view(1)))
        yield int(token)
        with torch.inference_mode():
            logits_V, _ = decoder.next(token)
