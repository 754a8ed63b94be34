"""Units that change places leave a model what it is, and weight matching finds where they went."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.analysis import align
from linnet.analysis.symmetry import Symmetries
from linnet.architectures import AnyConfig, ViTConfig
from linnet.architectures.gpt2 import GPT2Config
from linnet.architectures.llama import LlamaConfig
from linnet.architectures.qwen2 import Qwen2Config
from linnet.architectures.qwen3 import Qwen3Config
from linnet.models import build

TEXT = {"vocab": 48, "d_model": 24, "n_heads": 6, "d_ff": 40, "n_layers": 2, "ctx": 16}
IMAGES = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_classes": 5}
IMAGES |= {"d_model": 24, "n_heads": 3, "d_ff": 40, "n_layers": 2}
CONFIGS: dict[str, AnyConfig] = {
    "llama": LlamaConfig(n_kv=2, **TEXT),
    "llama with biases and a head": LlamaConfig(
        n_kv=3, tied=False, qkv_bias=True, output_bias=True, ffn_bias=True, **TEXT
    ),
    "qwen2": Qwen2Config(n_kv=2, **TEXT),
    "qwen3": Qwen3Config(n_kv=2, **TEXT),
    "gpt2": GPT2Config(**TEXT),
    "vit": ViTConfig(**IMAGES),
    "vit with a class token, as Toy has it": ViTConfig(pooling="cls", norm="rms", act="silu", bias=False, **IMAGES),
}


def built(config: AnyConfig) -> torch.nn.Module:
    """A model none of whose parameters is what it begins as: biases and norms count too."""
    model = build(config)
    draws = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
    return model


def said(model: torch.nn.Module, config: AnyConfig) -> Tensor:
    draws = torch.Generator().manual_seed(3)
    if isinstance(config, ViTConfig):
        return model(255 * torch.rand(2, 1, 8, 8, generator=draws)).detach()
    return model(torch.randint(0, 48, (2, 12), generator=draws)).detach()


def shuffled(config: AnyConfig, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters with all units in other places: channels, hidden units, groups of heads, heads in their group."""
    draws = torch.Generator().manual_seed(5)
    symmetries, moved = Symmetries.of(config, parameters), dict(parameters)
    symmetries.residual.permute(moved, torch.randperm(symmetries.residual.count, generator=draws))
    for units in symmetries.hidden:
        units.permute(moved, torch.randperm(units.count, generator=draws))
    for heads in symmetries.heads:
        each = heads.queries.count // heads.groups.count
        groups = torch.randperm(heads.groups.count, generator=draws)
        order = [int(group) * each + torch.randperm(each, generator=draws) for group in groups]
        heads.permute(moved, groups, torch.cat(order))
    return moved


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_whose_units_change_places_computes_the_same(name: str) -> None:
    config = CONFIGS[name]
    model = built(config)
    before, parameters = said(model, config), dict(model.named_parameters())
    moved = shuffled(config, {key: value.detach().clone() for key, value in parameters.items()})
    assert all((moved[key] != value).any() for key, value in parameters.items() if value.ndim > 1), "nothing stays"
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(moved[key])
    assert (said(model, config) - before).abs().max() < 1e-5 * before.abs().max()


@pytest.mark.parametrize("name", CONFIGS)
def test_alignment_puts_every_unit_back(name: str) -> None:
    config = CONFIGS[name]
    parameters = {key: value.detach() for key, value in built(config).named_parameters()}
    aligned = align(config, parameters, shuffled(config, parameters))
    for key, value in parameters.items():
        assert torch.equal(aligned.parameters[key], value), key
    assert aligned.before < 0.6
    assert aligned.after == pytest.approx(1)
    assert min(aligned.moved.values()) > 0


def test_every_axis_of_the_stream_is_permuted_and_no_other() -> None:
    """By the table of the architecture: what reads, writes or scales the residual stream."""
    config = CONFIGS["llama with biases and a head"]
    residual = Symmetries.of(config, dict(built(config).named_parameters())).residual
    of_block = {
        (place.parameter.removeprefix("blocks.1."), place.axis)
        for place in residual.places
        if place.parameter.startswith("blocks.1.")
    }
    reads = {("attn_qkv.weight", 1), ("ffn_gate_up.weight", 1)}
    writes = {("attn_output.weight", 0), ("attn_output.bias", 0), ("ffn_down.weight", 0), ("ffn_down.bias", 0)}
    assert of_block == reads | writes | {("attn_norm.weight", 0), ("ffn_norm.weight", 0)}
    outside = {(place.parameter, place.axis) for place in residual.places if "blocks" not in place.parameter}
    assert outside == {("token_embd.weight", 1), ("output_norm.weight", 0), ("output.weight", 1)}
