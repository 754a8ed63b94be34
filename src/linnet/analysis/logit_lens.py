"""The logit lens: what a model would say after each of its layers, if the head read the residual stream there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from linnet.analysis.checkpoint import Model, text_model
from linnet.errors import UsageError
from linnet.infer.generation import prompt_tensor
from linnet.infer.loaded_model import LoadedModel
from linnet.models.observation import activations

_REGIONS = ("embd", "resid_post_block")


@dataclass(frozen=True)
class Word:
    """The likeliest token at a place, its probability, and the rank there of the token that does come (from 1).

    `rank`: None at the end of the prompt.
    """

    token: int
    text: str
    probability: float
    rank: int | None


@dataclass(frozen=True)
class LensWords:
    """What each layer of a model would say after each token of a prompt.

    - `tokens`: those of the prompt. `layers`: `embd`, before the first layer, and the layers' numbers.
    - `words_LTK`: the likeliest tokens after each layer, at each place; the last layer's are what the model says.
    """

    model: str
    prompt: str
    tokens: tuple[str, ...]
    layers: tuple[str, ...]
    words_LTK: tuple[tuple[tuple[Word, ...], ...], ...]

    @property
    def words_LT(self) -> tuple[tuple[Word, ...], ...]:  # noqa: N802 (the shape is part of the name)
        """The likeliest of each."""
        return tuple(tuple(top[0] for top in layer) for layer in self.words_LTK)

    def as_fields(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def lens_words(
    model: Model | LoadedModel,
    prompt: str,
    *,
    top: int = 1,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
) -> LensWords:
    """What each layer of a model would say after each token of a prompt (the logit lens, nostalgebraist 2020).

    words = linnet.analysis.lens_words("smollm2.gguf", "The capital of France is")
    words.words_LT[-1][-1].text                # what the model says; `words_LT[4][-1]`: what layer 3 would

    - `model`: a MODEL, or one that is loaded. `top`: how many tokens are kept at each place.
    """
    loaded, name = text_model(model, "what layers say is for models of text", device, runs)
    module: Any = loaded.module
    if not 1 <= top <= module.config.vocab:
        raise UsageError(f"`top` is from 1 to the vocabulary, {module.config.vocab:,}, found {top}")
    ids = loaded.encode(prompt)
    if not ids:
        raise UsageError("the prompt is empty: give some text (`prompt`)")
    ids_1T = prompt_tensor(module, ids)
    kept = activations(module, ids_1T, regions=_REGIONS)
    texts: dict[int, str] = {}

    def text(token: int) -> str:
        if token not in texts:
            texts[token] = str(loaded.tokenizer.decode([token], skip_special_tokens=False))
        return texts[token]

    order = sorted(kept, key=lambda region: -1 if region.layer is None else region.layer)
    words_LTK = tuple(_words(module, kept[region][0], ids, top, text) for region in order)
    layers = tuple("embd" if region.layer is None else str(region.layer) for region in order)
    return LensWords(name, prompt, tuple(map(text, ids)), layers, words_LTK)


@torch.no_grad()
def _words(
    module: Any, x_TD: torch.Tensor, ids: list[int], top: int, text: Callable[[int], str]
) -> tuple[tuple[Word, ...], ...]:
    """[T, K]: the likeliest tokens where the output head reads these values."""
    logits_TV = module.logits(module.output_norm(x_TD))
    log_p_TV = logits_TV.log_softmax(-1)
    values_TK, tokens_TK = log_p_TV.exp().topk(top, -1)
    next_T = log_p_TV[:-1].gather(1, torch.tensor(ids[1:], device=x_TD.device)[:, None])
    ranks = [*((log_p_TV[:-1] > next_T).sum(-1) + 1).tolist(), None]
    return tuple(
        tuple(Word(token, text(token), value, rank) for token, value in zip(tokens, values, strict=True))
        for tokens, values, rank in zip(tokens_TK.tolist(), values_TK.tolist(), ranks, strict=True)
    )
