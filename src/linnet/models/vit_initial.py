"""Where a vision transformer starts from: the seed's table, attention that mimics a trained one, or a donor."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.models.draws import fill_normal
from linnet.models.vit import Block, ViT

_SMALL = 0.02  # spread of patch projection, positions and head
# Trockman and Kolter's values for ViT-Tiny: how much of a product of two matrices is chance, how much identity.
_QK_CHANCE, _QK_SAME, _VO_CHANCE, _VO_SAME = 0.7, 0.7, 0.4, 0.4


def finish_vit(model: ViT, seed: int, init_scale: float, *, mimetic: bool) -> None:
    """What a model starts with beyond the table of its parameters: fixed positions, which are sines and cosines.

    With `mimetic` attention, patch projection and class token start otherwise, and not with the same bits everywhere.
    """
    if model.config.positions == "sincos":
        model.position_embd.weight.data.copy_(sincos(model.config))
    if mimetic:
        spread_inputs(model, seed, init_scale)
        mimic_attention(model, seed)


@torch.no_grad()
def spread_inputs(model: ViT, seed: int, init_scale: float = 1.0) -> None:
    """Draw the patch projection as other matrices, N(0, init_scale² / what it reads); the class token N(0, 0.02²)."""
    patches = model.patch_embd.weight
    fill_normal(patches, init_scale / math.sqrt(patches[0].numel()), seed, "patch_embd.weight")
    if model.class_embd is not None:
        fill_normal(model.class_embd, _SMALL, seed, "class_embd")


def sincos(config: ViTConfig) -> Tensor:
    """[tokens, d_model]: half of the width for the row, half for the column; a class token stands at zero."""
    half = config.d_model // 4
    speed = 1.0 / 10000 ** (np.arange(half, dtype=np.float64) / half)
    row_T, column_T = np.divmod(np.arange(config.grid**2), config.grid)
    angle = [place[:, None] * speed for place in (row_T, column_T)]
    table_TD = np.concatenate([wave(a) for a in angle for wave in (np.sin, np.cos)], axis=1)
    if config.pooling == "cls":
        table_TD = np.concatenate([np.zeros((1, config.d_model)), table_TD])
    return torch.from_numpy(table_TD.astype(np.float32))


@torch.no_grad()
def mimic_attention(model: ViT, seed: int) -> None:
    """Start attention as training leaves it (mimetic initialisation, Trockman and Kolter 2023).

    In trained models the product of a head's Q and K is near a multiple of the identity, that of V and the output
    near a negative one. Both products are drawn so, and split into two matrices of equal size by their singular
    values. Learned positions start as sines and cosines, which such a Q and K can tell apart.
    """
    config = model.config
    d, heads, size = config.d_model, config.n_heads, config.head_size
    same = torch.eye(d, dtype=torch.float64)
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        qkv, out = block.attn_qkv.weight, block.attn_out.weight
        q_HSD, k_HSD = torch.empty(heads, size, d), torch.empty(heads, size, d)
        for head in range(heads):
            product = _QK_CHANCE * _chance(d, seed, f"mimetic.{layer}.qk.{head}") + _QK_SAME * same
            left, right = _halves(product, size)
            q_HSD[head], k_HSD[head] = left.T, right.T
        product = _VO_CHANCE * _chance(d, seed, f"mimetic.{layer}.vo") - _VO_SAME * same
        left, right = _halves(product, d)  # x → left · (rightᵀ x)
        qkv.copy_(torch.cat((q_HSD.flatten(0, 1), k_HSD.flatten(0, 1), right.T.float())))
        out.copy_(left)
    if config.positions == "learned" and d % 4 == 0:
        model.position_embd.weight.copy_(sincos(config))


def _chance(d: int, seed: int, name: str) -> Tensor:
    drawn = torch.empty(d, d)
    fill_normal(drawn, 1 / math.sqrt(d), seed, name)
    return drawn.double()


def _halves(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Two matrices [d, rank] of equal size whose product comes nearest to the one given."""
    u, s, vt = torch.linalg.svd(product)
    root = s[:rank].sqrt()
    return u[:, :rank] * root, vt[:rank].T * root


@torch.no_grad()
def select_weights(model: ViT, donor: ViT) -> None:
    """Take evenly spaced rows and columns of a larger model, and its first layers (weight selection, Xu et al. 2023).

    One choice of the width serves all matrices, so what fitted together in the donor still does. Of attention, whole
    heads are chosen, then the places within a head. Positions are interpolated where the grid differs. The head is
    taken where the classes have the same names, or are as many where there are no names.
    """
    ours, theirs = model.config, donor.config
    _check_donor(ours, theirs)
    wide = _spread(theirs.d_model, ours.d_model)
    inner = _spread(theirs.d_ff, ours.d_ff)
    head = _spread(theirs.n_heads, ours.n_heads)[:, None] * theirs.head_size
    attention = (head + _spread(theirs.head_size, ours.head_size)).flatten()
    threefold = torch.cat([attention + part * theirs.d_model for part in range(3)])
    given = donor.params()
    for name, parameter in model.named_parameters():
        if name not in given or (name.startswith("head.") and not _same_classes(ours, theirs)):
            continue
        tensor = given[name].cpu()
        if name == "position_embd.weight":
            tensor = _resampled(tensor, theirs, ours)[:, wide]
        elif "attn_qkv" in name:
            tensor = tensor[threefold]
        elif "ffn_up" in name:
            tensor = tensor[inner]
        elif not name.startswith("head."):
            tensor = tensor[wide]
        if tensor.ndim == 2 and name != "position_embd.weight":
            tensor = tensor[:, {"attn_out": attention, "ffn_down": inner}.get(name.split(".")[-2], wide)]
        parameter.copy_(tensor)


def _check_donor(ours: ViTConfig, theirs: ViTConfig) -> None:
    for name in ("d_model", "d_ff", "n_layers", "n_heads", "head_size"):
        if getattr(theirs, name) < getattr(ours, name):
            raise UsageError(
                f"`init=select` takes a part of a larger model: the donor's {name} is {getattr(theirs, name)},"
                f" and {getattr(ours, name)} was asked for"
            )
    for name in ("patch_size", "num_channels", "norm", "act"):
        if getattr(theirs, name) != getattr(ours, name):
            raise UsageError(
                f"`init=select`: the donor's {name} is {getattr(theirs, name)}, and {getattr(ours, name)} was asked"
                " for; they must be equal"
            )


def _same_classes(ours: ViTConfig, theirs: ViTConfig) -> bool:
    return ours.num_classes == theirs.num_classes and (not theirs.labels or ours.labels == theirs.labels)


def _spread(many: int, few: int) -> Tensor:
    """`few` places, evenly spaced among `many`, from the first to the last."""
    return torch.linspace(0, many - 1, few, dtype=torch.float64).round().long()


def _resampled(table_TD: Tensor, theirs: ViTConfig, ours: ViTConfig) -> Tensor:
    """A donor's positions on our grid; its class token's goes to ours."""
    first = theirs.pooling == "cls"
    grid_GD = table_TD[int(first) :]
    if theirs.grid != ours.grid:
        square = grid_GD.T.unflatten(1, (theirs.grid, theirs.grid))[None]
        square = F.interpolate(square, size=(ours.grid, ours.grid), mode="bicubic", align_corners=False)
        grid_GD = square[0].flatten(1).T
    if ours.pooling != "cls":
        return grid_GD
    token_1D = table_TD[:1] if first else torch.zeros_like(table_TD[:1])
    return torch.cat((token_1D, grid_GD))
