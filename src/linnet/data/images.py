"""Images with classes, whole in memory as bytes: `load_images` reads folders, IDX files, `.npz`, and `digits`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.errors import DataError
from linnet.data.image_arrays import DIGITS, Part, find_image_arrays
from linnet.data.image_files import find_images, read_class_folders, shorter_side
from linnet.data.order import shuffled
from linnet.files import is_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from linnet.data.preparation import PrepareProgress

_MOST_CLASSES = 65_536
_LOOKED_AT, _SMALL_FILE = 32, 64  # files by which the size of all is told, and pixels a side up to which it is kept
_FILE_SIZE = 224  # pixels a side that files of all sizes are brought to, when nothing else is asked for


@dataclass(frozen=True)
class ImageSet:
    """Pixels 0 … 255 and the number of each image's class."""

    images_NCHW: NDArray[np.uint8]
    labels_N: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, index: NDArray[np.int64]) -> ImageSet:
        """Some of them."""
        return ImageSet(self.images_NCHW[index], self.labels_N[index])


@dataclass(frozen=True)
class Images:
    """A data set ready to train on; `skipped` names the files that were no images, and why."""

    source: str
    train: ImageSet
    held_out: ImageSet
    labels: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Pixels a side."""
        return int(self.train.images_NCHW.shape[-1])

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return int(self.train.images_NCHW.shape[1])

    def brightness(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel of the training images, as shares of full brightness."""
        means, stds = [], []
        for channel in range(self.channels):
            counts = np.zeros(256, np.int64)
            for start in range(0, len(self.train), 1024):
                counts += np.bincount(self.train.images_NCHW[start : start + 1024, channel].ravel(), minlength=256)
            share = counts / counts.sum()
            level = np.arange(256) / 255
            mean = float((share * level).sum())
            std = float(np.sqrt((share * (level - mean) ** 2).sum()))
            means.append(round(mean, 4))
            stds.append(max(round(std, 4), 0.01))  # images of one colour must not divide by nothing
        return tuple(means), tuple(stds)

    @property
    def fingerprint(self) -> str:
        """A hash of all pixels, labels and classes."""
        digest = hashlib.blake2b("\0".join(self.labels).encode(), digest_size=8)
        for part in (self.train, self.held_out):
            digest.update(np.ascontiguousarray(part.images_NCHW).data)
            digest.update(np.ascontiguousarray(part.labels_N).data)
        return digest.hexdigest()


def native_size(source: str) -> int | None:
    """Pixels a side of the images of a source whose images all have one size; None for folders of files."""
    arrays = find_image_arrays(source)
    shape = arrays.shape() if arrays else ()
    return min(shape[1:3]) if len(shape) > 2 else None


def image_count(source: str) -> int | None:
    """How many images a source has to train on, before any is read; of files, those of a test set among them."""
    if arrays := find_image_arrays(source):
        shape = arrays.shape()
        return shape[0] if shape else None
    return len(find_images(Path(source))[0]) if is_folder(source) else None


