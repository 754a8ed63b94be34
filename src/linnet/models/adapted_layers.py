"""A frozen layer with pairs of low rank beside it: what `add_adapter` puts in the place of a projection.

LoRA: y = x Wᵀ + b + scale · dropout(x) Aᵀ Bᵀ. DoRA besides trains the length of each row of W + scale · B A. What is
one matrix here has a pair for each of the matrices within, as a file has them: q, k and v; gate and up.
Shapes: M outputs of a projection, K inputs, R ranks of all its pairs together, r of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.kernels import ops
from linnet.kernels.packed import PackedMatrix
from linnet.models.layers import Device, Embedding, Linear, PackedEmbedding, PackedLinear


class LowRank(nn.Module):
    """A pair as a file has it: `lora_a` and `lora_b`; of DoRA also `lora_magnitude`, the lengths of the rows."""

    def __init__(self, a_shape: Iterable[int], b_shape: Iterable[int], device: Device) -> None:
        super().__init__()
        self.lora_a = nn.Parameter(torch.zeros(*a_shape, device=device))
        self.lora_b = nn.Parameter(torch.zeros(*b_shape, device=device))
        self.lora_magnitude: nn.Parameter | None = None


@dataclass(frozen=True)
class Dropout:
    """The share of an input that a pair does not see, and what tells this layer's masks from others'."""

    share: float
    salt: int

    @classmethod
    def at(cls, name: str, share: float) -> Dropout:
        """For the layer of a name."""
        digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
        return cls(share, int.from_bytes(digest, "little") >> 1)


class AdaptedLinear(nn.Module):
    """A frozen projection and its pairs, by the names of the matrices within it and the rows that they have."""

    def __init__(
        self,
        base: Linear | PackedLinear,
        pairs: Mapping[str, LowRank],
        rows: Mapping[str, slice],
        scale: float,
        dropout: Dropout,
    ) -> None:
        super().__init__()
        self.base, self.pairs = base, nn.ModuleDict(pairs)
        self._rows, self._scale, self._dropout = dict(rows), scale, dropout
        self.squares_M: Tensor | None  # of each row of the base, summed: for DoRA
        self.register_buffer("squares_M", None, persistent=False)

    @property
    def weight(self) -> Tensor | PackedMatrix:
        """The base's matrix."""
        return self.base.weight

    @property
    def bias(self) -> Tensor | None:
        """The base's bias."""
        return self.base.bias

    def forward(self, x: Tensor, mask_keys_B: Tensor | None = None) -> Tensor:
        """[…, K] → […, M]."""
        a_RK, b_MR = self.low_rank()
        dropped = ops.dropout(x, mask_keys_B, self._dropout.salt, self._dropout.share)
        if self.squares_M is None:
            return ops.adapted_linear(x, self.base, a_RK, b_MR, dropped)
        y = ops.adapted_linear(x, _Unbiased(self.weight), a_RK, b_MR, dropped)
        y = y * self._stretch(a_RK, b_MR).to(y.dtype)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def low_rank(self) -> tuple[Tensor, Tensor]:
        """All pairs as one: A [R, K], and B [M, R] with zeros where a pair has no rows, times the scale."""
        pairs = named_pairs(self)
        a_RK = torch.cat([pair.lora_a for _, pair in pairs]) if len(pairs) > 1 else pairs[0][1].lora_a
        width, left, top, parts = len(a_RK), 0, 0, []
        for name, pair in pairs:
            rows, rank = self._rows[name], len(pair.lora_a)
            if rows.start > top:
                parts.append(a_RK.new_zeros(rows.start - top, width))
            parts.append(F.pad(pair.lora_b, (left, width - left - rank)) if width > rank else pair.lora_b)
            left, top = left + rank, rows.stop
        if top < (height := self.weight.shape[0]):
            parts.append(a_RK.new_zeros(height - top, width))
        return a_RK, (torch.cat(parts) if len(parts) > 1 else parts[0]) * self._scale

    @torch.no_grad()
    def train_magnitudes(self) -> None:
        """DoRA: let each row's length be trained, from what it is."""
        weight = self.weight if isinstance(self.weight, Tensor) else self.weight.unpacked()
        self.squares_M = weight.float().square().sum(1)
        for name, pair in named_pairs(self):
            pair.lora_magnitude = nn.Parameter(self.squares_M[self._rows[name]].sqrt())

    def _stretch(self, a_RK: Tensor, b_MR: Tensor) -> Tensor:
        """[M]: what brings each row of W + B A to its length. The length it has is taken for a constant, as in DoRA."""
        assert self.squares_M is not None
        with torch.no_grad():
            a_RK, b_MR = a_RK.detach(), b_MR.detach()
            base = self.weight
            crossed_RM = ops.packed_linear(a_RK, base) if isinstance(base, PackedMatrix) else ops.linear(a_RK, base)
            lengths_M = self.squares_M + 2 * (crossed_RM.T.float() * b_MR).sum(1)
            lengths_M = (lengths_M + (b_MR @ (a_RK @ a_RK.T) * b_MR).sum(1)).clamp(min=1e-12).sqrt()
        parts, top = [], 0
        for name, pair in named_pairs(self):
            rows, magnitude = self._rows[name], pair.lora_magnitude
            assert magnitude is not None
            parts += [torch.ones_like(lengths_M[top : rows.start]), magnitude / lengths_M[rows]]
            top = rows.stop
        return torch.cat([*parts, torch.ones_like(lengths_M[top:])])


@dataclass(frozen=True)
class _Unbiased:
    weight: Tensor | PackedMatrix
    bias: None = None


class AdaptedEmbedding(nn.Module):
    """A frozen table of rows, and the pair beside it: lora_a [vocab, r], lora_b [width, r]."""

    def __init__(self, base: Embedding | PackedEmbedding, pairs: Mapping[str, LowRank], scale: float) -> None:
        super().__init__()
        self.base, self.pairs, self._scale = base, nn.ModuleDict(pairs), scale

    @property
    def weight(self) -> Tensor | PackedMatrix:
        """The base's table."""
        return self.base.weight

    def forward(self, ids_BT: Tensor, dtype: torch.dtype = torch.float32, plus_TD: Tensor | None = None) -> Tensor:
        """[B, T] → [B, T, width]: the rows, plus `plus_TD`, in `dtype`."""
        frozen_BTD: Tensor = self.base(ids_BT, dtype, plus_TD)
        ((_, pair),) = named_pairs(self)
        low_BTr = ops.embedding(ids_BT, pair.lora_a, dtype)
        return frozen_BTD + F.linear(low_BTr, (pair.lora_b * self._scale).to(dtype))


def named_pairs(layer: AdaptedLinear | AdaptedEmbedding) -> list[tuple[str, LowRank]]:
    """A layer's pairs by the names of the matrices within it, in the order of their rows."""
    return [(name, pair) for name, pair in layer.pairs.items() if isinstance(pair, LowRank)]
