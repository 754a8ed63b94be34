"""Quantised blocks: any common type of GGUF to float32, and float32 to Q8_0, F16 and BF16.

`dequantize` takes the raw rows of a tensor as the file holds them. Rows are independent, so a range of rows
is decoded by slicing the raw bytes first; nothing else of the tensor is touched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from linnet.gguf import kquants, quants32
from linnet.gguf.arrays import Array, NumpyOps, Ops, TorchOps, is_tensor
from linnet.gguf.errors import GGUFError
from linnet.gguf.types import GGMLType

if TYPE_CHECKING:
    import torch


def _f32(ops: Ops, packed: Array, out: Array) -> None:
    out[...] = ops.view(packed, "float32")


def _f16(ops: Ops, packed: Array, out: Array) -> None:
    ops.widen_f16(packed, out)


def _bf16(ops: Ops, packed: Array, out: Array) -> None:
    ops.widen_bf16(packed, out)


# What can be read; the order is that of error messages.
_DECODERS: dict[GGMLType, Callable[[Ops, Array, Array], None]] = {
    GGMLType.F32: _f32,
    GGMLType.F16: _f16,
    GGMLType.BF16: _bf16,
    GGMLType.Q4_0: quants32.q4_0,
    GGMLType.Q4_1: quants32.q4_1,
    GGMLType.Q5_0: quants32.q5_0,
    GGMLType.Q5_1: quants32.q5_1,
    GGMLType.Q8_0: quants32.q8_0,
    GGMLType.Q2_K: kquants.q2_k,
    GGMLType.Q3_K: kquants.q3_k,
    GGMLType.Q4_K: kquants.q4_k,
    GGMLType.Q5_K: kquants.q5_k,
    GGMLType.Q6_K: kquants.q6_k,
    GGMLType.IQ4_NL: quants32.iq4_nl,
    GGMLType.IQ4_XS: kquants.iq4_xs,
}
READABLE = tuple(_DECODERS)

# Values decoded at a time. On a CPU a pass over this many stays in the second-level cache and the temporaries
# below 3 MB; a GPU wants fewer and longer kernels.
_CPU_VALUES = 192 * 1024
_GPU_VALUES = 4 * 1024 * 1024


@overload
def dequantize(
    raw: NDArray[np.uint8], type: GGMLType, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]: ...
@overload
def dequantize(raw: torch.Tensor, type: GGMLType, out: torch.Tensor | None = None) -> torch.Tensor: ...
def dequantize(raw: Any, type: GGMLType, out: Any = None) -> Any:
    """Decode `raw [rows, row_bytes]` (uint8) into float32 `[rows, values]`, on the device where `raw` is.

    Given `out`, the values are written there (C-contiguous, of that shape) and it is returned.
    """
    if type not in READABLE:
        known = ", ".join(readable.name for readable in READABLE)
        raise GGUFError(f"tensors of type {type.name} cannot be read; readable types: {known}")
    rows, values = _shape(raw, type)
    tensor = is_tensor(raw)
    if out is None:
        out = raw.new_empty((rows, values), dtype=_torch().float32) if tensor else np.empty((rows, values), np.float32)
    else:
        _check_out(raw, out, (rows, values))
    if tensor and raw.device.type == "cpu":  # the same memory as numpy arrays, which decode 2-4 times faster
        dequantize(raw.numpy(), type, out.numpy())
        return out
    at_once = _GPU_VALUES if tensor else _CPU_VALUES
    if _contiguous(raw):
        _decode(raw.reshape(-1, type.block_bytes), type, out.reshape(-1, type.block_values), at_once)
    else:
        step = max(1, at_once // max(values, 1))
        for row in range(0, rows, step):
            some = raw[row : row + step].reshape(-1, type.block_bytes)
            _decode(some, type, out[row : row + step].reshape(-1, type.block_values), at_once)
    return out


@overload
def quantize_q8_0(values: NDArray[np.float32]) -> NDArray[np.uint8]: ...
@overload
def quantize_q8_0(values: torch.Tensor) -> torch.Tensor: ...
def quantize_q8_0(values: Any) -> Any:
    """Encode float32 `[rows, values]` as Q8_0 rows of bytes, equal to the bit to ggml's reference."""
    _check_floats(values)
    rows, length = values.shape
    row_bytes = GGMLType.Q8_0.row_bytes(length)
    ops: Ops = TorchOps() if is_tensor(values) else NumpyOps()
    out = ops.bytes_like(values, rows, row_bytes)
    blocks, encoded = values.reshape(-1, 32), out.reshape(-1, 34)
    step = _CPU_VALUES // 32

    def encode_some(start: int) -> None:
        some, code = blocks[start : start + step], encoded[start : start + step]
        scale = ops.blocks_max(abs(some)) / 127
        inverse = 1 / scale
        inverse[scale == 0] = 0
        scaled = some * inverse
        # Rounds half away from zero, as C's roundf: the largest float below one half, then truncation.
        scaled += ops.copysign(0.49999997, scaled)
        code[:, 2:].view(ops.int8)[...] = scaled
        code[:, :2] = _bytes_of_halves(scale)

    _for_each(encode_some, range(0, len(blocks), step), threads=not is_tensor(values))
    return out


