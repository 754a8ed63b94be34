"""What Muon does besides products, one Triton kernel each: a batch of matrices passes through memory once.

Shapes: N matrices, R rows, C columns, S the shorter of the two.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
GRAM_BLOCK = 4096


def momentum_ahead(gradients_NRC: Tensor, buffers_NRC: Tensor, grad_scale: Tensor | None, momentum: Tensor) -> Tensor:
    """Take the gradients, divided by `grad_scale`, into the momentum; Nesterov's momentum of the next step, in bf16."""
    ahead_NRC = torch.empty_like(gradients_NRC, dtype=torch.bfloat16)
    count = gradients_NRC.numel()
    scale = gradients_NRC if grad_scale is None else grad_scale
    _momentum_ahead[(triton.cdiv(count, BLOCK),)](
        gradients_NRC, buffers_NRC, ahead_NRC, scale, momentum, count, SCALED=grad_scale is not None, BLOCK=BLOCK
    )
    return ahead_NRC


@triton.jit
def _momentum_ahead(gradients, buffers, ahead, scale, momentum, count, SCALED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    kept = tl.load(momentum)
    gradient = tl.load(gradients + at, mask=inside)
    if SCALED:
        gradient = gradient / tl.load(scale)
    buffer = tl.load(buffers + at, mask=inside)
    buffer += (1 - kept) * (gradient - buffer)
    tl.store(buffers + at, buffer, mask=inside)
    tl.store(ahead + at, (gradient + kept * (buffer - gradient)).to(tl.bfloat16), mask=inside)


def normalised(gram_NSS: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Each Gram matrix over its norm, in half precision, and one over the root of that norm; no norm under `least`."""
    half_NSS = torch.empty_like(gram_NSS, dtype=torch.float16)
    scale_N = gram_NSS.new_empty(len(gram_NSS))
    numbers = gram_NSS[0].numel()
    blocks = triton.cdiv(numbers, GRAM_BLOCK)
    squares_NB = gram_NSS.new_empty(len(gram_NSS), blocks)
    grid = (len(gram_NSS) * blocks,)  # one program a matrix would be 50 µs for six of 288 rows
    _squares[grid](gram_NSS, squares_NB, numbers, blocks, BLOCK=GRAM_BLOCK, num_warps=8)
    _normalised[grid](
        gram_NSS, squares_NB, half_NSS, scale_N, numbers, blocks, least,
        BLOCK=GRAM_BLOCK, BLOCKS=triton.next_power_of_2(blocks), num_warps=8,
    )  # fmt: skip
    return half_NSS, scale_N


@triton.jit
def _squares(gram, squares, numbers, blocks, BLOCK: tl.constexpr):
    matrix = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(gram + matrix * numbers + at, mask=at < numbers, other=0.0)
    tl.store(squares + tl.program_id(0), tl.sum(value * value))


@triton.jit
def _normalised(gram, squares, half, scale, numbers, blocks, least, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    matrix = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.arange(0, BLOCKS)
    norm = tl.sqrt(tl.sum(tl.load(squares + matrix * blocks + block, mask=block < blocks, other=0.0)))
    norm = tl.where(norm < least, least, norm)  # not a maximum, which would hide a NaN
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(gram + matrix * numbers + at, mask=at < numbers, other=0.0)
    tl.store(half + matrix * numbers + at, (value / norm).to(tl.float16), mask=at < numbers)
    if tl.program_id(0) % blocks == 0:
        tl.store(scale + matrix, 1 / tl.sqrt(norm))


def quintic(gram_NSS: Tensor, squared_NSS: Tensor, a: float, b: float, c: float) -> Tensor:
    """a · 1 + b · G + c · G², in half precision."""
    factor_NSS = torch.empty_like(gram_NSS)
    S = gram_NSS.shape[1]
    blocks = triton.cdiv(S * S, BLOCK)
    _quintic[(len(gram_NSS) * blocks,)](gram_NSS, squared_NSS, factor_NSS, a, b, c, S, blocks, BLOCK=BLOCK)
    return factor_NSS


@triton.jit
def _quintic(gram, squared, factor, a, b, c, S, blocks, BLOCK: tl.constexpr):
    matrix = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    entry, inside = matrix * S * S + at, at < S * S
    g = tl.load(gram + entry, mask=inside).to(tl.float32)
    gg = tl.load(squared + entry, mask=inside).to(tl.float32)
    one = tl.where(at // S == at % S, a, 0.0)
    tl.store(factor + entry, (one + b * g + c * gg).to(tl.float16), mask=inside)


def scaled(matrices_NRC: Tensor, scale_N: Tensor) -> Tensor:
    """Each matrix times its scale, in half precision."""
    half_NRC = torch.empty_like(matrices_NRC, dtype=torch.float16)
    numbers = matrices_NRC[0].numel()
    blocks = triton.cdiv(numbers, BLOCK)
    _scaled[(len(matrices_NRC) * blocks,)](matrices_NRC, half_NRC, scale_N, numbers, blocks, BLOCK=BLOCK)
    return half_NRC


@triton.jit
def _scaled(matrices, half, scale, numbers, blocks, BLOCK: tl.constexpr):
    matrix = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(matrices + matrix * numbers + at, mask=at < numbers).to(tl.float32)
    tl.store(half + matrix * numbers + at, (value * tl.load(scale + matrix)).to(tl.float16), mask=at < numbers)


def move(addresses_N: Tensor, update_NRC: Tensor, lr: Tensor, weight_decay: float, size: float) -> None:
    """w ← w · (1 − lr · weight_decay) − lr · size · update, of weights in float32 at some addresses."""
    numbers = update_NRC[0].numel()
    blocks = triton.cdiv(numbers, BLOCK)
    _move[(len(update_NRC) * blocks,)](addresses_N, update_NRC, lr, weight_decay, size, numbers, blocks, BLOCK=BLOCK)


@triton.jit
def _move(addresses, update, lr, weight_decay, size, numbers, blocks, BLOCK: tl.constexpr):
    matrix = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    weights = tl.load(addresses + matrix).to(tl.pointer_type(tl.float32))
    weights = tl.multiple_of(weights, 16)  # as torch allocates
    rate = tl.load(lr)
    value = tl.load(weights + at, mask=at < numbers)
    step = tl.load(update + matrix * numbers + at, mask=at < numbers).to(tl.float32)
    tl.store(weights + at, value * (1 - rate * weight_decay) - rate * size * step, mask=at < numbers)
