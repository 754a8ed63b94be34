"""Quantised blocks: any common tensor type of GGUF to float32, and float32 to Q8_0, F16 and BF16.

`dequantize` takes the raw rows of a tensor as the file holds them. Rows are independent, so a range of rows is decoded
by slicing the raw bytes first; nothing else of the tensor is touched.

A decoder takes whole blocks as bytes, `blocks [n, block_bytes]`, and fills `out [n, block_values]` (float32). The order
of the float operations is ggml's, so the results are equal to the bit. Masks and shifts run over all the bytes of a
block, scales included: one long pass beats many short ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linnet.gguf.errors import GGUFError
from linnet.gguf.tensor import GGMLType

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

# Values decoded at a time: a pass over this many stays in the second-level cache and the temporaries below 3 MB.
_AT_ONCE = 192 * 1024
# The sixteen levels of the non-linear 4-bit formats.
IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


def dequantize(raw: Bytes, type: GGMLType, out: Floats | None = None) -> Floats:
    """Decode `raw [rows, row_bytes]` (uint8) into float32 `[rows, values]`.

    Given `out`, the values are written there (C-contiguous, of that shape) and it is returned.
    """
    if type not in READABLE:
        known = ", ".join(readable.name for readable in READABLE)
        raise GGUFError(f"tensors of type {type.name} cannot be read; readable types: {known}")
    rows, values = _shape(raw, type)
    if out is None:
        out = np.empty((rows, values), np.float32)
    elif out.dtype != np.float32 or out.shape != (rows, values) or not out.flags.c_contiguous:
        raise GGUFError(
            f"out is contiguous float32 of shape {[rows, values]}, found {out.dtype} of shape {list(out.shape)}"
            f"{'' if out.flags.c_contiguous else ', not contiguous'}"
        )
    # Reshaping rows that are not neighbours copies them: then only so many at a time.
    step = max(rows, 1) if raw.flags.c_contiguous else max(1, _AT_ONCE // max(values, 1))
    for row in range(0, rows, step):
        blocks = raw[row : row + step].reshape(-1, type.block_bytes)
        _decode(_DECODERS[type], blocks, out[row : row + step].reshape(-1, type.block_values))
    return out


def quantize_q8_0(values: Floats) -> Bytes:
    """Encode float32 `[rows, values]` as Q8_0 rows of bytes, equal to the bit to ggml's reference."""
    if values.dtype != np.float32 or values.ndim != 2:
        raise GGUFError(
            f"values are float32 of shape [rows, values], found {values.dtype} of shape {list(values.shape)}"
        )
    out = np.empty((len(values), GGMLType.Q8_0.row_bytes(values.shape[1])), np.uint8)
    blocks, encoded = values.reshape(-1, 32), out.reshape(-1, 34)
    step = _AT_ONCE // 32

    def encode_some(start: int) -> None:
        some, code = blocks[start : start + step], encoded[start : start + step]
        largest = abs(some)
        while (width := largest.shape[1]) > 1:  # by halving: numpy reduces a short last axis one value at a time
            largest = np.maximum(largest[:, : width // 2], largest[:, width // 2 :])
        scale = largest / 127
        inverse = 1 / scale
        inverse[scale == 0] = 0
        scaled = some * inverse
        # Rounds half away from zero, as C's roundf: the largest float below one half, then truncation.
        scaled += np.copysign(np.float32(0.49999997), scaled)
        code[:, 2:].view(np.int8)[...] = scaled
        code[:, :2] = scale.astype(np.float16).view(np.uint8)

    _for_each(encode_some, range(0, len(blocks), step))
    return out


def to_f16(values: Floats) -> NDArray[np.float16]:
    """Round float32 to the nearest float16, ties to even; beyond its range is infinity, NaN stays NaN."""
    if torch := _torch_for(values):
        halves: NDArray[np.float16] = torch.from_numpy(values).to(torch.float16).numpy()
        return halves
    with np.errstate(all="ignore"):
        return values.astype(np.float16)


def to_bf16(values: Floats) -> NDArray[np.uint16]:
    """Round float32 to the nearest bfloat16, ties to even, as its 16 bits (uint16); NaN stays NaN."""
    if torch := _torch_for(values):
        rounded_by_torch: NDArray[np.uint16] = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
        return rounded_by_torch
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    bits, out = flat.view(np.uint32), np.empty(flat.shape, np.uint16)
    step = _AT_ONCE // 3  # three arrays of four bytes a value share the cache

    def round_some(start: int) -> None:
        some, code = bits[start : start + step], out[start : start + step]
        rounded = some >> 16
        rounded &= 1
        rounded += some
        rounded += 0x7FFF
        rounded >>= 16
        code[...] = rounded
        floats = flat[start : start + step]
        if np.isnan(floats.max()):  # the carry may have turned a NaN into an infinity or a zero
            nan = np.isnan(floats)
            code[nan] = (some[nan] >> 16) | 0x40

    _for_each(round_some, range(0, len(flat), step))
    return out.reshape(values.shape)


def _shape(raw: Bytes, type: GGMLType) -> tuple[int, int]:
    """Rows, and values in a row, after checking that `raw` is two-dimensional bytes of whole blocks."""
    if raw.dtype != np.uint8 or raw.ndim != 2:
        raise GGUFError(f"raw rows are uint8 of shape [rows, row_bytes], found {raw.dtype} of shape {list(raw.shape)}")
    rows, row_bytes = raw.shape
    if row_bytes % type.block_bytes:
        raise GGUFError(
            f"a row of {type.name} is a multiple of {type.block_bytes} bytes"
            f" (a block of {type.block_values} values), found {row_bytes} bytes"
        )
    return rows, row_bytes // type.block_bytes * type.block_values


def _decode(decoder: Decoder, blocks: Bytes, out: Floats) -> None:
    """Fill `out [blocks, block_values]` some blocks at a time."""
    step = _AT_ONCE // out.shape[1]

    def decode_some(start: int) -> None:
        decoder(blocks[start : start + step], out[start : start + step])

    _for_each(decode_some, range(0, len(blocks), step))


def _for_each(work: Callable[[int], None], starts: range) -> None:
    """Do the pieces of one job on a few threads: numpy lets go of the interpreter meanwhile.

    Four keep the temporaries under 12 MB and are as many as memory can feed. Each takes a run of neighbouring pieces:
    side by side, two would both clear the same fresh page.
    """

    def do(some: range) -> None:
        with np.errstate(all="ignore"):  # a scale may be NaN or infinite; its values then are, silently
            for start in some:
                work(start)

    workers = min(4, os.cpu_count() or 1, len(starts))
    if workers < 2:
        do(starts)
        return
    share = -(-len(starts) // workers)
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(do, (starts[first : first + share] for first in range(0, len(starts), share))):
            pass


def _torch_for(values: Floats) -> Any:
    """Torch, where it is loaded and can round this array: with the CPU's own instruction, where numpy has none.

    It complains of arrays that cannot be written, such as views of a mapped file; those stay with numpy.
    """
    fits = values.dtype == np.float32 and values.flags.writeable and values.flags.c_contiguous
    return sys.modules.get("torch") if fits else None


# -- plain types ------------------------------------------------------------------------------------------------------


def _f32(blocks: Bytes, out: Floats) -> None:
    out[...] = blocks.view(np.float32)


def _f16(blocks: Bytes, out: Floats) -> None:
    np.take(_all_halves(), blocks.view(np.uint16), out=out, mode="clip")


def _bf16(blocks: Bytes, out: Floats) -> None:
    bits = out.view(np.uint32)
    bits[...] = blocks.view(np.uint16)
    bits <<= 16


@cache
def _all_halves() -> Floats:
    """All 65,536 values of float16: numpy converts them one by one, and this once."""
    return np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


# -- one scale for 32 values ------------------------------------------------------------------------------------------


def _q8_0(blocks: Bytes, out: Floats) -> None:
    """Half scale, 32 signed bytes."""
    out[...] = blocks[:, 2:].view(np.int8)
    out *= _half(blocks, 0)


def _q4_0(blocks: Bytes, out: Floats) -> None:
    """Half scale, 16 bytes of two 4-bit values less 8: low halves are values 0-15, high ones 16-31."""
    for first, nibbles in ((0, blocks & 15), (16, blocks >> 4)):
        signed = nibbles.view(np.int8)
        signed -= 8
        out[:, first : first + 16] = signed[:, 2:]
    out *= _half(blocks, 0)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    """Half scale, half minimum, 16 bytes of two 4-bit values."""
    out[:, :16] = (blocks & 15)[:, 4:]
    out[:, 16:] = (blocks >> 4)[:, 4:]
    out *= _half(blocks, 0)
    out += _half(blocks, 2)


def _q5_0(blocks: Bytes, out: Floats) -> None:
    """Half scale, 32 fifth bits, 16 bytes of two low halves; values less 16."""
    signed = five_bits(blocks, 2).view(np.int8)
    signed -= 16
    out[...] = signed
    out *= _half(blocks, 0)


def _q5_1(blocks: Bytes, out: Floats) -> None:
    """Half scale, half minimum, 32 fifth bits, 16 bytes of two low halves."""
    out[...] = five_bits(blocks, 4)
    out *= _half(blocks, 0)
    out += _half(blocks, 2)


def _iq4_nl(blocks: Bytes, out: Floats) -> None:
    """Half scale, 16 bytes of two indices into the sixteen levels."""
    out[:, :16] = IQ4_LEVELS[blocks[:, 2:] & 15]
    out[:, 16:] = IQ4_LEVELS[blocks[:, 2:] >> 4]
    out *= _half(blocks, 0)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block, as float32 [n, 1]."""
    return blocks[:, at : at + 2].view(np.float16).astype(np.float32)


def five_bits(blocks: Bytes, at: int) -> Bytes:
    """Values 0-31 [n, 32] from four bytes of fifth bits at `at` and the 16 bytes of halves behind them."""
    values = np.empty((len(blocks), 32), np.uint8)
    values[:, :16] = (blocks & 15)[:, at + 4 :]
    values[:, 16:] = (blocks >> 4)[:, at + 4 :]
    fifths = np.unpackbits(blocks[:, at : at + 4], axis=-1, bitorder="little")
    fifths <<= 4
    values |= fifths
    return values


# -- the K formats: 256 values to a block, with a scale for each 16 or 32 of them ------------------------------------


def _q2_k(blocks: Bytes, out: Floats) -> None:
    """16 bytes of 4-bit scale and 4-bit minimum, 64 bytes of four 2-bit values, half scale, half minimum."""
    scales = (blocks[:, :16] & 15).astype(np.float32)
    scales *= _half(blocks, 80)
    minima = (blocks[:, :16] >> 4).astype(np.float32)
    minima *= _half(blocks, 82)
    out[...] = two_bits(blocks[:, 16:80]).reshape(-1, 256)
    out *= np.repeat(scales, 16, axis=-1)
    out -= np.repeat(minima, 16, axis=-1)


def _q3_k(blocks: Bytes, out: Floats) -> None:
    """32 bytes of third bits, 64 bytes of four 2-bit values, 12 bytes of 6-bit scales, half scale."""
    scales = six_bit_scales(blocks[:, 96:108]).astype(np.float32)
    scales *= _half(blocks, 108)
    values = two_bits(blocks[:, 32:96])
    # 4 is subtracted where the third bit is *not* set, so: add 4 where it is, then subtract 4 everywhere.
    values |= one_bit(blocks[:, :32], 2).reshape(-1, 2, 4, 32)
    signed = values.view(np.int8)
    signed -= 4
    out[...] = signed.reshape(-1, 256)
    out *= np.repeat(scales, 16, axis=-1)


def _q4_k(blocks: Bytes, out: Floats) -> None:
    """Half scale, half minimum, 12 bytes of 6-bit scales and minima, 128 bytes of two 4-bit values."""
    pairs = out.reshape(-1, 4, 2, 32)
    pairs[:, :, 0] = (blocks & 15)[:, 16:].reshape(-1, 4, 32)
    pairs[:, :, 1] = (blocks >> 4)[:, 16:].reshape(-1, 4, 32)
    _scale_and_shift(blocks, out)


def _q5_k(blocks: Bytes, out: Floats) -> None:
    """As Q4_K, with 32 bytes of fifth bits before the 4-bit values: bit g of byte i is value i of group g."""
    values = np.empty((len(blocks), 4, 2, 32), np.uint8)
    values[:, :, 0] = (blocks & 15)[:, 48:].reshape(-1, 4, 32)
    values[:, :, 1] = (blocks >> 4)[:, 48:].reshape(-1, 4, 32)
    values |= one_bit(blocks[:, 16:48], 4).reshape(-1, 4, 2, 32)
    out[...] = values.reshape(-1, 256)
    _scale_and_shift(blocks, out)


def _q6_k(blocks: Bytes, out: Floats) -> None:
    """128 bytes of two low halves, 64 of four upper pairs of bits, 16 signed scales, half scale; less 32."""
    values = np.empty((len(blocks), 2, 4, 32), np.uint8)
    low = blocks[:, :128].copy()
    values[:, :, :2] = (low & 15).reshape(-1, 2, 2, 32)
    low >>= 4
    values[:, :, 2:] = low.reshape(-1, 2, 2, 32)
    upper = blocks[:, 128:192].copy()
    raised = np.empty_like(values)
    for group, bits in enumerate((upper << 4, upper << 2, upper, upper >> 2)):
        raised[:, :, group] = bits.reshape(-1, 2, 32)
    raised &= 48
    values |= raised
    signed = values.view(np.int8)
    signed -= 32
    out[...] = signed.reshape(-1, 256)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    scales *= _half(blocks, 208)
    out *= np.repeat(scales, 16, axis=-1)


def _iq4_xs(blocks: Bytes, out: Floats) -> None:
    """Half scale, 6-bit scales split over two and four bytes, 128 bytes of two indices into the levels."""
    pairs = out.reshape(-1, 8, 2, 16)
    pairs[:, :, 0] = IQ4_LEVELS[blocks[:, 8:] & 15].reshape(-1, 8, 16)
    pairs[:, :, 1] = IQ4_LEVELS[blocks[:, 8:] >> 4].reshape(-1, 8, 16)
    scales = np.empty((len(blocks), 8), np.uint8)
    scales[:, 0::2] = blocks[:, 4:8] & 15
    scales[:, 1::2] = blocks[:, 4:8] >> 4
    for group in range(8):
        scales[:, group] |= ((blocks[:, 2 + group // 4] >> (2 * (group % 4))) & 3) << 4
    signed = scales.view(np.int8)
    signed -= 32
    steps = signed.astype(np.float32)
    steps *= _half(blocks, 0)
    out *= np.repeat(steps, 32, axis=-1)


def two_bits(packed: Bytes) -> Bytes:
    """Values 0-3 [n, 2, 4, 32] from 64 bytes: two halves of 32, four groups in the pairs of bits."""
    shifted = packed.copy()
    values = np.empty((len(packed), 2, 4, 32), np.uint8)
    for group in range(4):
        values[:, :, group] = shifted.reshape(-1, 2, 32)
        shifted >>= 2
    values &= 3
    return values


def one_bit(packed: Bytes, bit: int) -> Bytes:
    """Bit g of each of 32 bytes, moved to `bit`, as group g of eight [n, 8, 32]."""
    source = packed.copy()
    moved = np.empty((len(packed), 8, 32), np.uint8)
    for group in range(8):
        moved[:, group] = source << (bit - group) if group <= bit else source >> (group - bit)
    moved &= 1 << bit
    return moved


def _scale_and_shift(blocks: Bytes, out: Floats) -> None:
    """Multiply by the eight scales of Q4_K and Q5_K, times the super-block's own, and subtract the minima likewise."""
    scales, minima = (sub.astype(np.float32) for sub in k_scales_and_minima(blocks))
    scales *= _half(blocks, 0)
    minima *= _half(blocks, 2)
    out *= np.repeat(scales, 32, axis=-1)
    out -= np.repeat(minima, 32, axis=-1)


def k_scales_and_minima(blocks: Bytes) -> tuple[Bytes, Bytes]:
    """The eight 6-bit scales and minima of each block of Q4_K or Q5_K, out of twelve bytes behind two halves.

    The first four bytes hold scales 0-3 and the next four minima 0-3 in their low six bits; the last four hold the low
    halves of scales and minima 4-7, whose upper two bits are left in the first eight.
    """
    first, second, mixed = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, (mixed & 15) | ((first >> 2) & 48)], axis=1)
    return scales, np.concatenate([second & 63, (mixed >> 4) | ((second >> 2) & 48)], axis=1)


def six_bit_scales(packed: Bytes) -> NDArray[np.int8]:
    """Sixteen signed scales from 12 bytes: eight of low halves, then four of upper pairs of bits; less 32."""
    scales = np.empty((len(packed), 16), np.uint8)
    scales[:, :8] = packed[:, :8] & 15
    scales[:, 8:] = packed[:, :8] >> 4
    for group in range(4):
        scales[:, 4 * group : 4 * group + 4] |= ((packed[:, 8:] >> (2 * group)) & 3) << 4
    signed = scales.view(np.int8)
    signed -= 32
    return signed


Decoder = Callable[[Bytes, Floats], None]

# What can be read; the order is that of error messages.
_DECODERS: dict[GGMLType, Decoder] = {
    GGMLType.F32: _f32,
    GGMLType.F16: _f16,
    GGMLType.BF16: _bf16,
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q4_1: _q4_1,
    GGMLType.Q5_0: _q5_0,
    GGMLType.Q5_1: _q5_1,
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q2_K: _q2_k,
    GGMLType.Q3_K: _q3_k,
    GGMLType.Q4_K: _q4_k,
    GGMLType.Q5_K: _q5_k,
    GGMLType.Q6_K: _q6_k,
    GGMLType.IQ4_NL: _iq4_nl,
    GGMLType.IQ4_XS: _iq4_xs,
}
READABLE = tuple(_DECODERS)
