"""Heads split, rotated and attended to: forms that differ only in speed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels import ops
from linnet.models import LlamaConfig
from linnet.models.llama import rotary_table

H, K, D = 6, 2, 8


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_heads_in_bfloat16_are_rotated_as_in_float32_and_rounded() -> None:
    B, T = 2, 5
    table = rotary_table(LlamaConfig(vocab=9, d_model=H * D, n_heads=H, n_kv=K, d_ff=8, n_layers=1, ctx=T))
    rounded = random(B, T, (H + 2 * K) * D).bfloat16()
    exact, short = rounded.float().requires_grad_(), rounded.clone().requires_grad_()
    expected, found = ops.split_rope(exact, table, H, K), ops.split_rope(short, table, H, K)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.bfloat16
        assert torch.equal(one, other.bfloat16())
    grads = [random(*each.shape, seed=1 + i).bfloat16() for i, each in enumerate(found)]
    torch.autograd.backward(expected, [grad.float() for grad in grads])
    torch.autograd.backward(found, grads)
    assert exact.grad is not None and short.grad is not None
    assert torch.equal(short.grad, exact.grad.bfloat16())


def test_one_token_that_looks_at_a_cache_sees_what_it_may() -> None:
    S = 12
    q, k, v = random(1, H, 1, D), random(1, K, S, D, seed=1), random(1, K, S, D, seed=2)
    sees_1S = torch.arange(S)[None] <= 7
    expected = ops.attend(q, k, v, sees_1S)
    added_1S = torch.zeros(1, S).masked_fill_(~sees_1S, float("-inf"))
    for mask in (sees_1S, added_1S):
        assert torch.allclose(ops._attend_one_token(q, k, v, mask), expected, atol=1e-6)


def test_all_attend_to_all() -> None:
    B, T = 2, 5
    qkv = random(B, T, 3 * H * D)
    q, k, v = (part.view(B, T, H, D).transpose(1, 2) for part in qkv.chunk(3, dim=-1))
    p = F.softmax(q @ k.mT / D**0.5, -1)
    assert torch.allclose(ops._attend_all(qkv, None, H), (p @ v).transpose(1, 2).flatten(2), atol=1e-5)
