"""A new model: `build(config, seed)`; where its weights start from."""

from __future__ import annotations

import math

import torch

from linnet.models.config import Config, LlamaConfig
from linnet.models.draws import fill_normal
from linnet.models.language_model import LanguageModel

EMBEDDING_STD = 0.02


def build(config: Config, seed: int = 0, init_scale: float = 1.0, device: str | torch.device = "cpu") -> LanguageModel:
    """Make a model with new weights: the same bits for the same seed, whatever the device."""
    model = allocate(config, device)
    model.reserve(config.ctx)
    initialise(model, seed, init_scale)
    return model


def allocate(config: Config, device: str | torch.device = "cpu") -> LanguageModel:
    """A model whose weights have no value yet."""
    from linnet.models.gpt2 import GPT2
    from linnet.models.llama import Llama

    return Llama(config, device) if isinstance(config, LlamaConfig) else GPT2(config, device)


@torch.no_grad()
def initialise(model: LanguageModel, seed: int = 0, init_scale: float = 1.0) -> None:
    """Give every parameter its first value, by Toy's table; for GPT-2 too.

    Embeddings, positions and head: N(0, 0.02²). Matrices that read the residual stream, and the attention's
    output: N(0, init_scale² / d_model). The second matrix of the feed-forward: N(0, init_scale² / d_ff). Norms
    one, biases zero. A value depends on the seed, the parameter's name and its place in it, and on nothing else.
    """
    for name, parameter in model.named_parameters():
        std = initial_std(name, model.config, init_scale)
        if std is not None:
            fill_normal(parameter, std, seed, name)
        elif name.endswith("norm.weight"):
            parameter.fill_(1.0)
        else:
            parameter.zero_()


def initial_std(name: str, config: Config, init_scale: float = 1.0) -> float | None:
    """The spread a parameter starts with; None for norms and biases, which start at one and zero."""
    if name.endswith(("norm.weight", ".bias")):
        return None
    if name in ("token_embd.weight", "position_embd.weight", "output.weight"):
        return EMBEDDING_STD
    return init_scale / math.sqrt(config.d_ff if "ffn_down" in name else config.d_model)
