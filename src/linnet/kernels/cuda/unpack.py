"""A packed matrix decoded by one Triton kernel, whatever its format: codes and scales are read once, numbers written.

`packed.py` has the plain version and says how the planes lie.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from linnet.kernels.packed import Packing, Planes

BLOCK_K, BLOCK_M = 16, 128


def unpack(packing: Packing, planes: Planes, dtype: torch.dtype, after: Tensor | None) -> Tensor:
    """[K, M]: the numbers of a part in `dtype`, once `after` is there."""
    if packing.bits > 8:
        return planes.low.to(dtype)
    assert planes.scale is not None
    low_levels, high_levels = _levels(packing.levels)
    return unpack_planes(
        planes.low, planes.high, planes.scale, planes.minimum, planes.sub_scale, planes.sub_minimum, after, dtype,
        packing.bits, packing.high_bits, packing.group, packing.block, packing.offset, packing.minimum_sign,
        low_levels, high_levels,
    )  # fmt: skip


def _levels(levels: tuple[int, ...]) -> tuple[int, int]:
    """Sixteen signed bytes as two numbers of 64 bits; zeros where there are none. Sums, which the compiler follows."""
    return _as_number(levels[:8]), _as_number(levels[8:])


def _as_number(levels: tuple[int, ...]) -> int:
    number = 0
    for place, level in enumerate(levels):
        number += (level if place == 7 else level & 255) << 8 * place
    return number


@triton_op("linnet::unpack", mutates_args={})
def unpack_planes(
    low: Tensor,
    high: Tensor | None,
    scale: Tensor,
    minimum: Tensor | None,
    sub_scale: Tensor | None,
    sub_minimum: Tensor | None,
    after: Tensor | None,
    dtype: torch.dtype,
    bits: int,
    high_bits: int,
    group: int,
    block: int,
    offset: int,
    minimum_sign: int,
    low_levels: int,
    high_levels: int,
) -> Tensor:
    """[K, M]: (code − offset) · scale ± minimum. `after` is not read: it orders this operation behind another."""
    M = low.shape[1]
    K = low.shape[0] * 8 // bits
    out_KM = torch.empty(K, M, dtype=dtype, device=low.device)
    grid = (triton.cdiv(K, BLOCK_K) * triton.cdiv(M, BLOCK_M),)
    wrap_triton(_unpack)[grid](
        low, low if high is None else high, scale, scale if minimum is None else minimum,
        low if sub_scale is None else sub_scale, low if sub_minimum is None else sub_minimum, out_KM, K, M,
        BITS=bits, HIGH_BITS=high_bits, GROUP=group, BLOCK=block, OFFSET=offset, SIGN=minimum_sign,
        SUB=sub_scale is not None, LEVELS=bool(low_levels or high_levels), LOW=low_levels, HIGH=high_levels,
        BLOCK_K=BLOCK_K, BLOCK_M=BLOCK_M, num_warps=4,
    )  # fmt: skip
    return out_KM


@triton.jit
def _unpack(
    low, high, scale, minimum, sub_scale, sub_minimum, out, K, M,
    BITS: tl.constexpr, HIGH_BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr, OFFSET: tl.constexpr,
    SIGN: tl.constexpr, SUB: tl.constexpr, LEVELS: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    columns = tl.cdiv(M, BLOCK_M)
    k = tl.program_id(0) // columns * BLOCK_K + tl.arange(0, BLOCK_K)[:, None]
    m = tl.program_id(0) % columns * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
    mask = (k < K) & (m < M)
    wide = k.to(tl.int64)
    code = _codes(low, wide, m, mask, K, M, BITS)
    if HIGH_BITS > 0:
        code = code | (_codes(high, wide, m, mask, K, M, HIGH_BITS) << BITS)
    if LEVELS:
        packed = tl.where(code < 8, tl.full((1, 1), LOW, tl.int64), tl.full((1, 1), HIGH, tl.int64))
        value = ((packed >> (code % 8 * 8).to(tl.int64)) & 255).to(tl.int8).to(tl.float32)
    elif BITS == 8:
        value = code.to(tl.int8).to(tl.float32)
    else:
        value = (code - OFFSET).to(tl.float32)
    of_block, of_group = wide // BLOCK * M + m, wide // GROUP * M + m
    factor = tl.load(scale + of_block, mask=mask, other=0.0).to(tl.float32)
    if SUB:
        factor *= tl.load(sub_scale + of_group, mask=mask, other=0).to(tl.int8).to(tl.float32)
    value *= factor
    if SIGN != 0:
        shift = tl.load(minimum + of_block, mask=mask, other=0.0).to(tl.float32)
        if SUB:
            shift *= tl.load(sub_minimum + of_group, mask=mask, other=0).to(tl.int8).to(tl.float32)
        value += shift * SIGN
    tl.store(out + wide * M + m, value, mask=mask)


@triton.jit
def _codes(plane, k, m, mask, K, M, BITS: tl.constexpr):
    """The codes of a plane in which a byte holds values that are far apart."""
    rows = K * BITS // 8
    byte = tl.load(plane + k % rows * M + m, mask=mask, other=0).to(tl.int32) & 255
    return (byte >> (k // rows * BITS).to(tl.int32)) & ((1 << BITS) - 1)
