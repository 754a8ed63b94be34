"""One tensor of an open GGUF file: what the table says of it, its values, and the tensor types of ggml."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.gguf.errors import GGUFError, quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from linnet.gguf.file import Source

# Quantised rows are read and unpacked in pieces of about this size: large enough to be quick, small enough for a cache.
_PIECE = 4 << 20


class GGMLType(IntEnum):
    """A tensor type: its number in a file's table, how many values a block holds, and how many bytes it takes.

    A tensor's row length is a multiple of `block_values`. Gaps in the numbers are types that ggml has removed.
    """

    block_values: int
    block_bytes: int

    # Defaults, because type checkers take `GGMLType(12)` for a call of this.
    def __new__(cls, number: int, block_values: int = 1, block_bytes: int = 1) -> GGMLType:  # noqa: D102
        member = int.__new__(cls, number)
        member._value_ = number
        member.block_values = block_values
        member.block_bytes = block_bytes
        return member

    F32 = 0, 1, 4
    F16 = 1, 1, 2
    Q4_0 = 2, 32, 2 + 16
    Q4_1 = 3, 32, 2 + 2 + 16
    Q5_0 = 6, 32, 2 + 4 + 16
    Q5_1 = 7, 32, 2 + 2 + 4 + 16
    Q8_0 = 8, 32, 2 + 32
    Q8_1 = 9, 32, 2 + 2 + 32
    Q2_K = 10, 256, 16 + 64 + 2 + 2
    Q3_K = 11, 256, 64 + 32 + 12 + 2
    Q4_K = 12, 256, 2 + 2 + 12 + 128
    Q5_K = 13, 256, 2 + 2 + 12 + 32 + 128
    Q6_K = 14, 256, 128 + 64 + 16 + 2
    Q8_K = 15, 256, 4 + 256 + 32
    IQ2_XXS = 16, 256, 2 + 64
    IQ2_XS = 17, 256, 2 + 64 + 8
    IQ3_XXS = 18, 256, 2 + 64 + 32
    IQ1_S = 19, 256, 2 + 32 + 16
    IQ4_NL = 20, 32, 2 + 16
    IQ3_S = 21, 256, 2 + 64 + 8 + 32 + 4
    IQ2_S = 22, 256, 2 + 64 + 16
    IQ4_XS = 23, 256, 2 + 2 + 128 + 4
    I8 = 24, 1, 1
    I16 = 25, 1, 2
    I32 = 26, 1, 4
    I64 = 27, 1, 8
    F64 = 28, 1, 8
    IQ1_M = 29, 256, 32 + 16 + 8
    BF16 = 30, 1, 2
    TQ1_0 = 34, 256, 4 + 48 + 2
    TQ2_0 = 35, 256, 64 + 2
    MXFP4 = 39, 32, 1 + 16

    def row_bytes(self, values: int) -> int:
        """Bytes of a row of `values` values."""
        if values % self.block_values:
            raise GGUFError(f"a row of {self.name} holds a multiple of {self.block_values} values, found {values}")
        return values // self.block_values * self.block_bytes


# llama.cpp's numbers for the type that most tensors of a file have, `general.file_type`.
FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12,
    "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "iq2_xxs": 19, "iq2_xs": 20,
    "q2_k_s": 21, "iq3_xs": 22, "iq3_xxs": 23, "iq1_s": 24, "iq4_nl": 25, "iq3_s": 26, "iq3_m": 27, "iq2_s": 28,
    "iq2_m": 29, "iq4_xs": 30, "iq1_m": 31, "bf16": 32, "tq1_0": 36, "tq2_0": 37, "mxfp4": 38,
}  # fmt: skip

_NUMPY_TYPES: dict[GGMLType, str] = {
    GGMLType.F32: "<f4",
    GGMLType.F16: "<f2",
    GGMLType.F64: "<f8",
    GGMLType.BF16: "<u2",  # numpy has no bfloat16: the sixteen bits as they are
    GGMLType.I8: "<i1",
    GGMLType.I16: "<i2",
    GGMLType.I32: "<i4",
    GGMLType.I64: "<i8",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, shape in torch's order (slowest first), type, and the byte range in the file."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int
    nbytes: int
    _source: Source = field(repr=False, compare=False)

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def raw(self) -> NDArray[np.uint8]:
        """The bytes as they lie in the file: a read-only view that copies nothing.

        The file must not be cut short while the view is in use (see `linnet.gguf.file`); `read` has no such limit.
        """
        return self._source.view(self.offset, self.nbytes, self._place)

    def array(self) -> NDArray[Any]:
        """A plain tensor (f32, f16, integers; bf16 as its sixteen bits) as a view that copies nothing."""
        if self.type not in _NUMPY_TYPES:
            expected = "a plain type; use read() for quantised ones"
            raise self._source.error("the tensor has no plain array", self._place, expected, self.type.name)
        return self.raw().view(_NUMPY_TYPES[self.type]).reshape(self.shape)

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """The values as float32, copied; with `rows`, only those of the first dimension are read."""
        start, stop, step = (rows or slice(None)).indices(self.shape[0])
        if step != 1:
            raise self._source.error("rows are read in order", self._place, "a step of 1", str(step))
        out = np.empty((max(0, stop - start), *self.shape[1:]), np.float32)
        self.read_into(out, start)
        return out

    def read_into(self, out: NDArray[np.float32], start: int = 0) -> None:
        """Fill `out` (float32, C order) with as many rows as it has, from row `start`."""
        if out.shape[1:] != self.shape[1:] or start + len(out) > self.shape[0]:
            expected, found = f"rows of {list(self.shape)}", f"{list(out.shape)} at {start}"
            raise self._source.error("the range leaves the tensor", self._place, expected, found)
        if len(self.shape) == 1 and self.type.block_values > 1:  # blocks do not end where a range of values does
            whole = np.empty((1, self.shape[0]), np.float32)
            self._read_rows(whole, 0, self.nbytes)
            out[...] = whole[0, start : start + len(out)]
        elif len(out):
            self._read_rows(out.reshape(len(out), -1), start, self.nbytes // self.shape[0])

    def read_raw(self, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` of the tensor's data, copied."""
        if not 0 <= start <= stop <= self.nbytes:
            expected = f"a range within {self.nbytes} bytes"
            raise self._source.error("the range leaves the tensor", self._place, expected, f"{start} to {stop}")
        return self._source.read(self.offset + start, stop - start, self._place)

    @property
    def _place(self) -> str:
        return f"tensor {quoted(self.name)}"

    def _read_rows(self, out: NDArray[np.float32], start: int, row_bytes: int) -> None:
        """Fill `out [rows, values]` from row `start` on, a piece at a time."""
        from linnet.gguf.blocks import READABLE, dequantize

        if self.type not in READABLE:
            expected = ", ".join(type.name for type in READABLE)
            raise self._source.error("the type cannot be read", self._place, expected, self.type.name)
        offset = self.offset + start * row_bytes
        if self.type is GGMLType.F32 and np.little_endian:
            self._source.read_into(offset, out.data.cast("B"), self._place)
            return
        step = max(1, _PIECE // row_bytes)
        buffer = np.empty((min(step, len(out)), row_bytes), np.uint8)
        for row in range(0, len(out), step):
            raw = buffer[: min(step, len(out) - row)]
            self._source.read_into(offset + row * row_bytes, raw.data.cast("B"), self._place)
            dequantize(raw, self.type, out=out[row : row + len(raw)])
