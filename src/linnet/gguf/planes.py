"""`Planes`: a quantised matrix taken apart into codes and scales, in the layout that is decoded fastest in memory.

A file keeps each block of a row with its scale beside it, in a dozen formats. For a matrix that is decoded at every
use, all of them become the same few arrays, transposed, so that neighbours in memory have scales of their own and whole
arrays are worked on at once: w = (code − offset) · scale ± minimum. Bits are moved and none is lost: what is decoded
equals `blocks.dequantize` to the bit. Shapes: M rows of the matrix, K values of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linnet.gguf.blocks import (
    IQ4_LEVELS,
    Bytes,
    five_bits,
    k_scales_and_minima,
    one_bit,
    six_bit_scales,
    two_bits,
)
from linnet.gguf.errors import GGUFError
from linnet.gguf.tensor import GGMLType

_ROWS = 4096  # taken apart at a time


@dataclass(frozen=True)
class Planes:
    """The arrays of a matrix, and how they are to be read.

    - `low` [K · bits / 8, M]: the low `bits` (2, 4 or 8) of each code. A byte holds the codes of 8 / bits values that
      are K · bits / 8 apart. `high` [K · high_bits / 8, M]: the bits above them, likewise.
    - `offset`: what is subtracted from a code; `levels`: a code is an index into these instead.
    - `scale`, `minimum` [K / block, M]: float16. `minimum_sign`: whether it is added or subtracted; 0: there is none.
    - `sub_scale`, `sub_minimum` [K / group, M]: small whole numbers that scale and minimum are multiplied by.
    """

    low: Bytes
    scale: NDArray[np.float16]
    bits: int
    group: int
    block: int
    offset: int = 0
    high_bits: int = 0
    minimum_sign: int = 0
    levels: tuple[int, ...] = ()
    high: Bytes | None = None
    minimum: NDArray[np.float16] | None = None
    sub_scale: NDArray[np.int8] | None = None
    sub_minimum: NDArray[np.int8] | None = None

    @property
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The arrays by their names, those that there are."""
        names = ("low", "high", "scale", "minimum", "sub_scale", "sub_minimum")
        return {name: array for name in names if (array := getattr(self, name)) is not None}


def split(raw: Bytes, type: GGMLType) -> Planes:
    """Take the rows of a tensor apart: `raw [M, row_bytes]` as the file holds them."""
    if type not in SPLITTABLE:
        known = ", ".join(kind.name for kind in SPLITTABLE)
        raise GGUFError(f"tensors of type {type.name} cannot stay quantised; such types: {known}")
    if raw.dtype != np.uint8 or raw.ndim != 2 or raw.shape[1] % type.block_bytes or not len(raw):
        problem = f"raw rows of {type.name} are uint8 of shape [rows, a multiple of {type.block_bytes}]"
        raise GGUFError(f"{problem}, found {raw.dtype} of shape {list(raw.shape)}")
    parts = [_split_rows(raw[start : start + _ROWS], type) for start in range(0, len(raw), _ROWS)]
    return parts[0] if len(parts) == 1 else join(parts)


def join(parts: list[Planes]) -> Planes:
    """Matrices of one type, one below the other."""
    joined: dict[str, Any] = {
        name: np.concatenate([part.arrays[name] for part in parts], axis=1) for name in parts[0].arrays
    }
    return replace(parts[0], **joined)


@dataclass(frozen=True)
class _Blocks:
    """Some blocks taken apart: codes [n, values], scales [n], what they are multiplied by [n, values / group]."""

    codes: Bytes
    scale: Bytes
    minimum: Bytes | None = None
    sub_scale: Bytes | NDArray[np.int8] | None = None
    sub_minimum: Bytes | NDArray[np.int8] | None = None


def _split_rows(raw: Bytes, type: GGMLType) -> Planes:
    form, take_apart = _FORMS[type]
    M, per_row = len(raw), raw.shape[1] // type.block_bytes
    blocks = take_apart(np.ascontiguousarray(raw).reshape(-1, type.block_bytes))
    codes_KM = np.ascontiguousarray(blocks.codes.reshape(M, -1).T)
    low_bits = codes_KM & np.uint8((1 << form.bits) - 1) if form.high_bits else codes_KM
    return replace(
        form,
        low=_packed(low_bits, form.bits),
        high=_packed(codes_KM >> np.uint8(form.bits), form.high_bits) if form.high_bits else None,
        scale=_halves(blocks.scale, M, per_row),
        minimum=None if blocks.minimum is None else _halves(blocks.minimum, M, per_row),
        sub_scale=_signed(blocks.sub_scale, M),
        sub_minimum=_signed(blocks.sub_minimum, M),
    )


