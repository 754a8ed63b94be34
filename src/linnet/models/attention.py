"""Attention, and who may see whom. Shapes: B batch, T tokens, S keys, H heads, K key/value heads, D head size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from linnet.models import cuda
from linnet.models.cpu.attention import causal_attention, pays

Attention = Literal["flash", "cudnn"]


@contextmanager
def attention_by(first: Attention) -> Iterator[None]:
    """Let torch try this kernel first and the others after it; on a CPU there is only one."""
    if first == "flash":
        yield
        return
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(order, set_priority=True):
        yield


def fused_heads(qkv_BTE: Tensor, bias_E: Tensor | None, n_heads: int) -> tuple[Tensor, ...]:
    """q, k and v [B, T, H, D] of a projection that holds its bias, which follows (`norms.normed_product`)."""
    qkv_BTGD = qkv_BTE.unflatten(-1, (3 * n_heads, -1))
    if cuda.used(qkv_BTE):
        from linnet.models.cuda.heads import SplitHeads

        heads: tuple[Tensor, ...] = SplitHeads.apply(qkv_BTGD, bias_E)
        return heads
    return qkv_BTGD.chunk(3, dim=2)


def attend_all(qkv_BTE: Tensor, bias_E: Tensor | None, n_heads: int) -> Tensor:
    """[B, T, H·D]: what each token takes from all, itself too, by a projection that holds its bias (`fused_heads`)."""
    if cuda.used(qkv_BTE):
        from linnet.models.cuda import short

        qkv_BTGD = qkv_BTE.unflatten(-1, (3 * n_heads, -1))
        if short.fits(qkv_BTGD):
            seen_BTHD: Tensor = short.ShortAttention.apply(qkv_BTGD, bias_E)
            return seen_BTHD.flatten(2)
    q_BHTD, k_BHTD, v_BHTD = (each.transpose(1, 2) for each in fused_heads(qkv_BTE, bias_E, n_heads))
    return F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD).transpose(1, 2).flatten(2)


def attend(q_BHTD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask_TS: Tensor | None = None) -> Tensor:
    """Softmax attention; K divides H. Without a mask token t sees keys 0…t (T = S).

    A mask is true where a token sees, or is what is added to its scores.
    """
    if mask_TS is None and pays(q_BHTD, k_BKSD):
        return causal_attention(q_BHTD, k_BKSD, v_BKSD)
    groups = q_BHTD.shape[1] // k_BKSD.shape[1]
    grouped = groups > 1
    if grouped and mask_TS is not None and q_BHTD.is_cuda:
        # The kernel that takes a mask knows no groups, and the one that knows both writes all T × S scores.
        if q_BHTD.shape[2] == 1:
            return _one_token(q_BHTD, k_BKSD, v_BKSD, mask_TS)
        k_BKSD, v_BKSD = k_BKSD.repeat_interleave(groups, 1), v_BKSD.repeat_interleave(groups, 1)
        grouped = False
    return F.scaled_dot_product_attention(
        q_BHTD, k_BKSD, v_BKSD, attn_mask=mask_TS, is_causal=mask_TS is None, enable_gqa=grouped
    )


def _one_token(q_BH1D: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask_1S: Tensor) -> Tensor:
    """The same for one token: the heads that share keys look at them as if they were so many tokens."""
    q_BKGD = q_BH1D.unflatten(1, (k_BKSD.shape[1], -1)).squeeze(3)
    return F.scaled_dot_product_attention(q_BKGD, k_BKSD, v_BKSD, attn_mask=mask_1S).flatten(1, 2).unsqueeze(2)


def document_mask(documents_BT: Tensor) -> Tensor:
    """[B, 1, T, T]: a token sees the tokens before it that have the same document number."""
    T = documents_BT.shape[1]
    causal_TT = torch.ones(T, T, dtype=torch.bool, device=documents_BT.device).tril()
    return ((documents_BT[:, :, None] == documents_BT[:, None, :]) & causal_TT)[:, None]
