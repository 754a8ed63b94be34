"""Images that come as arrays: scikit-learn's digits, `.npz`, and IDX files as MNIST and its family come."""

from __future__ import annotations

import gzip
import importlib.util
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linnet.data.errors import DataError, reason, require_memory
from linnet.errors import error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS = "digits"
Part = tuple["NDArray[np.uint8]", "NDArray[np.int64]"]  # images [N, C, H, W] and the number of each one's class


class ImageArrays(NamedTuple):
    """Where images lie as arrays: `shape()` is N, H, W and perhaps more, without reading them; `read()` the parts.

    One part is divided later; of two the second is held out.
    """

    shape: Callable[[], tuple[int, ...]]
    read: Callable[[], list[Part]]


def find_image_arrays(source: str) -> ImageArrays | None:
    """The digits, an `.npz` or IDX files (a folder, or one file of images); None for anything else."""
    path = Path(source)
    if source == DIGITS and not path.exists():
        return ImageArrays(lambda: (1797, 8, 8), lambda: [_read_digits()])
    if path.suffix == ".npz":
        return ImageArrays(lambda: _npz_image_shape(path), lambda: _read_npz(path))
    pairs = _idx_pairs(path) if path.exists() else []
    if pairs:
        return ImageArrays(lambda: _idx_shape(pairs[0].images), lambda: _read_idx_pairs(path, pairs))
    return None


def _read_digits() -> Part:
    """scikit-learn's 1,797 scanned digits, read from its file: importing the library would take longer than reading."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise DataError("the digits are a file of scikit-learn, which is not installed: pip install 'linnet[vision]'")
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the digits cannot be read: {error}") from None
    pixels = (table[:, :64] * 255 + 8) // 16  # sixteen shades
    return pixels.astype(np.uint8).reshape(-1, 1, 8, 8), table[:, 64]


# -- .npz -------------------------------------------------------------------------------------------------------------

_NAMES = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("images", "labels"),
    ("x", "y"),
    ("data", "target"),
)

# What numpy's parser, which is Python's own, raises for a header that is none.
_NO_HEADER = (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError)


@dataclass(frozen=True)
class _Member:
    """An array of an archive, as its header states it."""

    file_name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def words(self) -> str:
        return f"{self.dtype} {_counts(self.shape)}"


def _npz_image_shape(path: Path) -> tuple[int, ...]:
    """The shape of the images, without unpacking them."""
    with _open_npz(path) as archive:
        return _members(path, archive)[0].shape


def _read_npz(path: Path) -> list[Part]:
    """One set, or two. All that the headers of the arrays state is looked at before one of them is unpacked."""
    with _open_npz(path) as archive:
        members = _members(path, archive)
        for images, labels in zip(members[::2], members[1::2], strict=True):
            _check(path, images, labels)
        need = sum(math.prod(member.shape) * member.dtype.itemsize for member in members)
        require_memory(path, 2 * need, f"its arrays, {members[0].words},")  # they are copied once, to be split
        arrays = [_array(archive, member) for member in members]
    return [_part(path, *pair) for pair in zip(arrays[::2], arrays[1::2], strict=True)]


@contextmanager
def _open_npz(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except DataError:
        raise
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            is_npy = file.read(6) == b"\x93NUMPY"
        why = "it is a single array (.npy): save images and labels together with numpy.savez" if is_npy else str(error)
        raise DataError(f"{path}: cannot be read as .npz: {why}") from None
    except Exception as error:  # zipfile, its decoders and numpy's parser raise a dozen kinds for a damaged file
        why = error.strerror if isinstance(error, OSError) and error.strerror else error_text(error)
        raise DataError(f"{path}: cannot be read as .npz: {why or type(error).__name__}") from None


def _members(path: Path, archive: zipfile.ZipFile) -> list[_Member]:
    """Images and labels, for training and perhaps for testing: two or four arrays."""
    stored = {name.removesuffix(".npy") for name in archive.namelist()}
    for names in _NAMES:
        if stored.issuperset(names):
            return [_member(path, archive, name) for name in names]
    stored_names = ", ".join(name[:40] for name in sorted(stored)[:8]) or "none"
    raise DataError(
        f"{path}: expected arrays images and labels, or x_train, y_train, x_test and y_test, found {stored_names}"
    )


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> _Member:
    file_name = f"{name}.npy" if f"{name}.npy" in archive.namelist() else name
    with archive.open(file_name) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        except _NO_HEADER:
            raise DataError(f"{path}: {name} is not an array of numpy: expected what numpy.savez writes") from None
        member = _Member(file_name, shape, dtype)
        stored = archive.getinfo(file_name).file_size - file.tell()
    if dtype.hasobject:
        raise DataError(f"{path}: {name} holds objects of Python, which are not read: expected numbers")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != stored:
        raise DataError(f"{path}: {name} is damaged: its head states {member.words}, and it holds {stored:,} bytes")
    return member


def _array(archive: zipfile.ZipFile, member: _Member) -> NDArray[Any]:
    with archive.open(member.file_name) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _check(path: Path, images: _Member, labels: _Member) -> None:
    is_grey = len(images.shape) == 3
    if images.dtype != np.uint8 or not (is_grey or (len(images.shape) == 4 and images.shape[3] in (1, 3))):
        raise DataError(f"{path}: expected bytes, N × H × W or N × H × W × 3, found {images.words}")
    is_column = len(labels.shape) == 2 and labels.shape[1] == 1
    if not (len(labels.shape) == 1 or is_column) or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"{path}: expected a whole number a label, found {labels.dtype} of {len(labels.shape)} dimensions"
        )
    if images.shape[0] != labels.shape[0]:
        raise DataError(f"{path}: {images.shape[0]:,} images and {labels.shape[0]:,} labels do not belong together")


def _part(path: Path, images: NDArray[np.uint8], labels: NDArray[Any]) -> Part:
    labels = labels.reshape(-1)
    highest = int(labels.max()) if len(labels) else 0
    if highest > np.iinfo(np.int64).max:
        raise DataError(f"{path}: label {highest} is out of range: are these labels?")
    images_NHWC = images if images.ndim == 4 else images[..., None]
    return images_NHWC.transpose(0, 3, 1, 2), labels.astype(np.int64)


# -- IDX: a magic number, the counts, the bytes; packed with gzip or not ----------------------------------------------

_IDX_IMAGES = re.compile(r"(?P<before>.*)images[-.]idx3-ubyte(?P<gz>\.gz)?", re.IGNORECASE)
_IDX_HELD_OUT = ("t10k", "test", "val")
_DEFLATE = 1032  # times its size: the most that gzip packs


class _IdxPair(NamedTuple):
    """A file of images, that of their labels, and whether they are for testing."""

    images: Path
    labels: Path
    held_out: bool


def _idx_pairs(path: Path) -> list[_IdxPair]:
    """The pairs in a folder, or the one that a file of images belongs to."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    matches = {file: match for file in files if (match := _IDX_IMAGES.fullmatch(file.name))}
    pairs = []
    for file, match in matches.items():
        if file.suffix == ".gz" and file.with_suffix("") in matches:
            continue  # a file and its unpacked copy are the same images
        name = file.name.lower()
        pairs.append(_IdxPair(file, _idx_labels(file, match), name.startswith(_IDX_HELD_OUT) or "-test-" in name))
    return pairs


