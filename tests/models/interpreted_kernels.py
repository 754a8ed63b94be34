"""The Triton kernels compute what their plain versions do.

There is no GPU here: Triton's interpreter runs them. It must be asked for before Triton is imported: `test_kernels.py`
runs this file in a process of its own.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.models import LlamaConfig
from linnet.models.loss import slope
from linnet.models.rotary import rotary_table, split_heads


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The kernels' modules, interpreted. What is wrapped for torch's compiler is launched as it is."""
    import torch.library
    from triton.runtime import interpreter

    monkeypatch.setattr(torch.library, "triton_op", lambda name, **_: lambda function: function)
    monkeypatch.setattr(torch.library, "wrap_triton", lambda kernel: kernel)
    # The interpreter makes arrays of one element of numbers, and numpy takes no such array for a number any more.
    wrap = interpreter._implicit_cvt
    monkeypatch.setattr(interpreter, "_implicit_cvt", lambda value: value if isinstance(value, int) else wrap(value))
    return {each: importlib.import_module(f"linnet.models.cuda.{each}") for each in ("slope", "gate", "rotary")}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("vocab", "width"), [(4096, 4096), (5001, 5056), (97, 128)])
def test_slope_equals_the_plain_one_also_with_padding(kernels: dict[str, ModuleType], vocab: int, width: int) -> None:
    logits = 5 * random(6, width)
    targets = torch.tensor([0, vocab - 1, 17, -100, 3, 96])
    expected_losses, expected = slope(logits.clone(), targets, vocab)
    given = logits.clone()
    losses, found = kernels["slope"].slope(given, targets, vocab)
    assert found.data_ptr() == given.data_ptr()
    assert torch.allclose(losses, expected_losses, atol=1e-5)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("width", [64, 1500])
def test_swiglu_slopes_equal_autograds(kernels: dict[str, ModuleType], width: int) -> None:
    gate_up = random(5, 2 * width).requires_grad_()
    grad = random(5, width, seed=1)
    gate, up = gate_up.chunk(2, -1)
    expected = F.silu(gate) * up
    expected.backward(grad)
    assert gate_up.grad is not None
    slopes, again = kernels["gate"].swiglu_slopes(gate_up.detach(), grad)
    assert torch.allclose(slopes, gate_up.grad, atol=1e-5)
    assert torch.allclose(again, expected.detach(), atol=1e-6)


def test_heads_are_turned_and_turned_back_as_plainly(kernels: dict[str, ModuleType]) -> None:
    H, K, D, B, T = 6, 2, 8, 2, 5
    table = rotary_table(LlamaConfig(vocab=9, d_model=H * D, n_heads=H, n_kv=K, d_ff=8, n_layers=1, ctx=T))
    qkv = random(B, T, (H + 2 * K) * D).requires_grad_()
    expected = split_heads(qkv, table, H, K)
    grads = [random(*each.shape, seed=3 + i) for i, each in enumerate(expected)]
    torch.autograd.backward(expected, grads)
    assert qkv.grad is not None
    heads = qkv.detach().unflatten(-1, (H + 2 * K, D))
    found = kernels["rotary"].turn(heads, table, H + K).split((H, K, K), dim=2)
    for each, other in zip(found, expected, strict=True):
        assert torch.allclose(each, other.detach(), atol=1e-6)
    # Attention gives gradients in an order of its own: heads before tokens.
    elsewhere = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in grads]
    back = kernels["rotary"].turn_back(*elsewhere, table)
    assert torch.allclose(back.flatten(2), qkv.grad, atol=1e-6)


def test_launches_have_room_for_any_number_of_rows(
    kernels: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[tuple[int, ...]] = []

    class Launch:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            grids.append(grid)
            return lambda *_, **__: None

    monkeypatch.setattr(kernels["gate"], "_swiglu_slopes", Launch())
    monkeypatch.setattr(kernels["rotary"], "_turned", Launch())
    rows = 64 * 1024
    kernels["gate"].swiglu_slopes(torch.empty(rows, 4), torch.empty(rows, 2))
    kernels["rotary"].turn(torch.empty(rows, 1, 3, 2), torch.empty(1, 1, 2), 2)
    for grid in grids:
        assert math.prod(grid) == rows
        assert all(size <= 65_535 for size in grid[1:])  # CUDA's bound on all dimensions but the first
