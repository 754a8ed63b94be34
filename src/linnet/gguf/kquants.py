"""The K formats, 256 values to a block with a scale for each 16 or 32 of them: Q2_K to Q6_K, and IQ4_XS.

Every function takes whole blocks as bytes, `blocks [n, block_bytes]`, and fills `out [n, 256]` (float32). The
order of the float operations is ggml's (the block's scale times the group's, times the value, less the
minimum), so the results are equal to the bit.
"""

from __future__ import annotations

from linnet.gguf.arrays import Array, Ops
from linnet.gguf.quants32 import IQ4_LEVELS, half


def q2_k(ops: Ops, blocks: Array, out: Array) -> None:
    """16 bytes of 4-bit scale and 4-bit minimum, 64 bytes of four 2-bit values, half scale, half minimum."""
    n = len(blocks)
    scales = ops.f32(blocks[:, :16] & 15)
    scales *= half(ops, blocks, 80)
    minima = ops.f32(blocks[:, :16] >> 4)
    minima *= half(ops, blocks, 82)
    out[...] = _two_bits(ops, blocks[:, 16:80]).reshape(n, 256)
    out *= ops.repeat(scales, 16)
    out -= ops.repeat(minima, 16)


def q3_k(ops: Ops, blocks: Array, out: Array) -> None:
    """32 bytes of third bits, 64 bytes of four 2-bit values, 12 bytes of 6-bit scales, half scale."""
    n = len(blocks)
    scales = ops.f32(_six_bit_scales(ops, blocks[:, 96:108]))
    scales *= half(ops, blocks, 108)
    values = _two_bits(ops, blocks[:, 32:96])
    # 4 is subtracted where the third bit is *not* set, so: add 4 where it is, then subtract 4 everywhere.
    values |= _one_bit(ops, blocks[:, :32], 2).reshape(n, 2, 4, 32)
    signed = values.view(ops.int8)
    signed -= 4
    out[...] = signed.reshape(n, 256)
    out *= ops.repeat(scales, 16)


