"""Dropout whose masks are a hash and no draws: the same whenever, wherever and in whatever parts they are made.

A mask depends on the step, the tokens of the row, the layer and the place. So a step that is captured, halved, shared
out among ranks, computed twice or resumed drops the same numbers, and there is no generator whose state must be kept.
Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_GOLDEN = -1640531527  # 2³² / φ as a signed number
_FIRST, _SECOND = 2146121005, -2073254261  # multipliers of "lowbias32", a mixer of 32 bits
_STEP = -7046029254386353131  # 2⁶⁴ / φ


def row_keys(ids_BT: Tensor, step: Tensor) -> Tensor:
    """[B] int32: a number for each row of tokens at a step; rows of the same tokens have the same one."""
    places_T = torch.arange(1, ids_BT.shape[1] + 1, device=ids_BT.device)
    mixed_BT = (ids_BT + 1) * (places_T * _STEP) + (ids_BT << 17)
    keys_B = mixed_BT.bitwise_xor(_shifted(mixed_BT, 29)).sum(1) + step * _STEP
    keys_B = keys_B.bitwise_xor(_shifted(keys_B, 32))
    return _mixed((keys_B & 0x7FFFFFFF).int())


def next_keys(keys_B: Tensor) -> Tensor:
    """[B] int32: the keys of these rows at the next place in a model.

    Where each place makes those of the next, the layers of a model differ in no constant: compiled, one serves all.
    """
    return keys_B + _GOLDEN


def drop(x_BTD: Tensor, keys_B: Tensor, salt: int, share: float) -> Tensor:
    """x with a `share` of its numbers zero and the others as much larger.

    `salt`: below 2³¹, another one for each layer's input.
    """
    dropped: Tensor = _Drop.apply(x_BTD, keys_B, salt, share)
    return dropped


class _Drop(torch.autograd.Function):
    """The mask is made again backwards, rather than kept."""

    @staticmethod
    def forward(ctx: Any, x_BTD: Tensor, keys_B: Tensor, salt: int, share: float) -> Tensor:
        ctx.save_for_backward(keys_B)
        ctx.salt, ctx.share = salt, share
        return _masked(x_BTD, keys_B, salt, share)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (keys_B,) = ctx.saved_tensors
        return _masked(gradients[0], keys_B, ctx.salt, ctx.share), None, None, None


def _masked(x_BTD: Tensor, keys_B: Tensor, salt: int, share: float) -> Tensor:
    _, T, D = x_BTD.shape
    places_TD = torch.arange(T * D, device=x_BTD.device, dtype=torch.int32).view(T, D) * _GOLDEN
    # A whole number from −2³¹ on: dropped are the lowest ones.
    hashed_BTD = _mixed(places_TD.bitwise_xor(_mixed(keys_B.bitwise_xor(salt))[:, None, None]))
    limit = min(round(share * 2.0**32) - 2**31, 2**31 - 1)
    return (x_BTD * (1 / (1 - share))).masked_fill(hashed_BTD < limit, 0.0)


def _mixed(x: Tensor) -> Tensor:
    """Well mixed bits of int32, of which each depends on all."""
    x = x.bitwise_xor((x >> 16) & 0xFFFF) * _FIRST
    x = x.bitwise_xor((x >> 15) & 0x1FFFF) * _SECOND
    return x.bitwise_xor((x >> 16) & 0xFFFF)


def _shifted(x: Tensor, places: int) -> Tensor:
    """A right shift of int64 that brings in zeros."""
    return (x >> places) & ((1 << (64 - places)) - 1)
