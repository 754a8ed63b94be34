"""One tensor of an open GGUF file: what the table says of it, and its values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.gguf.errors import quoted
from linnet.gguf.source import Source
from linnet.gguf.types import GGMLType

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Quantised rows are read and unpacked in pieces of about this size: large enough to be quick, small enough
# for a cache.
_PIECE = 4 << 20

_PLAIN: dict[GGMLType, str] = {
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

        The file must not be cut short while the view is in use (see `linnet.gguf.source`); `read` has no such
        limit.
        """
        return self._source.view(self.offset, self.nbytes, self._place)

    def array(self) -> NDArray[Any]:
        """A plain tensor (f32, f16, integers; bf16 as its sixteen bits) as a view that copies nothing."""
        if self.type not in _PLAIN:
            expected = "a plain type; use read() for quantised ones"
            raise self._source.error("the tensor has no plain array", self._place, expected, self.type.name)
        return self.raw().view(_PLAIN[self.type]).reshape(self.shape)

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
        if (
            len(self.shape) == 1 and self.type.block_values > 1
        ):  # blocks do not end where a range of values does
            whole = np.empty((1, self.shape[0]), np.float32)
            self._read_rows(whole, 0, self.nbytes)
            out[...] = whole[0, start : start + len(out)]
        elif len(out):
            self._read_rows(out.reshape(len(out), -1), start, self.nbytes // self.shape[0])

    def read_raw(self, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` of the tensor's data, copied."""
        if not 0 <= start <= stop <= self.nbytes:
            expected = f"a range within {self.nbytes} bytes"
            raise self._source.error(
                "the range leaves the tensor", self._place, expected, f"{start} to {stop}"
            )
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
        at = self.offset + start * row_bytes
        if self.type is GGMLType.F32 and np.little_endian:
            self._source.read_into(at, out.data.cast("B"), self._place)
            return
        step = max(1, _PIECE // row_bytes)
        piece = np.empty((min(step, len(out)), row_bytes), np.uint8)
        for row in range(0, len(out), step):
            here = piece[: min(step, len(out) - row)]
            self._source.read_into(at + row * row_bytes, here.data.cast("B"), self._place)
            dequantize(here, self.type, out=out[row : row + len(here)])
