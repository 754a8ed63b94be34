"""Rotary positions: neighbouring pairs are turned (ggml's order), so Q and K go into a file as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from linnet.architectures.description import RotaryConfig
from linnet.architectures.rope_scaling import rope_scaling_of
from linnet.gguf.rope import rope_divisors
from linnet.models import cuda

_VALUES_AT_ONCE = 1 << 20  # angles held in float64 while a table is made


def rotary_table(config: RotaryConfig, divisors: Tensor | None = None, positions: int | None = None) -> Tensor:
    """[positions, head_size / 2, 2]: cosine and sine for each position and pair, in float32 from float64 angles.

    `positions` is the config's `ctx` where it is not given. `divisors` [head_size / 2] (a file's `rope_freqs.weight`)
    replace those of llama-3 scaling.
    """
    head, scaling = config.head_size, rope_scaling_of(config)
    angles = config.rope_base ** (-np.arange(0, head, 2, dtype=np.float64) / head)
    if scaling is not None and scaling.kind == "linear":
        angles = angles / scaling.factor
    if divisors is not None:
        angles = angles / divisors.double().cpu().numpy()
    elif scaling is not None and scaling.kind == "llama3":
        angles = angles / rope_divisors(scaling, head, config.rope_base)
    table_CP2 = np.empty((config.ctx if positions is None else positions, len(angles), 2), np.float32)
    step = max(1, _VALUES_AT_ONCE // len(angles))
    for start in range(0, len(table_CP2), step):
        part = table_CP2[start : start + step]
        turns = np.arange(start, start + len(part), dtype=np.float64)[:, None] * angles
        part[..., 0], part[..., 1] = np.cos(turns), np.sin(turns)
    return torch.from_numpy(table_CP2)


def split_heads(qkv_BTE: Tensor, table_TP2: Tensor, n_heads: int, n_kv: int) -> tuple[Tensor, Tensor, Tensor]:
    """The fused projection as q [B, T, H, D], k and v [B, T, K, D], with q and k turned by their positions."""
    if cuda.used(qkv_BTE):
        from linnet.models.cuda.rotary import TurnedHeads

        q, k, v = TurnedHeads.apply(qkv_BTE.unflatten(-1, (n_heads + 2 * n_kv, -1)), table_TP2, n_heads, n_kv)
        return q, k, v
    if torch.compiler.is_compiling() or qkv_BTE.device.type == "mps":
        q, k, v = _heads(qkv_BTE, n_heads, n_kv)
        return _turned(q, table_TP2), _turned(k, table_TP2), v
    q, k, v = _SplitAndTurn.apply(qkv_BTE, table_TP2, n_heads, n_kv)
    return q, k, v


def _heads(qkv_BTE: Tensor, n_heads: int, n_kv: int) -> tuple[Tensor, ...]:
    heads = qkv_BTE.unflatten(-1, (n_heads + 2 * n_kv, -1))
    return heads.split((n_heads, n_kv, n_kv), dim=2)


def _turned(x_BTHD: Tensor, table_TP2: Tensor) -> Tensor:
    """For the compiler, which fuses all of it with what is around."""
    cos, sin = table_TP2[:, None, :, 0], table_TP2[:, None, :, 1]
    a, b = x_BTHD.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x_BTHD.dtype)


class _SplitAndTurn(torch.autograd.Function):
    """The same eagerly: a pair is a complex number, and the gradient is written once, into one tensor.

    Plain autograd would make a zero-filled gradient of the whole projection for each of q, k and v and add them.
    """

    @staticmethod
    def forward(ctx: Any, qkv_BTE: Tensor, table_TP2: Tensor, n_heads: int, n_kv: int) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(table_TP2)
        ctx.heads = (n_heads, n_kv)
        qk, v = qkv_BTE.unflatten(-1, (n_heads + 2 * n_kv, -1)).split((n_heads + n_kv, n_kv), dim=2)
        turned = torch.view_as_real(_pairs(qk.float()) * torch.view_as_complex(table_TP2)[:, None]).flatten(-2).to(v)
        return turned[:, :, :n_heads], turned[:, :, n_heads:], v

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (table_TP2,) = ctx.saved_tensors
        n_heads, n_kv = ctx.heads
        grad_q, grad_k, grad_v = gradients
        B, T, _, D = grad_q.shape
        grad = grad_q.new_empty(B, T, n_heads + 2 * n_kv, D)
        back = torch.view_as_complex(table_TP2).conj().resolve_conj()[:, None]  # once for both
        by_q, by_k, by_v = grad.split((n_heads, n_kv, n_kv), dim=2)
        for given, place in ((grad_q, by_q), (grad_k, by_k)):
            if given.dtype == torch.float32:
                torch.mul(_pairs(given), back, out=_pairs(place))
            else:
                place.copy_(torch.view_as_real(_pairs(given.float()) * back).flatten(-2))
        by_v.copy_(grad_v)
        return grad.flatten(2), None, None, None


def _pairs(x_BTHD: Tensor) -> Tensor:
    """Neighbours as one complex number each: a view, if they are neighbours in memory too."""
    return torch.view_as_complex(cuda.in_rows(x_BTHD).unflatten(-1, (-1, 2)))
