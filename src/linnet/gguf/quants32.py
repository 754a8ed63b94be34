"""The formats with one scale for 32 values: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL.

Every function takes whole blocks as bytes, `blocks [n, block_bytes]`, and fills `out [n, 32]` (float32).
Masks and shifts run over all the bytes of a block, scales included: one long pass beats many short ones.
"""

from __future__ import annotations

from linnet.gguf.arrays import Array, Ops

# The sixteen levels of the non-linear 4-bit formats.
IQ4_LEVELS = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def q8_0(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, 32 signed bytes."""
    out[...] = blocks[:, 2:].view(ops.int8)
    out *= half(ops, blocks, 0)


def q4_0(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, 16 bytes of two 4-bit values less 8: low halves are values 0-15, high ones 16-31."""
    for first, nibbles in ((0, blocks & 15), (16, blocks >> 4)):
        signed = nibbles.view(ops.int8)
        signed -= 8
        out[:, first : first + 16] = signed[:, 2:]
    out *= half(ops, blocks, 0)


def q4_1(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, half minimum, 16 bytes of two 4-bit values."""
    out[:, :16] = (blocks & 15)[:, 4:]
    out[:, 16:] = (blocks >> 4)[:, 4:]
    out *= half(ops, blocks, 0)
    out += half(ops, blocks, 2)


def q5_0(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, 32 fifth bits, 16 bytes of two low halves; values less 16."""
    signed = _five_bits(ops, blocks, 2).view(ops.int8)
    signed -= 16
    out[...] = signed
    out *= half(ops, blocks, 0)


def q5_1(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, half minimum, 32 fifth bits, 16 bytes of two low halves."""
    out[...] = _five_bits(ops, blocks, 4)
    out *= half(ops, blocks, 0)
    out += half(ops, blocks, 2)


def iq4_nl(ops: Ops, blocks: Array, out: Array) -> None:
    """Half scale, 16 bytes of two indices into the sixteen levels."""
    out[:, :16] = ops.lookup(IQ4_LEVELS, blocks[:, 2:] & 15)
    out[:, 16:] = ops.lookup(IQ4_LEVELS, blocks[:, 2:] >> 4)
    out *= half(ops, blocks, 0)


def half(ops: Ops, blocks: Array, at: int) -> Array:
    """The float16 at byte `at` of each block, as float32 [n, 1]."""
    return ops.f32(ops.view(blocks[:, at : at + 2], "float16"))


def _five_bits(ops: Ops, blocks: Array, at: int) -> Array:
    """Values 0-31 [n, 32] from four bytes of fifth bits at `at` and the 16 bytes of halves behind them."""
    values = ops.bytes_like(blocks, len(blocks), 32)
    values[:, :16] = (blocks & 15)[:, at + 4 :]
    values[:, 16:] = (blocks >> 4)[:, at + 4 :]
    fifths = ops.bits(blocks[:, at : at + 4])
    fifths <<= 4
    values |= fifths
    return values