def _idx_labels(images: Path, match: re.Match[str]) -> Path:
    names = [f"{match['before']}labels{mark}idx1-ubyte" for mark in "-."]
    for name in (name + suffix for name in names for suffix in ("", ".gz")):
        if images.with_name(name).is_file():
            return images.with_name(name)
    raise DataError(f"{images}: its labels are not there: expected {names[0]}, or that with .gz, beside it")


def _read_idx_pairs(path: Path, pairs: list[_IdxPair]) -> list[Part]:
    """One part, or two where there is a test set: files of one kind are joined."""
    parts: list[Part] = []
    for held_out in (False, True):
        of_kind = [_read_idx_pair(pair) for pair in pairs if pair.held_out == held_out]
        if len({images.shape[2:] for images, _ in of_kind}) > 1:
            raise DataError(f"{path}: the IDX files have images of different sizes")
        if of_kind:
            images, labels = zip(*of_kind, strict=True)
            parts.append((np.concatenate(images), np.concatenate(labels)))
    return parts


def _read_idx_pair(pair: _IdxPair) -> Part:
    images_NHW, labels_N = _read_idx(pair.images, 3), _read_idx(pair.labels, 1)
    if len(images_NHW) != len(labels_N):
        raise DataError(
            f"{pair.images} has {len(images_NHW):,} images and {pair.labels.name} {len(labels_N):,} labels:"
            " they do not belong together"
        )
    return images_NHW[:, None], labels_N.astype(np.int64)


def _read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The bytes of a file with so many dimensions: 3 for images, 1 for labels."""
    with _open_idx(path) as file:
        shape = _stated_shape(path, file, dimensions)
        expected = math.prod(shape)
        require_memory(path, 2 * expected, _counts(shape))  # they are copied once, to be split
        content = file.read(expected + 1)
    if len(content) != expected:
        how, found = ("truncated", f"{len(content):,}") if len(content) < expected else ("too long", "more")
        raise DataError(f"{path}: {how}: expected {_counts(shape)} = {expected:,} bytes, found {found}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _idx_shape(path: Path) -> tuple[int, ...]:
    with _open_idx(path) as file:
        return _stated_shape(path, file, 3)


@contextmanager
def _open_idx(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    try:
        with gzip.open(path) if _is_packed(path) else path.open("rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise DataError(f"{path}: cannot be read: {why}") from None


def _stated_shape(path: Path, file: gzip.GzipFile | BufferedReader, dimensions: int) -> tuple[int, ...]:
    """The counts in the header of a file, held against its size before anything is made of them."""
    header = file.read(4 + 4 * dimensions)
    magic = 0x800 + dimensions  # 8: unsigned bytes
    if len(header) < 4 + 4 * dimensions or int.from_bytes(header[:4], "big") != magic:
        found = f"0x{header[:4].hex()}" if header else "nothing"
        content = "images" if dimensions == 3 else "labels"
        raise DataError(f"{path}: not an IDX file of {content}: expected the magic number 0x{magic:08x}, found {found}")
    shape = struct.unpack_from(f">{dimensions}I", header, 4)
    expected, stored = math.prod(shape), path.stat().st_size
    available = stored * _DEFLATE if _is_packed(path) else stored - len(header)
    if available < expected:
        found = f"{'at most ' if _is_packed(path) else ''}{available:,}"
        raise DataError(f"{path}: truncated: expected {_counts(shape)} = {expected:,} bytes, found {found}")
    return shape


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _counts(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
