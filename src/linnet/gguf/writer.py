"""Writing a GGUF file, tensor by tensor, through one buffer of a few megabytes."""

from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from linnet.files import StagedFile
from linnet.gguf.errors import GGUFError, file_errors_as_gguf, quoted
from linnet.gguf.header import DEFAULT_ALIGNMENT, MAX_DIMS, MAX_NAME_BYTES
from linnet.gguf.metadata import MetadataBlock, encode_text
from linnet.gguf.tensor import GGMLType, TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

WRITABLE = {"f32": GGMLType.F32, "f16": GGMLType.F16, "bf16": GGMLType.BF16, "q8_0": GGMLType.Q8_0}

# Values converted at a time: 4 MB of float32, which a processor's cache still holds when they are written.
_PIECE_VALUES = 1 << 20
_COPY_BYTES = 4 << 20
# Fewer values than this torch converts on the calling thread. One thread is quicker than any disk (10 GB/s and more);
# two that wait for each other fell to 0.7 GB/s on a busy machine, and training keeps a machine busy.
_QUIET_VALUES = (1 << 15) - 64
_BORROWED = ("float16", "float32", "float64")


class Rows(Protocol):
    """A tensor whose values are made or read when their turn comes: a part of another file, a folded lens."""

    @property
    def shape(self) -> tuple[int, ...]:
        """In torch's order."""

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """These rows of the first dimension, or all."""


@dataclass(frozen=True, slots=True)
class _Planned:
    name: str
    data: Any  # numpy array, torch tensor or Rows
    shape: tuple[int, ...]
    type: GGMLType
    nbytes: int


def writable_type(word: str, path: str | os.PathLike[str] | None = None) -> GGMLType:
    """The type of a file by its name, `f32` to `q8_0`; `path` is the file that an error names."""
    if word not in WRITABLE:
        raise GGUFError("the file type cannot be written", "type", " or ".join(WRITABLE), quoted(word), path)
    return WRITABLE[word]


def storage_type(name: str, shape: tuple[int, ...], wanted: GGMLType) -> GGMLType:
    """The type a tensor takes in a file of type `wanted`, as llama.cpp's own converters choose.

    One-dimensional tensors, position embeddings and image patches are float32 in every file: ggml's
    element-wise and convolution kernels take no other. A row whose length q8_0's blocks of 32 cannot hold
    becomes f16.
    """
    if len(shape) == 1 or "position_embd" in name or "patch_embd" in name:
        return GGMLType.F32
    if shape[-1] % wanted.block_values:
        return GGMLType.F16
    return wanted


class GGUFWriter:
    """Collects what a file will hold, then writes it in one pass.

        writer = GGUFWriter(metadata)
        writer.add("token_embd.weight", embedding, GGMLType.BF16)
        writer.write("model.gguf")

    Tensors are numpy arrays, torch tensors on any device, or `Rows`. They are looked at while writing and
    never copied whole, so do not change them between `add` and the end of `write`.
    """

    def __init__(self, metadata: MetadataBlock, *, alignment: int = DEFAULT_ALIGNMENT) -> None:
        if alignment < 32 or alignment & (alignment - 1):
            expected = "a power of two, 32 or more (ggml needs 32)"
            raise GGUFError("this alignment is not possible", "alignment", expected, str(alignment))
        self.metadata = metadata
        self.alignment = alignment
        self._planned: dict[str, _Planned] = {}

    def add(self, name: str, data: Any, type: GGMLType = GGMLType.F32) -> None:
        """Plan one tensor; what llama.cpp would refuse is refused here."""
        place = f"tensor {quoted(name)}"
        length = len(name.encode("utf-8"))
        if not 1 <= length <= MAX_NAME_BYTES:
            raise GGUFError("the name's length is wrong", place, f"1 to {MAX_NAME_BYTES} bytes", str(length))
        if name in self._planned:
            raise GGUFError("the tensor was given twice", place, "names that differ", quoted(name))
        shape = tuple(int(size) for size in data.shape)
        if not 1 <= len(shape) <= MAX_DIMS or 0 in shape:
            expected = f"1 to {MAX_DIMS} dimensions, each at least 1"
            raise GGUFError("the shape cannot be written", place, expected, str(shape))
        kept = isinstance(data, TensorInfo) and data.type is type  # bytes go over as they are, whatever the type
        if not kept:
            _check_type(place, data, shape, type)
        nbytes = math.prod(shape[:-1]) * type.row_bytes(shape[-1])
        self._planned[name] = _Planned(name, data, shape, type, nbytes)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the file; it has its name only when it is whole and on the disk."""
        size = sum(tensor.nbytes for tensor in self._planned.values())
        with file_errors_as_gguf(), StagedFile(path, size=size) as out:
            out.write(self.head())
            for tensor in self._planned.values():
                for piece in _pieces(tensor):
                    out.write(piece)
                    if tensor.type is not GGMLType.F32:  # the next piece is to be converted first
                        out.start_disk()
                out.write(bytes(-tensor.nbytes % self.alignment))
        return Path(path)

    def head(self) -> bytes:
        """Everything before the tensors' data."""
        metadata = self.metadata
        if self.alignment != DEFAULT_ALIGNMENT:
            metadata = MetadataBlock().u32("general.alignment", self.alignment).extend(metadata)
        parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(self._planned), len(metadata)), metadata.to_bytes()]
        offset = 0
        for tensor in self._planned.values():
            dims = tensor.shape[::-1]
            numbers = struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, tensor.type, offset)
            parts.append(encode_text(tensor.name) + numbers)
            offset += tensor.nbytes + -tensor.nbytes % self.alignment
        head = b"".join(parts)
        return head + bytes(-len(head) % self.alignment)


