"""The few operations in which numpy arrays and torch tensors differ: each block format is written once.

torch is never imported here: a tensor can only reach us from a program that has loaded torch itself.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# A numpy array or a torch tensor. The block formats use only what both spell alike: slices, shifts, masks,
# in-place arithmetic, and assignment that converts.
Array = Any


class Ops(Protocol):
    """What a block format may ask for beyond operators and slices."""

    int8: Any

    def bytes_like(self, blocks: Array, *shape: int) -> Array:
        """Give uninitialised uint8 of `shape`, on the device of `blocks`."""

    def f32(self, array: Array) -> Array:
        """Copy as float32."""

    def view(self, array: Array, name: str) -> Array:
        """Reinterpret the bytes of the last axis as the dtype called `name`."""

    def repeat(self, array: Array, times: int) -> Array:
        """Write each value of the last axis `times` times in a row."""

    def lookup(self, table: list[int], index: Array) -> Array:
        """Replace each byte of `index` by its int8 entry in `table`."""

    def bits(self, packed: Array) -> Array:
        """Write each byte of the last axis as its eight bits, lowest first."""

    def widen_f16(self, packed: Array, out: Array) -> None:
        """Fill float32 `out` from the bytes of float16."""

    def widen_bf16(self, packed: Array, out: Array) -> None:
        """Fill float32 `out` from the bytes of bfloat16."""

    def copy(self, array: Array) -> Array:
        """Make a contiguous copy."""

    def blocks_max(self, array: Array) -> Array:
        """Maximum over the last axis, kept as an axis of one."""

    def copysign(self, magnitude: float, sign: Array) -> Array:
        """`magnitude` with the signs of `sign`."""


class NumpyOps:
    """`Ops` for numpy arrays."""

    int8 = np.int8

    def bytes_like(self, blocks: Array, *shape: int) -> Array:
        """See `Ops`."""
        return np.empty(shape, np.uint8)

    def f32(self, array: Array) -> Array:
        """See `Ops`."""
        return array.astype(np.float32)

    def view(self, array: Array, name: str) -> Array:
        """See `Ops`."""
        return array.view(np.dtype(name))

    def repeat(self, array: Array, times: int) -> Array:
        """See `Ops`."""
        return np.repeat(array, times, axis=-1)

    def lookup(self, table: list[int], index: Array) -> Array:
        """See `Ops`."""
        return np.array(table, np.int8)[index]

    def bits(self, packed: Array) -> Array:
        """See `Ops`."""
        return np.unpackbits(packed, axis=-1, bitorder="little")

    def widen_f16(self, packed: Array, out: Array) -> None:
        """See `Ops`; by a table of all 65,536 halves, because numpy converts them one by one."""
        np.take(_all_halves(), packed.view(np.uint16), out=out, mode="clip")

    def widen_bf16(self, packed: Array, out: Array) -> None:
        """See `Ops`."""
        bits = out.view(np.uint32)
        bits[...] = packed.view(np.uint16)
        bits <<= 16

    def copy(self, array: Array) -> Array:
        """See `Ops`."""
        return array.copy()

    def blocks_max(self, array: Array) -> Array:
        """See `Ops`; by halving, because numpy reduces a short last axis one value at a time."""
        while (width := array.shape[-1]) > 1:
            array = np.maximum(array[..., : width // 2], array[..., width // 2 :])
        return array

    def copysign(self, magnitude: float, sign: Array) -> Array:
        """See `Ops`."""
        return np.copysign(np.float32(magnitude), sign)


class TorchOps:
    """`Ops` for torch tensors on any device."""

    def __init__(self) -> None:
        self.torch = sys.modules["torch"]
        self.int8 = self.torch.int8

    def bytes_like(self, blocks: Array, *shape: int) -> Array:
        """See `Ops`."""
        return blocks.new_empty(shape, dtype=self.torch.uint8)

    def f32(self, array: Array) -> Array:
        """See `Ops`."""
        return array.to(self.torch.float32)

    def view(self, array: Array, name: str) -> Array:
        """See `Ops`; through a copy, because torch wants the storage aligned to the wider type."""
        return self.copy(array).view(getattr(self.torch, name))

    def repeat(self, array: Array, times: int) -> Array:
        """See `Ops`."""
        return array.repeat_interleave(times, dim=-1)

    def lookup(self, table: list[int], index: Array) -> Array:
        """See `Ops`."""
        return self.torch.tensor(table, dtype=self.torch.int8, device=index.device)[index.int()]

    def bits(self, packed: Array) -> Array:
        """See `Ops`."""
        places = self.torch.arange(8, dtype=self.torch.uint8, device=packed.device)
        return ((packed[..., None] >> places) & 1).flatten(-2)

    def widen_f16(self, packed: Array, out: Array) -> None:
        """See `Ops`."""
        out.copy_(self.view(packed, "float16"))

    def widen_bf16(self, packed: Array, out: Array) -> None:
        """See `Ops`."""
        out.copy_(self.view(packed, "bfloat16"))

    def copy(self, array: Array) -> Array:
        """See `Ops`."""
        return array.clone(memory_format=self.torch.contiguous_format)

    def blocks_max(self, array: Array) -> Array:
        """See `Ops`."""
        return array.amax(dim=-1, keepdim=True)

    def copysign(self, magnitude: float, sign: Array) -> Array:
        """See `Ops`."""
        return self.torch.copysign(sign.new_tensor(magnitude), sign)


@cache
def _all_halves() -> NDArray[np.float32]:
    return np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


def is_tensor(array: object) -> bool:
    """Say whether `array` is a torch tensor, without loading torch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)