@overload
def to_f16(values: NDArray[np.float32]) -> NDArray[np.float16]: ...
@overload
def to_f16(values: torch.Tensor) -> torch.Tensor: ...
def to_f16(values: Any) -> Any:
    """Round float32 to the nearest float16, ties to even; beyond its range is infinity, NaN stays NaN."""
    if is_tensor(values):
        return values.to(_torch().float16)
    if _torch_can_take(values):
        return _torch().from_numpy(values).to(_torch().float16).numpy()
    with np.errstate(all="ignore"):
        return values.astype(np.float16)


@overload
def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]: ...
@overload
def to_bf16(values: torch.Tensor) -> torch.Tensor: ...
def to_bf16(values: Any) -> Any:
    """Round float32 to the nearest bfloat16, ties to even, as its 16 bits (uint16); NaN stays NaN."""
    if is_tensor(values):
        return values.to(_torch().bfloat16).view(_torch().uint16)
    if _torch_can_take(values):
        return _torch().from_numpy(values).to(_torch().bfloat16).view(_torch().uint16).numpy()
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    bits, out = flat.view(np.uint32), np.empty(flat.shape, np.uint16)

    step = _CPU_VALUES // 3  # three arrays of four bytes a value share the cache

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

    _for_each(round_some, range(0, len(flat), step), threads=True)
    return out.reshape(values.shape)


def _decode(blocks: Array, type: GGMLType, out: Array, at_once: int) -> None:
    """Fill `out [blocks, block_values]` some blocks at a time."""
    ops: Ops = TorchOps() if is_tensor(blocks) else NumpyOps()
    decoder = _DECODERS[type]
    step = at_once // type.block_values

    def decode_some(start: int) -> None:
        decoder(ops, blocks[start : start + step], out[start : start + step])

    _for_each(decode_some, range(0, len(blocks), step), threads=not is_tensor(blocks))


def _for_each(work: Callable[[int], None], starts: range, threads: bool) -> None:
    """Do the pieces of one job, on a few threads where numpy works: it lets go of the interpreter meanwhile.

    torch has threads of its own. Four keep the temporaries under 12 MB and are as many as memory can feed.
    Each takes a run of neighbouring pieces: side by side, two would both clear the same fresh page.
    """

    def do(some: range) -> None:
        with np.errstate(all="ignore"):  # a scale may be NaN or infinite; its values then are, silently
            for start in some:
                work(start)

    workers = min(4, os.cpu_count() or 1, len(starts)) if threads else 1
    if workers < 2:
        do(starts)
        return
    share = -(-len(starts) // workers)
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(do, (starts[first : first + share] for first in range(0, len(starts), share))):
            pass


def _shape(raw: Any, type: GGMLType) -> tuple[int, int]:
    """Rows, and values in a row, after checking that `raw` is two-dimensional bytes of whole blocks."""
    dtype = str(raw.dtype).removeprefix("torch.")
    if dtype != "uint8" or raw.ndim != 2:
        raise GGUFError(f"raw rows are uint8 of shape [rows, row_bytes], found {dtype} of shape {list(raw.shape)}")
    rows, row_bytes = raw.shape
    if row_bytes % type.block_bytes:
        raise GGUFError(
            f"a row of {type.name} is a multiple of {type.block_bytes} bytes"
            f" (a block of {type.block_values} values), found {row_bytes} bytes"
        )
    return rows, row_bytes // type.block_bytes * type.block_values


def _check_out(raw: Any, out: Any, shape: tuple[int, int]) -> None:
    """Refuse an `out` that the values do not fit into or would not reach."""
    dtype = str(out.dtype).removeprefix("torch.")
    if dtype != "float32" or tuple(out.shape) != shape or not _contiguous(out):
        raise GGUFError(
            f"out is contiguous float32 of shape {list(shape)}, found {dtype} of shape {list(out.shape)}"
            f"{'' if _contiguous(out) else ', not contiguous'}"
        )
    if is_tensor(raw) != is_tensor(out) or (is_tensor(raw) and raw.device != out.device):
        raise GGUFError("out is of the same kind (numpy or torch) and on the same device as the raw rows")


def _check_floats(values: Any) -> None:
    """Refuse anything but float32 in two dimensions."""
    dtype = str(values.dtype).removeprefix("torch.")
    if dtype != "float32" or values.ndim != 2:
        raise GGUFError(f"values are float32 of shape [rows, values], found {dtype} of shape {list(values.shape)}")


def _contiguous(array: Any) -> bool:
    """Whether the array is one run of memory in row order."""
    return bool(array.is_contiguous()) if is_tensor(array) else bool(array.flags.c_contiguous)


def _bytes_of_halves(scale: Array) -> Array:
    """The two bytes of each scale as float16 [n, 2]."""
    if is_tensor(scale):
        return scale.to(_torch().float16).view(_torch().uint8)
    return scale.astype(np.float16).view(np.uint8)


def _torch_can_take(values: NDArray[np.float32]) -> bool:
    """Whether torch is loaded and can round this array: with the CPU's own instruction, where numpy has none.

    It complains of arrays that cannot be written, such as views of a mapped file; those stay with numpy.
    """
    fits = values.dtype == np.float32 and values.flags.writeable and values.flags.c_contiguous
    return "torch" in sys.modules and bool(fits)


def _torch() -> Any:
    """Torch, which a tensor among the arguments proves to be loaded."""
    return cast(Any, sys.modules["torch"])
