"""`Capture`: a value as it was when it was logged, to be encoded later by another thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linnet.files import open_regular

LARGEST = 64 << 20  # bytes of one value, or of one file


class MediaFile(NamedTuple):
    """The content of a file, and what its event says of it."""

    content: bytes
    suffix: str
    mime: str
    fields: dict[str, Any]


class Capture(NamedTuple):
    """A copy of what was logged: the bytes it holds, and what makes a file of it."""

    n_bytes: int
    encode: Callable[[], MediaFile]


class ArrayCopy(NamedTuple):
    """A copy of an array: its shape and size are known at once, its numbers perhaps later (see `copy_array`)."""

    shape: tuple[int, ...]
    n_bytes: int
    channels_first: bool  # it comes from a library that has channels before rows
    numbers: Callable[[], NDArray[Any]]


def copy_array(value: Any, most: int | None = None) -> ArrayCopy:
    """Copy an array, a tensor of any framework, or nested lists of numbers; a later change in place does not show.

    A tensor on a GPU is copied there, in the order of its stream, and brought over by whoever asks for the numbers: the
    caller never waits for the device. `most`: of more numbers every n-th is taken, flat.
    """
    if callable(getattr(value, "detach", None)) and callable(getattr(value, "cpu", None)):
        return _copy_tensor(value.detach(), most)
    if not isinstance(value, np.ndarray):
        return _plain_copy(np.asarray(value), most, own=not hasattr(value, "__array__"))
    return _plain_copy(value, most)


def _plain_copy(array: NDArray[Any], most: int | None, own: bool = False, channels_first: bool = False) -> ArrayCopy:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"expected numbers, found {array.dtype}")
    if most is not None and array.size > most:
        array = array.reshape(-1)[:: -(-array.size // most)]
    _refuse_larger(array.nbytes)
    copied = array if own else np.array(array)
    return ArrayCopy(copied.shape, copied.nbytes, channels_first, lambda: copied)


def _copy_tensor(tensor: Any, most: int | None) -> ArrayCopy:
    if most is not None and tensor.numel() > most:
        tensor = tensor.reshape(-1)[:: -(-tensor.numel() // most)]
    if not getattr(tensor, "is_cuda", False):
        return _plain_copy(_numpy(tensor.cpu()), None, channels_first=True)
    _refuse_larger(tensor.numel() * tensor.element_size())
    cuda = sys.modules["torch"].cuda
    copied, ready = tensor.clone(), cuda.Event()
    ready.record(cuda.current_stream(tensor.device))

    def numbers() -> NDArray[Any]:
        ready.synchronize()
        return _numpy(copied.cpu())

    return ArrayCopy(tuple(copied.shape), copied.numel() * copied.element_size(), True, numbers)


def _numpy(tensor: Any) -> NDArray[Any]:
    """The numbers of a tensor in main memory; bfloat16 and its like, which numpy lacks, as float32."""
    try:
        array: NDArray[Any] = tensor.numpy()
    except TypeError:
        array = tensor.float().numpy()
    return array


def _refuse_larger(n_bytes: int) -> None:
    if n_bytes > LARGEST:
        raise ValueError(f"expected at most {LARGEST >> 20} MB, found {n_bytes >> 20} MB")


def read_bounded(path: str | os.PathLike[str], largest: int = LARGEST) -> bytes:
    """The content of a regular file; ValueError for one that is larger than `largest`."""
    with os.fdopen(open_regular(os.fspath(path)), "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"expected a file of at most {largest >> 20} MB, found a larger one")
    return content
