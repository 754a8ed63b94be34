"""Attention maps: which tokens each head of a model reads, after each token of a prompt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from linnet.analysis.checkpoint import Model, text_model
from linnet.errors import UsageError
from linnet.infer.generation import prompt_tensor
from linnet.infer.loaded_model import LoadedModel
from linnet.models.observation import Attention, Observer, observe

_DIGITS = 6  # of a probability, as plain values


@dataclass(frozen=True)
class AttentionMaps:
    """How much each token of a prompt attends to each one before it; what a token attends to adds up to 1.

    - `tokens`: those of the prompt. `layers_LHTS`: for each layer [heads, tokens, tokens attended to], float32.
    """

    model: str
    prompt: str
    tokens: tuple[str, ...]
    layers_LHTS: tuple[NDArray[np.float32], ...]

    def mean(self, layer: int | None = None, head: int | None = None) -> NDArray[np.float64]:
        """[T, S]: of a head, of the heads of a layer on average, or (neither is named) of all heads of all layers."""
        if layer is None:
            if head is not None:
                raise UsageError("`head` is one of a `layer`: name that too")
            return np.concatenate(self.layers_LHTS).mean(0, dtype=np.float64)
        _require("layer", layer, len(self.layers_LHTS))
        heads_HTS = self.layers_LHTS[layer]
        if head is None:
            return heads_HTS.mean(0, dtype=np.float64)
        _require("head", head, len(heads_HTS))
        return heads_HTS[head].astype(np.float64)

    def as_fields(self) -> dict[str, Any]:
        """All of it as plain values, probabilities in six digits."""
        layers = [
            {"layer": layer, "heads": np.round(heads_HTS.astype(np.float64), _DIGITS).tolist()}
            for layer, heads_HTS in enumerate(self.layers_LHTS)
        ]
        return {"model": self.model, "prompt": self.prompt, "tokens": list(self.tokens), "layers": layers}


def attention(
    model: Model | LoadedModel,
    prompt: str,
    *,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
) -> AttentionMaps:
    """Which tokens of a prompt each head of a language model attends to.

    maps = linnet.analysis.attention("smollm2.gguf", "The cat sat on the mat")
    maps.layers_LHTS[4][2]                     # [T, S]: head 2 of layer 4, a row a token; maps.mean(4): of its heads

    - `model`: a MODEL, or one that is loaded.
    """
    loaded, name = text_model(model, "attention is shown between the tokens of a text", device, runs)
    ids = loaded.encode(prompt)
    if not ids:
        raise UsageError("the prompt is empty: give some text (`prompt`)")
    module: Any = loaded.module
    ids_1T = prompt_tensor(module, ids)
    maps = _Maps()
    with torch.no_grad(), observe(module, maps):
        module.hidden(ids_1T)
    tokens = tuple(str(loaded.tokenizer.decode([token], skip_special_tokens=False)) for token in ids)
    return AttentionMaps(name, prompt, tokens, tuple(maps.by_layer[layer] for layer in sorted(maps.by_layer)))


class _Maps(Observer):
    """Keeps the probabilities of each layer, on the host."""

    def __init__(self) -> None:
        self.by_layer: dict[int, NDArray[np.float32]] = {}

    def attention(self, layer: int, attention: Attention) -> None:
        self.by_layer[layer] = attention.probabilities()[0].cpu().numpy()


def _require(name: str, at: int, count: int) -> None:
    if not 0 <= at < count:
        raise UsageError(f"`{name}` {at}: there are {count}, from 0 to {count - 1}")
