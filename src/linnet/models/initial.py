"""A new model: `build(config, seed)`; where its weights start from."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

import torch

from linnet.architectures.description import Config
from linnet.architectures.parameters import layout
from linnet.architectures.registry import AnyConfig, describe
from linnet.architectures.rotary import rope_scaling_of
from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.models.draws import fill_normal
from linnet.models.language_model import LanguageModel

if TYPE_CHECKING:
    from linnet.models.vit import ViT

EMBEDDING_STD = 0.02
_ROPE_SCALINGS = ("linear", "llama3")  # that `rotary.py` computes


@overload
def build(
    config: Config, seed: int = 0, init_scale: float = 1.0, device: str | torch.device = "cpu"
) -> LanguageModel: ...
@overload
def build(
    config: ViTConfig,
    seed: int = 0,
    init_scale: float = 1.0,
    device: str | torch.device = "cpu",
    *,
    mimetic: bool = False,
) -> ViT: ...
def build(
    config: AnyConfig,
    seed: int = 0,
    init_scale: float = 1.0,
    device: str | torch.device = "cpu",
    *,
    mimetic: bool = False,
) -> LanguageModel | ViT:
    """Make a model with new weights: the same bits for the same seed, whatever the device.

    `mimetic`, of a vision transformer: attention starts as training leaves it (`vit_initial.mimic_attention`).
    """
    model = allocate(config, device)
    initialise(model, seed, init_scale)
    if isinstance(model, LanguageModel):
        if mimetic:
            raise UsageError(f"mimetic is for a vit, found a {config.arch}")
        model.reserve(model.config.ctx)
        return model
    from linnet.models.vit_initial import finish_vit

    finish_vit(model, seed, init_scale, mimetic=mimetic)
    return model


@overload
def allocate(config: Config, device: str | torch.device = "cpu") -> LanguageModel: ...
@overload
def allocate(config: ViTConfig, device: str | torch.device = "cpu") -> ViT: ...
def allocate(config: AnyConfig, device: str | torch.device = "cpu") -> LanguageModel | ViT:
    """A model whose weights have no value yet."""
    described, scaling = describe(config), rope_scaling_of(config)
    if scaling is not None and scaling.kind not in _ROPE_SCALINGS:
        raise UsageError(f"rope_scaling {scaling.kind!r} is not supported: use linear, llama3 or none")
    kind: Any = getattr(import_module(f"linnet.models.{described.name}"), described.model)
    model: LanguageModel | ViT = kind(config, device)
    return model


@torch.no_grad()
def initialise(model: LanguageModel | ViT, seed: int = 0, init_scale: float = 1.0) -> None:
    """Give every parameter its first value, by the table of its architecture, which is Toy's.

    Embeddings, positions and head: N(0, 0.02²). Matrices that read the residual stream, and the attention's
    output: N(0, init_scale² / d_model). The second matrix of the feed-forward: N(0, init_scale² / d_ff). Norms
    one, biases zero. A value depends on the seed, the parameter's name and its place in it, and on nothing else.
    """
    params = layout(model.config).params
    for name, parameter in model.named_parameters():
        start = params[name].start
        std = start.spread(init_scale)
        if std is not None:
            fill_normal(parameter, std, seed, name)
        else:
            parameter.fill_(start.value)
