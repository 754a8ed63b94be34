"""Images that come as arrays: `.npz`, IDX files, scikit-learn's digits. A part is images [N, C, H, W] and labels."""

from __future__ import annotations

import gzip
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.data.errors import DataError
from linnet.data.idx import IdxPair, read_pair
from linnet.data.memory import require_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("images", "labels"),
    ("x", "y"),
    ("data", "target"),
)

# What numpy's parser, which is Python's own, raises for a head that is none.
_NO_HEAD = (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError)

Part = tuple["NDArray[np.uint8]", "NDArray[np.int64]"]


def read_digits() -> Part:
    """scikit-learn's 1,797 scanned digits, read from its file: importing the library would take longer than reading."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise DataError("the digits are a file of scikit-learn, which is not installed: pip install 'linnet[vision]'")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the digits cannot be read: {error}") from None
    pixels = (table[:, :64] * 255 + 8) // 16  # sixteen shades
    return pixels.astype(np.uint8).reshape(-1, 1, 8, 8), table[:, 64]


def read_idx_parts(path: Path, pairs: list[IdxPair]) -> list[Part]:
    """One set, or two where there is a test set: files of one kind are joined."""
    parts: list[Part] = []
    for test in (False, True):
        mine = [read_pair(pair) for pair in pairs if pair.held_out == test]
        if len({images.shape[2:] for images, _ in mine}) > 1:
            raise DataError(f"{path}: the IDX files have images of different sizes")
        if mine:
            parts.append((np.concatenate([each[0] for each in mine]), np.concatenate([each[1] for each in mine])))
    return parts


@dataclass(frozen=True)
class _Member:
    """An array of an archive, as its head states it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def words(self) -> str:
        return f"{self.dtype} {' × '.join(map(str, self.shape))}"


def npz_image_shape(path: Path) -> tuple[int, ...]:
    """The shape of the images, without unpacking them."""
    with _opened(path) as archive:
        return _members(path, archive)[0].shape


def read_npz(path: Path) -> list[Part]:
    """One set, or two. All that the heads of the arrays state is looked at before one of them is unpacked."""
    with _opened(path) as archive:
        members = _members(path, archive)
        for images, labels in zip(members[::2], members[1::2], strict=True):
            _check(path, images, labels)
        need = sum(math.prod(member.shape) * member.dtype.itemsize for member in members)
        require_memory(path, 2 * need, f"its arrays, {members[0].words},")  # they are copied once, to be split
        arrays = [_array(archive, member) for member in members]
    return [_part(path, *pair) for pair in zip(arrays[::2], arrays[1::2], strict=True)]


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except DataError:
        raise
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            single = file.read(6) == b"\x93NUMPY"
        why = "it is a single array (.npy): save images and labels together with numpy.savez" if single else str(error)
        raise DataError(f"{path}: cannot be read as .npz: {why}") from None
    except Exception as error:  # zipfile, its decoders and numpy's parser raise a dozen kinds for a damaged file
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: cannot be read as .npz: {why or type(error).__name__}") from None


def _members(path: Path, archive: zipfile.ZipFile) -> list[_Member]:
    """Images and labels, for training and perhaps for testing: two or four arrays."""
    there = {name.removesuffix(".npy") for name in archive.namelist()}
    for names in _NAMES:
        if there.issuperset(names):
            return [_member(path, archive, name) for name in names]
    found = ", ".join(name[:40] for name in sorted(there)[:8]) or "none"
    raise DataError(f"{path}: expected arrays images and labels, or x_train, y_train, x_test and y_test, found {found}")


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> _Member:
    with archive.open(_file_name(archive, name)) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        except _NO_HEAD:
            raise DataError(f"{path}: {name} is not an array of numpy: expected what numpy.savez writes") from None
        member = _Member(name, shape, dtype)
        stored = archive.getinfo(_file_name(archive, name)).file_size - file.tell()
    if dtype.hasobject:
        raise DataError(f"{path}: {name} holds objects of Python, which are not read: expected numbers")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != stored:
        raise DataError(f"{path}: {name} is damaged: its head states {member.words}, and it holds {stored:,} bytes")
    return member


def _file_name(archive: zipfile.ZipFile, name: str) -> str:
    return f"{name}.npy" if f"{name}.npy" in archive.namelist() else name


def _array(archive: zipfile.ZipFile, member: _Member) -> NDArray[Any]:
    with archive.open(_file_name(archive, member.name)) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def _check(path: Path, images: _Member, labels: _Member) -> None:
    grey = len(images.shape) == 3
    if images.dtype != np.uint8 or not (grey or (len(images.shape) == 4 and images.shape[3] in (1, 3))):
        raise DataError(f"{path}: expected bytes, N × H × W or N × H × W × 3, found {images.words}")
    column = len(labels.shape) == 2 and labels.shape[1] == 1
    if not (len(labels.shape) == 1 or column) or not np.issubdtype(labels.dtype, np.integer):
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