def _packed(codes_KM: Bytes, bits: int) -> Bytes:
    """Codes of so many bits, those of values that are far apart in one byte."""
    rows = len(codes_KM) * bits // 8
    packed = codes_KM[:rows].copy()
    for slot in range(1, 8 // bits):
        packed |= codes_KM[slot * rows : (slot + 1) * rows] << np.uint8(slot * bits)
    return packed


def _halves(scales: Bytes, rows: int, per_row: int) -> NDArray[np.float16]:
    """Two bytes of each block as float16, transposed."""
    return np.ascontiguousarray(np.ascontiguousarray(scales).view(np.float16).reshape(rows, per_row).T)


def _signed(numbers: Bytes | NDArray[np.int8] | None, rows: int) -> NDArray[np.int8] | None:
    return None if numbers is None else np.ascontiguousarray(numbers.view(np.int8).reshape(rows, -1).T)


# -- formats ----------------------------------------------------------------------------------------------------------


def _four_bits(blocks: Bytes) -> Bytes:
    """16 bytes of two codes: low halves are values 0-15, high ones 16-31."""
    return np.concatenate((blocks & 15, blocks >> 4), axis=1)


def _four_bits_of_256(blocks: Bytes) -> Bytes:
    """128 bytes of two codes, 32 low halves before 32 high ones."""
    pairs = blocks.reshape(-1, 4, 32)
    return np.stack((pairs & 15, pairs >> 4), axis=2).reshape(-1, 256)


def _q8_0(blocks: Bytes) -> _Blocks:
    return _Blocks(blocks[:, 2:], blocks[:, :2])


def _q4_0(blocks: Bytes) -> _Blocks:
    return _Blocks(_four_bits(blocks[:, 2:]), blocks[:, :2])


def _q4_1(blocks: Bytes) -> _Blocks:
    return _Blocks(_four_bits(blocks[:, 4:]), blocks[:, :2], blocks[:, 2:4])


def _q5_0(blocks: Bytes) -> _Blocks:
    return _Blocks(five_bits(blocks, 2), blocks[:, :2])


def _q5_1(blocks: Bytes) -> _Blocks:
    return _Blocks(five_bits(blocks, 4), blocks[:, :2], blocks[:, 2:4])


def _q2_k(blocks: Bytes) -> _Blocks:
    codes = two_bits(blocks[:, 16:80]).reshape(-1, 256)
    return _Blocks(codes, blocks[:, 80:82], blocks[:, 82:84], blocks[:, :16] & 15, blocks[:, :16] >> 4)


def _q3_k(blocks: Bytes) -> _Blocks:
    codes = two_bits(blocks[:, 32:96]) | one_bit(blocks[:, :32], 2).reshape(-1, 2, 4, 32)
    return _Blocks(codes.reshape(-1, 256), blocks[:, 108:110], sub_scale=six_bit_scales(blocks[:, 96:108]))


def _q4_k(blocks: Bytes) -> _Blocks:
    return _Blocks(_four_bits_of_256(blocks[:, 16:]), blocks[:, :2], blocks[:, 2:4], *k_scales_and_minima(blocks))


def _q5_k(blocks: Bytes) -> _Blocks:
    codes = _four_bits_of_256(blocks[:, 48:]) | one_bit(blocks[:, 16:48], 4).reshape(-1, 256)
    return _Blocks(codes, blocks[:, :2], blocks[:, 2:4], *k_scales_and_minima(blocks))


def _q6_k(blocks: Bytes) -> _Blocks:
    """128 bytes of two low halves, 64 of four upper pairs of bits, 16 signed scales."""
    low, upper = blocks[:, :128].reshape(-1, 2, 2, 32), blocks[:, 128:192].reshape(-1, 2, 32)
    codes = np.concatenate((low & 15, low >> 4), axis=2)
    for group in range(4):
        codes[:, :, group] |= ((upper >> (2 * group)) & 3) << 4
    return _Blocks(codes.reshape(-1, 256), blocks[:, 208:210], sub_scale=blocks[:, 192:208])


def _iq4_nl(blocks: Bytes) -> _Blocks:
    return _Blocks(_four_bits(blocks[:, 2:]), blocks[:, :2])


def _iq4_xs(blocks: Bytes) -> _Blocks:
    pairs = blocks[:, 8:].reshape(-1, 8, 16)
    codes = np.concatenate((pairs & 15, pairs >> 4), axis=2).reshape(-1, 256)
    sub = np.empty((len(blocks), 8), np.uint8)
    sub[:, 0::2], sub[:, 1::2] = blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4
    for group in range(8):
        sub[:, group] |= ((blocks[:, 2 + group // 4] >> (2 * (group % 4))) & 3) << 4
    return _Blocks(codes, blocks[:, :2], sub_scale=sub.view(np.int8) - np.int8(32))


def _form(bits: int, group: int, block: int, **fields: int | tuple[int, ...]) -> Planes:
    """How the planes of a type are to be read; the arrays are still to come."""
    nothing = np.empty((0, 0), np.uint8)
    return replace(Planes(nothing, nothing.view(np.float16), bits, group, block), **fields)  # type: ignore[arg-type]


_LEVELS = tuple(IQ4_LEVELS.tolist())
# A sub-scale that the file stores as it is has no offset: 6-bit scales of Q3_K and IQ4_XS are less 32 already.
_FORMS: dict[GGMLType, tuple[Planes, Callable[[Bytes], _Blocks]]] = {
    GGMLType.Q8_0: (_form(8, 32, 32), _q8_0),
    GGMLType.Q4_0: (_form(4, 32, 32, offset=8), _q4_0),
    GGMLType.Q4_1: (_form(4, 32, 32, minimum_sign=1), _q4_1),
    GGMLType.Q5_0: (_form(4, 32, 32, high_bits=1, offset=16), _q5_0),
    GGMLType.Q5_1: (_form(4, 32, 32, high_bits=1, minimum_sign=1), _q5_1),
    GGMLType.Q2_K: (_form(2, 16, 256, minimum_sign=-1), _q2_k),
    GGMLType.Q3_K: (_form(2, 16, 256, high_bits=1, offset=4), _q3_k),
    GGMLType.Q4_K: (_form(4, 32, 256, minimum_sign=-1), _q4_k),
    GGMLType.Q5_K: (_form(4, 32, 256, high_bits=1, minimum_sign=-1), _q5_k),
    GGMLType.Q6_K: (_form(4, 16, 256, high_bits=2, offset=32), _q6_k),
    GGMLType.IQ4_NL: (_form(4, 32, 32, levels=_LEVELS), _iq4_nl),
    GGMLType.IQ4_XS: (_form(4, 32, 256, levels=_LEVELS), _iq4_xs),
}
SPLITTABLE = tuple(_FORMS)
