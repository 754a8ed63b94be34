"""`Qwen2`: a llama with biases on Q, K and V, whose rotary pairs are the two halves of a head."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.models import llama


class Block(llama.Block):
    """A llama's layer with the rotary layout of Qwen; its projection to queries, keys and values has a bias."""

    def heads(self, qkv_BTE: Tensor, rope_TP2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The fused projection as q [B, T, H, D], k and v [B, T, K, D], with q and k rotated by their positions."""
        q_BTHD, k_BTKD, v_BTKD = self.split(qkv_BTE)
        return rotate_halves(q_BTHD, rope_TP2), rotate_halves(k_BTKD, rope_TP2), v_BTKD

    def split(self, qkv_BTE: Tensor) -> tuple[Tensor, ...]:
        """q [B, T, H, D], k and v [B, T, K, D] as the projection made them."""
        n_heads, n_kv = self.n_heads, self.n_kv
        return qkv_BTE.unflatten(-1, (n_heads + 2 * n_kv, -1)).split((n_heads, n_kv, n_kv), dim=2)


def rotate_halves(x_BTHD: Tensor, rope_TP2: Tensor) -> Tensor:
    """RoPE on pairs of values i and i + D/2 of a head (llama.cpp's NEOX layout)."""
    cos_T1P, sin_T1P = rope_TP2[:, None, :, 0], rope_TP2[:, None, :, 1]
    a, b = x_BTHD.float().chunk(2, dim=-1)
    return torch.cat((a * cos_T1P - b * sin_T1P, b * cos_T1P + a * sin_T1P), -1).to(x_BTHD.dtype)


class Qwen2(llama.Llama):
    """A Qwen2 as llama.cpp runs it."""

    block = Block
