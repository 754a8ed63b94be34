"""`Qwen3`: a llama with qk-norm, whose rotary pairs are the two halves of a head."""

from __future__ import annotations

from torch import Tensor

from linnet.architectures.rotary import RotaryConfig
from linnet.models import qwen2
from linnet.models.layers import Device, RMSNorm
from linnet.models.llama import Llama


class Block(qwen2.Block):
    """A llama's layer in which each head of queries and keys is normed before it is rotated."""

    def __init__(self, config: RotaryConfig, layer: int, device: Device | None) -> None:
        super().__init__(config, layer, device)
        self.attn_q_norm = RMSNorm(config.head_size, config.rms_eps, device)
        self.attn_k_norm = RMSNorm(config.head_size, config.rms_eps, device)

    def split(self, qkv_BTE: Tensor) -> tuple[Tensor, ...]:
        """q [B, T, H, D] and k [B, T, K, D] normed, v [B, T, K, D] as the projection made it."""
        q_BTHD, k_BTKD, v_BTKD = super().split(qkv_BTE)
        return self.attn_q_norm(q_BTHD), self.attn_k_norm(k_BTKD), v_BTKD


class Qwen3(Llama):
    """A Qwen3 as llama.cpp runs it."""

    block = Block
