"""Images that come as arrays: `.npz`, IDX files, scikit-learn's digits. A part is images [N, C, H, W] and labels."""

from __future__ import annotations

import gzip
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.data.errors import DataError, reason
from linnet.data.idx import IdxPair, read_pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("images", "labels"),
    ("x", "y"),
    ("data", "target"),
)

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


def npz_arrays(path: Path) -> list[NDArray[Any]]:
    """Images and labels, for training and perhaps for testing: two or four arrays."""
    try:
        with np.load(path, allow_pickle=False) as file:
            for names in _NAMES:
                if all(name in file for name in names):
                    return [file[name] for name in names]
            raise DataError(
                f"{path}: expected arrays images and labels, or x_train, y_train, x_test and y_test,"
                f" found {', '.join(file.files) or 'none'}"
            )
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        why = reason(error) if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: cannot be read as .npz: {why}") from None


def read_npz(path: Path) -> list[Part]:
    """One set, or two."""
    arrays = npz_arrays(path)
    parts: list[Part] = []
    for images, labels in zip(arrays[::2], arrays[1::2], strict=True):
        labels = labels.reshape(len(labels), -1)[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if images.ndim == 3:
            images = images[..., None]
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
            shape = " × ".join(map(str, images.shape))
            raise DataError(f"{path}: expected bytes, N × H × W or N × H × W × 3, found {images.dtype} {shape}")
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise DataError(
                f"{path}: expected a whole number a label, found {labels.dtype} of {labels.ndim} dimensions"
            )
        if len(images) != len(labels):
            raise DataError(f"{path}: {len(images):,} images and {len(labels):,} labels do not belong together")
        parts.append((images.transpose(0, 3, 1, 2), labels.astype(np.int64)))
    return parts
