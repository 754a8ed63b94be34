"""IDX files, as MNIST and its family come: a magic number, the counts, the bytes; packed with gzip or not."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.errors import DataError, reason
from linnet.data.memory import require_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAME = re.compile(r"(?P<before>.*)images[-.]idx3-ubyte(?P<gz>\.gz)?", re.IGNORECASE)
_DEFLATE = 1032  # times its size: the most that gzip packs
_HELD_OUT = ("t10k", "test", "val")


@dataclass(frozen=True)
class IdxPair:
    """A file of images, that of their labels, and whether they are for testing."""

    images: Path
    labels: Path
    held_out: bool


def idx_pairs(place: Path) -> list[IdxPair]:
    """The pairs in a folder, or the one that a file of images belongs to."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    images = [file for file in files if _NAME.fullmatch(file.name)]
    # A file and its unpacked copy are the same images.
    single = [file for file in images if file.suffix != ".gz" or file.with_suffix("") not in images]
    return [IdxPair(file, _labels_of(file), _is_test(file.name.lower())) for file in single]


def _is_test(name: str) -> bool:
    return name.startswith(_HELD_OUT) or "-test-" in name


def _labels_of(images: Path) -> Path:
    match = _NAME.fullmatch(images.name)
    assert match is not None
    stems = [match["before"] + f"labels{mark}idx1-ubyte" for mark in "-."]
    for name in (name + end for name in stems for end in ("", ".gz")):
        if images.with_name(name).is_file():
            return images.with_name(name)
    raise DataError(f"{images}: its labels are not there: expected {stems[0]}, or that with .gz, beside it")


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The bytes of a file with so many dimensions: 3 for images, 1 for labels."""
    with _opened(path) as file:
        shape = _stated(path, file, dimensions)
        expected = math.prod(shape)
        require_memory(path, 2 * expected, _counts(shape))  # they are copied once, to be split
        raw = file.read(expected + 1)
    if len(raw) != expected:
        how, found = ("truncated", f"{len(raw):,}") if len(raw) < expected else ("too long", "more")
        raise DataError(f"{path}: {how}: expected {_counts(shape)} = {expected:,} bytes, found {found}")
    return np.frombuffer(raw, np.uint8).reshape(shape)


@contextmanager
def _opened(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    try:
        with gzip.open(path) if _is_packed(path) else path.open("rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise DataError(f"{path}: cannot be read: {why}") from None


def _stated(path: Path, file: gzip.GzipFile | BufferedReader, dimensions: int) -> tuple[int, ...]:
    """The counts in the head of a file, held against its size before anything is made of them."""
    head = 4 + 4 * dimensions
    shape = idx_shape(path, file.read(head), dimensions)
    expected, stored = math.prod(shape), path.stat().st_size
    there = stored * _DEFLATE if _is_packed(path) else stored - head
    if there < expected:
        at_most = "at most " if _is_packed(path) else ""
        raise DataError(f"{path}: truncated: expected {_counts(shape)} = {expected:,} bytes, found {at_most}{there:,}")
    return shape


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _counts(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def idx_shape(path: Path, raw: bytes, dimensions: int) -> tuple[int, ...]:
    """The counts that the beginning of a file states."""
    magic = 0x800 + dimensions  # 8: unsigned bytes
    if len(raw) < 4 + 4 * dimensions or int.from_bytes(raw[:4], "big") != magic:
        found = f"0x{raw[:4].hex()}" if raw else "nothing"
        what = "images" if dimensions == 3 else "labels"
        raise DataError(f"{path}: not an IDX file of {what}: expected the magic number 0x{magic:08x}, found {found}")
    return tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))


def peek_idx(path: Path) -> tuple[int, ...]:
    """The shape of a file of images, without reading it."""
    with _opened(path) as file:
        return _stated(path, file, 3)


def read_pair(pair: IdxPair) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, 1, H, W] and their labels."""
    images_NHW, labels_N = read_idx(pair.images, 3), read_idx(pair.labels, 1)
    if len(images_NHW) != len(labels_N):
        raise DataError(
            f"{pair.images} has {len(images_NHW):,} images and {pair.labels.name} {len(labels_N):,} labels:"
            " they do not belong together"
        )
    return images_NHW[:, None], labels_N.astype(np.int64)
