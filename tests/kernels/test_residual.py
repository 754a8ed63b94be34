"""The residual stream, whose last update is added by the norm that reads it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linnet.kernels import Residual, ops
from linnet.models.layers import LayerNorm, Linear


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_an_update_is_added_once_by_the_next_norm() -> None:
    x, update = random(2, 3, 8), random(2, 3, 8, seed=1)
    norm, up = LayerNorm(8, 1e-5), Linear(8, 16)
    torch.nn.init.normal_(up.weight, generator=torch.Generator().manual_seed(2))
    stream = Residual(x).plus(update)
    assert torch.equal(stream.total(), x + update)
    after, y = ops.norm_linear(stream, norm, up)
    assert torch.equal(after.total(), x + update)
    assert torch.equal(y, up(norm(x + update)))


def test_two_updates_without_a_norm_between_them_are_refused() -> None:
    x = random(1, 1, 4)
    with pytest.raises(AssertionError, match="added by the next norm"):
        Residual(x).plus(x).plus(x)


def test_a_stream_whose_bias_would_get_no_gradient_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "uses_triton", lambda x: True)
    out = Linear(4, 4, bias=True)
    with torch.no_grad():
        out.weight.copy_(random(4, 4))
        out.bias.copy_(random(4, seed=1))  # type: ignore[union-attr]
    x, y = random(1, 1, 4), random(1, 1, 4, seed=2)
    stream = ops.add_linear(Residual(x), y, out)  # a norm must follow: its kernel sums the bias's gradient
    assert stream.update_BTD is not None and torch.equal(stream.update_BTD, out(y))
    with pytest.raises(AssertionError, match="gradient of this bias"):
        stream.total()
