"""Where a vision transformer starts from: Toy's table, mimetic attention, or the weights of a larger donor."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.architectures.vit import ViTConfig
from linnet.errors import UsageError
from linnet.models.initial import EMBEDDING_STD, fill_normal
from linnet.models.vit import Block, ViT

# Trockman and Kolter's values for ViT-Tiny: how much of a product of two matrices is random, how much identity.
_QK_RANDOM, _QK_IDENTITY, _VO_RANDOM, _VO_IDENTITY = 0.7, 0.7, 0.4, 0.4


@torch.no_grad()
def finish_vit(model: ViT, seed: int, init_scale: float, *, mimetic: bool) -> None:
    """What a model starts with beyond the table of its parameters: fixed positions, which are sines and cosines.

    `mimetic`: attention as `mimic_attention` has it, the patch projection as other matrices, N(0, init_scale² / what it
    reads), the class token N(0, 0.02²). These are not the same bits everywhere.
    """
    if model.config.positions == "sincos":
        model.position_embd.weight.copy_(sincos(model.config))
    if not mimetic:
        return
    patches = model.patch_embd.weight
    fill_normal(patches, init_scale / math.sqrt(patches[0].numel()), seed, "patch_embd.weight")
    if model.class_embd is not None:
        fill_normal(model.class_embd, EMBEDDING_STD, seed, "class_embd")
    mimic_attention(model, seed)


def sincos(config: ViTConfig) -> Tensor:
    """[tokens, d_model]: half of the width for the row, half for the column; a class token has zeros."""
    half = config.d_model // 4
    frequencies = 1.0 / 10000 ** (np.arange(half, dtype=np.float64) / half)
    angles = [index_T[:, None] * frequencies for index_T in np.divmod(np.arange(config.grid**2), config.grid)]
    table_TD = np.concatenate([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1)
    if config.pooling == "cls":
        table_TD = np.concatenate([np.zeros((1, config.d_model)), table_TD])
    return torch.from_numpy(table_TD.astype(np.float32))


def mimic_attention(model: ViT, seed: int) -> None:
    """Start attention as training leaves it (mimetic initialisation, Trockman and Kolter 2023).

    In trained models the product of a head's Q and K is near a multiple of the identity, that of V and the output
    near a negative one. Both products are drawn so, and split into two matrices of equal size by their singular
    values. Learned positions start as sines and cosines, which such a Q and K can tell apart.
    """
    config = model.config
    d, heads, size = config.d_model, config.n_heads, config.head_size
    identity = torch.eye(d, dtype=torch.float64)
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        qkv, out = block.attn_qkv.weight, block.attn_out.weight
        q_HSD, k_HSD = torch.empty(heads, size, d), torch.empty(heads, size, d)
        for head in range(heads):
            product = _QK_RANDOM * _random(d, seed, f"mimetic.{layer}.qk.{head}") + _QK_IDENTITY * identity
            left, right = _factors(product, size)
            q_HSD[head], k_HSD[head] = left.T, right.T
        product = _VO_RANDOM * _random(d, seed, f"mimetic.{layer}.vo") - _VO_IDENTITY * identity
        left, right = _factors(product, d)  # x → left · (rightᵀ x)
        qkv.copy_(torch.cat((q_HSD.flatten(0, 1), k_HSD.flatten(0, 1), right.T.float())))
        out.copy_(left)
    if config.positions == "learned" and d % 4 == 0:
        model.position_embd.weight.copy_(sincos(config))


def _random(d: int, seed: int, name: str) -> Tensor:
    values = torch.empty(d, d)
    fill_normal(values, 1 / math.sqrt(d), seed, name)
    return values.double()


def _factors(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
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
    rows = {"attn_qkv": torch.cat([attention + part * theirs.d_model for part in range(3)]), "ffn_up": inner}
    columns = {"attn_out": attention, "ffn_down": inner}
    donor_params = donor.params()
    for name, parameter in model.named_parameters():
        module = name.rpartition(".")[0].rpartition(".")[2]
        if name not in donor_params or (module == "head" and not _same_classes(ours, theirs)):
            continue
        tensor = donor_params[name].cpu()
        if module == "position_embd":
            tensor = _resampled(tensor, theirs, ours)[:, wide]
        else:
            tensor = tensor if module == "head" else tensor[rows.get(module, wide)]
            tensor = tensor[:, columns.get(module, wide)] if tensor.ndim == 2 else tensor
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
    """`few` indices, evenly spaced among `many`, from the first to the last."""
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
