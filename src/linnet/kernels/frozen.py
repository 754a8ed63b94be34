"""Products with matrices that are not trained: nothing of them is kept for the backward pass, and no gradient is made.

`FrozenMatmul` is for a packed matrix, which is decoded for each product; `AdaptedMatmul` adds a trained product of low
rank to a frozen one, for eager training on a CPU. Shapes: N rows of x, K their width, M rows of the matrix, R ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels import cpu
from linnet.kernels.packed import PackedMatrix, Packing, Planes, unpack

_AT_ONCE = 1 << 22  # numbers decoded at a time on a CPU: 16 MB


class FrozenWeight(Protocol):
    """A linear layer's matrix that is not trained, plain or packed."""

    @property
    def weight(self) -> Tensor | PackedMatrix: ...
    @property
    def bias(self) -> Tensor | None: ...


def product(x: Tensor, weight_MK: Tensor) -> Tensor:
    """x Wᵀ, by what is quicker for it; W may be a transposed view."""
    return cpu.onednn_linear(x, weight_MK) if cpu.matmul_is_faster(x, weight_MK) else F.linear(x, weight_MK)


def decoded_numbers(matrix: PackedMatrix, device: str) -> int:
    """How many numbers of a packed matrix are decoded at a time on a kind of device."""
    numbers = matrix.shape[0] * matrix.shape[1]
    return min(numbers, max(_AT_ONCE, matrix.shape[1])) if device == "cpu" else numbers


def pieces(matrix: Tensor | PackedMatrix, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """A matrix in `dtype`, all of it; on a CPU, of one that is packed, as many rows at a time as take 16 MB.

    Each piece is written over by the next one, and by the next matrix of this thread: memory that is in the cache.
    """
    rows, width = matrix.shape
    if isinstance(matrix, Tensor):
        yield slice(0, rows), matrix.to(dtype)
        return
    height = max(1, _AT_ONCE // width) if matrix.device.type == "cpu" else rows
    count = -(-rows // height)
    height = -(-rows // count)
    memory = _memory(height * width) if matrix.device.type == "cpu" and dtype == torch.float32 else None
    for start in range(0, rows, height):
        piece = slice(start, min(start + height, rows))
        yield piece, matrix.unpacked(dtype, piece, memory)


_of_thread = threading.local()


def _memory(numbers: int) -> Tensor:
    """This thread's memory for what is decoded, as much as it has ever needed."""
    memory: Tensor | None = getattr(_of_thread, "memory", None)
    if memory is None or len(memory) < numbers:
        with torch.inference_mode(False):  # what is read in inference is trained on later
            memory = _of_thread.memory = torch.empty(numbers)
    return memory


def frozen_product(x: Tensor, matrix: Tensor | PackedMatrix) -> Tensor:
    """x Wᵀ: […, K] → […, M]."""
    out_NM: Tensor | None = None
    x_NK = x.flatten(0, -2)
    for rows, weight in pieces(matrix, x.dtype):
        if len(weight) == matrix.shape[0]:
            return product(x, weight)
        out_NM = x.new_empty(len(x_NK), matrix.shape[0]) if out_NM is None else out_NM
        if cpu.matmul_is_faster(x_NK, weight):
            out_NM[:, rows] = cpu.onednn_linear(x_NK, weight)
        else:
            torch.mm(x_NK, weight.T, out=out_NM[:, rows])  # the product itself writes where it belongs
    assert out_NM is not None
    return out_NM.view(*x.shape[:-1], -1)


def frozen_input_grad(grad: Tensor, matrix: Tensor | PackedMatrix) -> Tensor:
    """g W: […, M] → […, K]."""
    total_NK: Tensor | None = None
    grad_NM = grad.flatten(0, -2)
    for rows, weight in pieces(matrix, grad.dtype):
        if len(weight) == matrix.shape[0]:
            return product(grad, weight.T)
        part_NK = product(grad_NM[:, rows], weight.T)
        total_NK = part_NK if total_NK is None else total_NK.add_(part_NK)
    assert total_NK is not None
    return total_NK.view(*grad.shape[:-1], -1)


class FrozenMatmul(torch.autograd.Function):
    """x Wᵀ with a packed W, given as the planes of its parts: the compiler sees through tensors alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packings: tuple[Packing, ...], *planes: Tensor | None) -> Tensor:
        ctx.save_for_backward(*planes)
        ctx.packings = packings
        return F.linear(x, unpack(_parts(packings, planes), x.dtype, x))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = gradients
        planes = ctx.saved_tensors
        weight_MK = unpack(_parts(ctx.packings, planes), grad.dtype, grad)
        return grad @ weight_MK, None, *(None for _ in planes)


def _parts(packings: Sequence[Packing], planes: Sequence[Tensor | None]) -> list[tuple[Packing, Planes]]:
    count = len(Planes._fields)
    return [
        (packing, Planes(*planes[number * count : (number + 1) * count]))  # type: ignore[arg-type]
        for number, packing in enumerate(packings)
    ]


class EagerFrozenMatmul(torch.autograd.Function):
    """The same where nothing is compiled, in pieces and by the quickest product; W may be plain."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor | PackedMatrix) -> Tensor:
        ctx.matrix = matrix
        return frozen_product(x, matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return frozen_input_grad(gradients[0], ctx.matrix), None


class AdaptedMatmul(torch.autograd.Function):
    """x Wᵀ + bias + z Aᵀ Bᵀ, where z is x, or what dropout has left of it: each sum is made by the product itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: Tensor | None, a_RK: Tensor, b_MR: Tensor, base: FrozenWeight) -> Tensor:
        read = x if dropped is None else dropped
        down = F.linear(read, a_RK)
        y = frozen_product(x, base.weight)
        if base.bias is not None:
            y += base.bias
        y.view(-1, y.shape[-1]).addmm_(down.view(-1, down.shape[-1]), b_MR.T)
        ctx.save_for_backward(read, down, a_RK, b_MR)
        ctx.base, ctx.has_dropout = base, dropped is not None
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        read, down, a_RK, b_MR = ctx.saved_tensors
        grad = gradients[0]
        grad_NM = grad.flatten(0, -2)
        by_down_NR = grad_NM @ b_MR
        by_a, by_b = by_down_NR.T @ read.flatten(0, -2), grad_NM.T @ down.flatten(0, -2)
        by_x = frozen_input_grad(grad, ctx.base.weight) if ctx.needs_input_grad[0] else None
        by_dropped = None
        if ctx.has_dropout:
            by_dropped = (by_down_NR @ a_RK).view_as(read) if ctx.needs_input_grad[1] else None
        elif by_x is not None:
            by_x.view(-1, by_x.shape[-1]).addmm_(by_down_NR, a_RK)
        return by_x, by_dropped, by_a, by_b, None
