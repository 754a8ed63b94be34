"""`KVCache`: keys and values of the tokens seen so far, in buffers whose size and address never change.

The position is a tensor on the device, not a Python number, so that a step can be captured in a graph and replayed:
such a graph is good as long as `visible` is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.architectures.description import Config
from linnet.errors import LinnetError
from linnet.models.layers import Device

# `visible` grows by so much: few captures, and few keys that are masked. A GPU hardly notices the latter.
_STRIDES = {"cpu": 128, "cuda": 512}


@dataclass(frozen=True)
class Span:
    """The tokens of one call: their positions, how many keys they attend to, and the attention mask of those."""

    cache: KVCache
    positions_T: Tensor
    visible: int
    mask_TS: Tensor | None  # None: the first tokens of all, which see each other only; see `attend`

    def put(self, layer: int, k_BTKD: Tensor, v_BTKD: Tensor) -> tuple[Tensor, Tensor]:
        """Keep a layer's keys and values; what to attend to comes back, as [B, K, S, D]."""
        k_BKTD, v_BKTD = k_BTKD.transpose(1, 2), v_BTKD.transpose(1, 2)
        k_BKSD, v_BKSD = self.cache.k_LBKSD[layer], self.cache.v_LBKSD[layer]
        k_BKSD.index_copy_(2, self.positions_T, k_BKTD)
        v_BKSD.index_copy_(2, self.positions_T, v_BKTD)
        if self.mask_TS is None:
            return k_BKTD, v_BKTD
        return k_BKSD[:, :, : self.visible], v_BKSD[:, :, : self.visible]


class KVCache:
    """Room for `slots` tokens of each of `batch` sequences, which advance together."""

    def __init__(
        self, config: Config, slots: int, batch: int = 1, device: Device = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        shape = (config.n_layers, batch, config.n_kv, slots, config.head_size)
        self.k_LBKSD = torch.zeros(shape, device=device, dtype=dtype)
        self.v_LBKSD = torch.zeros(shape, device=device, dtype=dtype)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.slots = slots
        self.length = 0

    def span(self, T: int) -> Span:
        """The positions of the next T tokens, and their attention mask."""
        if self.length + T > self.slots:
            raise LinnetError(
                f"{self.length + T} tokens do not fit the cache's {self.slots}: make a larger one, or pass fewer tokens"
            )
        positions_T = self.position + torch.arange(T, device=self.position.device)
        if self.length == 0 and T > 1:
            return Span(self, positions_T, T, None)
        visible = self.visible(T)
        slots_S = torch.arange(visible, device=self.position.device)
        mask_TS = slots_S <= positions_T[:, None]
        if mask_TS.is_cuda:  # its kernels add a mask: made into numbers here, it is so once and not in every layer
            mask_TS = torch.zeros_like(mask_TS, dtype=self.k_LBKSD.dtype).masked_fill_(~mask_TS, float("-inf"))
        return Span(self, positions_T, visible, mask_TS)

    def visible(self, T: int) -> int:
        """How many slots the next T tokens attend to."""
        stride = _STRIDES.get(self.position.device.type, 64)
        return min(-(-(self.length + T) // stride) * stride, self.slots)

    def advance(self, T: int) -> None:
        """The T tokens of the last span are kept now."""
        self.position += T
        self.length += T

    def rewind(self, length: int = 0) -> None:
        """Forget all but the first tokens."""
        self.position.fill_(length)
        self.length = length
