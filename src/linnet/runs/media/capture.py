"""`Capture`: a value as it was when it was logged, to be encoded later by another thread."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGEST = 64 << 20  # bytes of one value, or of one file


class MediaFile(NamedTuple):
    """The content of a file, and what its event says of it."""

    content: bytes
    suffix: str
    mime: str
    fields: dict[str, Any]


def _nothing() -> None:
    pass


class Capture(NamedTuple):
    """A copy of what was logged: the bytes it holds, what makes a file of it, and what frees its memory after that."""

    n_bytes: int
    encode: Callable[[], MediaFile]
    release: Callable[[], None] = _nothing


class ArrayCopy(NamedTuple):
    """A copy of an array: its shape and size are known at once, its numbers perhaps later (see `copy_array`).

    `release`: nobody looks at the numbers any more, and the next copy may take their memory.
    """

    shape: tuple[int, ...]
    n_bytes: int
    channels_first: bool  # it comes from a library that has channels before rows
    numbers: Callable[[], NDArray[Any]]
    release: Callable[[], None] = _nothing


# Memory of copies that are done with: the first touch of new memory takes several times as long as the copying.
_free: deque[NDArray[np.uint8]] = deque(maxlen=8)
_REUSED = range(1 << 16, 1 << 21)  # bytes of a copy whose memory is kept for the next


def _memory(n_bytes: int) -> NDArray[np.uint8]:
    for _ in range(len(_free)):
        try:
            memory = _free.popleft()
        except IndexError:  # another thread took the last
            break
        if memory.nbytes == n_bytes:
            return memory
        _free.append(memory)
    return np.empty(n_bytes, np.uint8)


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
    if own or array.nbytes not in _REUSED:
        copied = array if own else np.array(array)
        return ArrayCopy(copied.shape, copied.nbytes, channels_first, lambda: copied)
    memory = _memory(array.nbytes)
    reused = memory.view(array.dtype).reshape(array.shape)
    np.copyto(reused, array)
    return ArrayCopy(array.shape, array.nbytes, channels_first, lambda: reused, lambda: _free.append(memory))


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