def size_of_files(source: str) -> int | None:
    """Pixels a side of image files that are small and all of one size; None where they are not, or are no files."""
    if not is_folder(source):
        return None
    files = find_images(Path(source))[0]
    sizes = {shorter_side(file) for file in files[:: max(1, len(files) // _LOOKED_AT)]} - {None}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if size is not None and size <= _SMALL_FILE else None


def load_images(
    source: str,
    *,
    size: int | None = None,
    channels: int | None = None,
    num_classes: int | None = None,
    held_out: float = 0.2,
    strict: bool = False,
    progress: PrepareProgress | None = None,
) -> Images:
    """Read a data set.

    - `source`: `digits`; a folder of class folders, or of `train` and `test` (or `val`) with class folders in them; a
      folder of IDX files, or one of them; an `.npz` with `images` and `labels`, or `x_train`, `y_train` and so on.
    - `size`: pixels a side; by default what the data has, 224 for image files.
    - `held_out`: the share kept for evaluation, always the same images, where the data has no test set of its own.
    - `num_classes`: refuse labels from this one on.
    - `strict`: a file that is no image is an error, and not left out.
    """
    if not 0 < held_out < 1:
        raise DataError(f"`held_out` is a share of the images, above 0 and below 1, found {held_out}")
    if num_classes is not None and not 2 <= num_classes <= _MOST_CLASSES:
        raise DataError(f"`num_classes` is a number from 2 to {_MOST_CLASSES:,}, found {num_classes}")
    try:
        parts, classes, skipped = _read(source, size, channels, strict, progress)
        sets = [ImageSet(_fitted(images, size, channels, source), labels) for images, labels in parts]
        classes = classes or _numbered(source, sets, num_classes)
        _check_labels(source, sets, classes, num_classes)
        train, held = sets if len(sets) == 2 else _split(sets[0], held_out)
    except MemoryError:
        raise DataError(f"{source}: there is not enough memory to read these images") from None
    for part, use in ((train, "train on"), (held, "evaluate on")):
        if not len(part):
            raise DataError(f"{source}: there are no images to {use}")
    return Images(source, train, held, classes, skipped)


def _read(
    source: str, size: int | None, channels: int | None, strict: bool, progress: PrepareProgress | None
) -> tuple[list[Part], tuple[str, ...], tuple[str, ...]]:
    """The parts, the names of the classes where there are any, and the files that were left out."""
    path = Path(source)
    if source != DIGITS and not path.exists():
        raise DataError(f"there are no images at {source}: give a folder, an IDX or .npz file, or {DIGITS}")
    if arrays := find_image_arrays(source):
        return arrays.read(), (), ()
    if path.is_dir():
        return read_class_folders(path, size or _FILE_SIZE, channels, strict, progress)
    raise DataError(f"{source}: not a folder, an IDX file (…-images-idx3-ubyte) or an .npz")


def _fitted(images: NDArray[np.uint8], size: int | None, channels: int | None, source: str) -> NDArray[np.uint8]:
    """The middle square, scaled to `size`, with the channels asked for."""
    side = min(images.shape[2:])
    if side < 1:
        raise DataError(f"{source}: the images have no pixels")
    top, left = (images.shape[2] - side) // 2, (images.shape[3] - side) // 2
    images = images[:, :, top : top + side, left : left + side]
    if size is not None and size != side:
        images = _scaled(images, size)
    if channels == 3 and images.shape[1] == 1:
        images = np.repeat(images, 3, axis=1)
    if channels == 1 and images.shape[1] == 3:
        weights = np.array([299, 587, 114])  # how bright the eye finds each colour
        images = (np.tensordot(images, weights, axes=([1], [0])) // 1000).astype(np.uint8)[:, None]
    return np.ascontiguousarray(images)


def _scaled(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    import torch
    import torch.nn.functional as F

    out = np.empty((*images.shape[:2], size, size), np.uint8)
    for start in range(0, len(images), 1024):
        part = torch.from_numpy(np.ascontiguousarray(images[start : start + 1024]))
        scaled = F.interpolate(part.float(), size=(size, size), mode="bilinear", antialias=True, align_corners=False)
        out[start : start + 1024] = scaled.round().clamp(0, 255).byte().numpy()
    return out


def _numbered(source: str, sets: list[ImageSet], num_classes: int | None) -> tuple[str, ...]:
    highest = max((int(part.labels_N.max()) for part in sets if len(part)), default=-1)
    if num_classes is None and highest >= _MOST_CLASSES:
        raise DataError(f"{source}: label {highest} would make {highest + 1:,} classes: are these labels?")
    return tuple(str(number) for number in range(num_classes or highest + 1))


def _check_labels(source: str, sets: list[ImageSet], names: tuple[str, ...], num_classes: int | None) -> None:
    most = num_classes or len(names)
    if num_classes is not None and len(names) > num_classes:
        raise DataError(f"{source}: there are {len(names)} classes, and `num_classes={num_classes}` were asked for")
    for part in sets:
        wrong = np.flatnonzero((part.labels_N < 0) | (part.labels_N >= most))
        if wrong.size:
            label = int(part.labels_N[wrong[0]])
            expected = f"0 to {most - 1}" if most else "0 or more"
            raise DataError(
                f"{source}: label {label} of image {int(wrong[0])} is out of range: expected {expected}"
                f" ({wrong.size:,} such)"
            )
    labels = np.unique(sets[0].labels_N)
    if len(labels) < 2:
        found = names[int(labels[0])] if len(labels) else "none"
        raise DataError(f"{source}: a classifier needs two classes at least, found one: {found}")


def _split(whole: ImageSet, share: float) -> tuple[ImageSet, ImageSet]:
    """The same images are held out whatever a run's seed is, so that runs compare."""
    order = shuffled(np.arange(len(whole), dtype=np.uint64), len(whole), 0)
    held = max(1, round(len(whole) * share))
    return whole.take(np.sort(order[held:])), whole.take(order[:held])