def q4_k(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, half minimum, 12 bytes of 6-bit scales and minima, 128 bytes of two 4-bit values."""
    n = len(blocks)
    pairs = out.reshape(n, 4, 2, 32)
    pairs[:, :, 0] = (blocks & 15)[:, 16:].reshape(n, 4, 32)
    pairs[:, :, 1] = (blocks >> 4)[:, 16:].reshape(n, 4, 32)
    scales, minima = _scales_and_minima(ops, blocks)
    out *= ops.repeat(scales, 32)
    out -= ops.repeat(minima, 32)


def q5_k(ops: Ops, blocks: Array, out: Array) -> None:
    """As Q4_K, with 32 bytes of fifth bits before the 4-bit values: bit g of byte i is value i of group g."""
    n = len(blocks)
    values = ops.bytes_like(blocks, n, 4, 2, 32)
    values[:, :, 0] = (blocks & 15)[:, 48:].reshape(n, 4, 32)
    values[:, :, 1] = (blocks >> 4)[:, 48:].reshape(n, 4, 32)
    values |= _one_bit(ops, blocks[:, 16:48], 4).reshape(n, 4, 2, 32)
    out[...] = values.reshape(n, 256)
    scales, minima = _scales_and_minima(ops, blocks)
    out *= ops.repeat(scales, 32)
    out -= ops.repeat(minima, 32)


def q6_k(ops: Ops, blocks: Array, out: Array) -> None:
    """128 bytes of two low halves, 64 of four upper pairs of bits, 16 signed scales, half scale; less 32."""
    n = len(blocks)
    values = ops.bytes_like(blocks, n, 2, 4, 32)
    low = ops.copy(blocks[:, :128])
    values[:, :, :2] = (low & 15).reshape(n, 2, 2, 32)
    low >>= 4
    values[:, :, 2:] = low.reshape(n, 2, 2, 32)
    upper = ops.copy(blocks[:, 128:192])
    raised = ops.bytes_like(blocks, n, 2, 4, 32)
    for group, bits in enumerate((upper << 4, upper << 2, upper, upper >> 2)):
        raised[:, :, group] = bits.reshape(n, 2, 32)
    raised &= 48
    values |= raised
    signed = values.view(ops.int8)
    signed -= 32
    out[...] = signed.reshape(n, 256)
    scales = ops.f32(blocks[:, 192:208].view(ops.int8))
    scales *= half(ops, blocks, 208)
    out *= ops.repeat(scales, 16)


def iq4_xs(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, 6-bit scales split over two and four bytes, 128 bytes of two indices into the levels."""
    n = len(blocks)
    pairs = out.reshape(n, 8, 2, 16)
    pairs[:, :, 0] = ops.lookup(IQ4_LEVELS, blocks[:, 8:] & 15).reshape(n, 8, 16)
    pairs[:, :, 1] = ops.lookup(IQ4_LEVELS, blocks[:, 8:] >> 4).reshape(n, 8, 16)
    scales = ops.bytes_like(blocks, n, 8)
    scales[:, 0::2] = blocks[:, 4:8] & 15
    scales[:, 1::2] = blocks[:, 4:8] >> 4
    for group in range(8):
        scales[:, group] |= ((blocks[:, 2 + group // 4] >> (2 * (group % 4))) & 3) << 4
    signed = scales.view(ops.int8)
    signed -= 32
    steps = ops.f32(signed)
    steps *= half(ops, blocks, 0)
    out *= ops.repeat(steps, 32)


def _two_bits(ops: Ops, packed: Array) -> Array:
    """Values 0-3 [n, 2, 4, 32] from 64 bytes: two halves of 32, four groups in the pairs of bits."""
    n = len(packed)
    shifted = ops.copy(packed)
    values = ops.bytes_like(packed, n, 2, 4, 32)
    for group in range(4):
        values[:, :, group] = shifted.reshape(n, 2, 32)
        shifted >>= 2
    values &= 3
    return values


def _one_bit(ops: Ops, packed: Array, place: int) -> Array:
    """Bit g of each of 32 bytes, moved to `place`, as group g of eight [n, 8, 32]."""
    n = len(packed)
    source = ops.copy(packed)
    moved = ops.bytes_like(packed, n, 8, 32)
    for group in range(8):
        moved[:, group] = source << (place - group) if group <= place else source >> (group - place)
    moved &= 1 << place
    return moved


def _scales_and_minima(ops: Ops, blocks: Array) -> tuple[Array, Array]:
    """The eight scales and minima [n, 8] of Q4_K and Q5_K, times the super-block's own.

    Of the 12 bytes, the first four hold scales 0-3 and the next four minima 0-3 in their low six bits; the
    last four hold the low halves of scales and minima 4-7, whose upper two bits are left in the first eight.
    """
    n = len(blocks)
    first, second, mixed = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales, minima = ops.bytes_like(blocks, n, 8), ops.bytes_like(blocks, n, 8)
    scales[:, :4] = first & 63
    scales[:, 4:] = (mixed & 15) | ((first >> 2) & 48)
    minima[:, :4] = second & 63
    minima[:, 4:] = (mixed >> 4) | ((second >> 2) & 48)
    steps, offsets = ops.f32(scales), ops.f32(minima)
    steps *= half(ops, blocks, 0)
    offsets *= half(ops, blocks, 2)
    return steps, offsets


def _six_bit_scales(ops: Ops, packed: Array) -> Array:
    """Sixteen signed scales from 12 bytes: eight of low halves, then four of upper pairs of bits; less 32."""
    scales = ops.bytes_like(packed, len(packed), 16)
    scales[:, :8] = packed[:, :8] & 15
    scales[:, 8:] = packed[:, :8] >> 4
    for group in range(4):
        scales[:, 4 * group : 4 * group + 4] |= ((packed[:, 8:] >> (2 * group)) & 3) << 4
    signed = scales.view(ops.int8)
    signed -= 32
    return signed
