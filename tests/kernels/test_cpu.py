"""What a CPU does by other means than torch's usual ones gives the usual numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels import cpu
from linnet.kernels.cpu import Matmul, attention_is_faster, causal_attention
from linnet.models import LlamaConfig, build
from linnet.train.hardware import choose
from linnet.train.profile import Cost
from linnet.train.settings import TrainSettings
from linnet.train.step import Step
from tests.train.test_recording import Batch

SHAPES = [(2, 64, 4, 4, 8), (2, 70, 6, 2, 16), (1, 200, 3, 1, 12), (1, 32, 4, 4, 16), (3, 20, 6, 2, 8), (2, 1, 2, 1, 4)]


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    dice = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=dice).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_by_blocks_is_torchs_attention_gradients_too(shape: tuple[int, ...]) -> None:
    B, T, H, K, D = shape
    parts = leaves((B, T, H, D), (B, T, K, D), (B, T, K, D), (B, H, T, D))
    *qkv, grad = (part.transpose(1, 2) for part in parts[:3]), parts[3].detach()
    q, k, v = qkv[0]
    assert attention_is_faster(q, k)
    ours = causal_attention(q, k, v)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
    assert torch.allclose(ours, theirs, atol=1e-5)
    for one, other in zip(*(torch.autograd.grad(out, parts[:3], grad) for out in (ours, theirs)), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("T", [32, 64])
def test_a_profile_knows_it_for_attention(T: int) -> None:
    q, k, v = leaves(*[(1, 2, T, 8)] * 3)
    node = causal_attention(q, k, v).grad_fn
    assert node is not None
    assert Cost(node.name(), 1.0, 1.0).kind == "attention"


def test_attention_by_blocks_is_for_training_of_some_lengths() -> None:
    def asked(T: int, dtype: torch.dtype = torch.float32) -> bool:
        q = torch.empty(8, 4, T, 8, dtype=dtype, requires_grad=True)
        return attention_is_faster(q, q)

    assert asked(256) and asked(32) and not asked(48) and not asked(4096) and not asked(256, torch.bfloat16)
    with torch.no_grad():
        assert not asked(256)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_a_matmul_by_onednn_is_the_usual_one_gradients_too() -> None:
    x, weight, grad = leaves((2, 30, 24), (40, 24), (2, 30, 40))
    ours, theirs = Matmul.apply(x, weight), F.linear(x, weight)
    assert torch.allclose(ours, theirs, atol=1e-5)
    pairs = zip(*(torch.autograd.grad(out, (x, weight), grad.detach()) for out in (ours, theirs)), strict=True)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)


def test_fifty_steps_lose_what_fifty_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other way of a CPU at once, against none of them."""
    config = LlamaConfig(vocab=500, d_model=64, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=64)
    settings = TrainSettings(batch=4, device="cpu", graph="off")

    def losses(other_ways: bool) -> list[float]:
        monkeypatch.setattr(cpu, "LEAST_TOKENS", 64 if other_ways else 1 << 30)
        monkeypatch.setattr(cpu, "LEAST_MULTIPLICATIONS", 1)
        monkeypatch.setattr(cpu, "mkl_is_slow", lambda: other_ways)
        step = Step(build(config), settings, choose(settings, 256))
        history = []
        for number in range(50):
            ids = torch.randint(0, 500, (4, 65), generator=torch.Generator().manual_seed(number % 5))
            history.append(step(Batch(ids[:, :-1], ids[:, 1:], None, 256), 1e-3).loss.item())
        return history

    assert losses(True) == pytest.approx(losses(False), rel=1e-4)