def _check_type(place: str, data: Any, shape: tuple[int, ...], type: GGMLType) -> None:
    label = type.name.lower()
    if type not in WRITABLE.values():
        raise GGUFError("the type cannot be written", place, " or ".join(WRITABLE), label)
    if len(shape) == 1 and type is not GGMLType.F32:
        problem = "llama.cpp aborts on a one-dimensional tensor of another type than f32"
        raise GGUFError(problem, place, "f32", label)
    if shape[-1] % type.block_values:
        expected = f"a multiple of {type.block_values} for {label}"
        raise GGUFError("the row does not fit the type's blocks", place, expected, str(shape[-1]))
    dtype = getattr(data, "dtype", None)
    if dtype is not None and not str(dtype).removeprefix("torch.").startswith(("float", "bfloat")):
        raise GGUFError("the values are of the wrong kind", place, "floats", str(dtype))


def _pieces(tensor: _Planned) -> Iterator[bytes | memoryview]:
    """The tensor's bytes in order: the caller's own memory, or one buffer's worth at a time."""
    data = tensor.data
    torch = sys.modules.get("torch")
    if isinstance(data, TensorInfo) and data.type is tensor.type:
        for start in range(0, data.nbytes, _COPY_BYTES):
            yield data.read_raw(start, min(start + _COPY_BYTES, data.nbytes))
        return
    if torch is not None and isinstance(data, torch.Tensor):
        source = data.detach()
        if tensor.type is GGMLType.F32 and source.dtype is torch.float32 and source.device.type == "cpu":
            data = source.numpy()  # shares the memory
        else:
            yield from _torch_pieces(torch, source, tensor)
            return
    if isinstance(data, np.ndarray):
        if tensor.type is GGMLType.F32 and data.dtype == np.dtype("<f4") and data.flags.c_contiguous:
            yield data.data.cast("B")
            return
        # torch takes no read-only arrays and no negative strides.
        borrowable = data.flags.writeable and min(data.strides) >= 0 and data.dtype.name in _BORROWED
        if torch is not None and hasattr(torch, "from_numpy") and borrowable:
            yield from _torch_pieces(torch, torch.from_numpy(data), tensor)
            return
    yield from _numpy_pieces(data, tensor)


def _torch_pieces(torch: Any, source: Any, tensor: _Planned) -> Iterator[memoryview]:
    """Convert with torch, several times quicker than numpy, piece by piece into one buffer."""
    from linnet.gguf.blocks import quantize_q8_0

    width = tensor.shape[-1]
    rows = source.reshape(-1, width)
    count = rows.shape[0]
    step = min(count, max(1, _PIECE_VALUES // width))
    quiet = max(1, _QUIET_VALUES // width) if source.device.type == "cpu" else step
    kinds = {GGMLType.F16: torch.float16, GGMLType.BF16: torch.bfloat16}
    buffer = torch.empty((step, width), dtype=kinds.get(tensor.type, torch.float32))
    for start in range(0, count, step):
        stop = min(start + step, count)
        piece = buffer[: stop - start]
        for first in range(start, stop, quiet):
            last = min(first + quiet, stop)
            piece[first - start : last - start].copy_(rows[first:last])
        if tensor.type is GGMLType.F16 and bool(piece.isinf().any()):
            _refuse_overflow(tensor, bool(rows[start:stop].isinf().any()))
        if tensor.type is GGMLType.Q8_0:
            yield quantize_q8_0(piece.numpy()).data.cast("B")
        else:
            yield piece.view(torch.uint8).numpy().data.cast("B")


def _numpy_pieces(data: Any, tensor: _Planned) -> Iterator[memoryview]:
    """The same without torch, and for `Rows`, which hand out float32 rows of the first dimension."""
    from linnet.gguf.blocks import quantize_q8_0, to_bf16, to_f16

    count, width = tensor.shape[0], math.prod(tensor.shape[1:])
    step = min(count, max(1, _PIECE_VALUES // width))
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        piece = data[rows] if isinstance(data, np.ndarray) else data.read(rows)
        values = np.ascontiguousarray(piece, dtype="<f4").reshape(-1, tensor.shape[-1])
        if tensor.type is GGMLType.Q8_0:
            yield quantize_q8_0(values).data.cast("B")
        elif tensor.type is GGMLType.BF16:
            yield to_bf16(values).data.cast("B")
        elif tensor.type is GGMLType.F16:
            halves = to_f16(values)
            if np.isinf(halves).any():
                _refuse_overflow(tensor, bool(np.isinf(values).any()))
            yield halves.data.cast("B")
        else:
            yield values.data.cast("B")


def _refuse_overflow(tensor: _Planned, was_infinite: bool) -> None:
    """A weight beyond f16's range must not become infinite unnoticed; one that was infinite may stay so."""
    if not was_infinite:
        problem = "a value is too large for f16; bf16 has the range of f32"
        raise GGUFError(problem, f"tensor {quoted(tensor.name)}", "values within ±65504", "a larger one")
