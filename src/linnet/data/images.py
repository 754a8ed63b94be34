"""Images with classes, whole in memory as bytes: `load_images` reads folders, IDX files, `.npz`, and `digits`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.class_folders import Listed, list_folders
from linnet.data.errors import DataError
from linnet.data.idx import idx_pairs, peek_idx
from linnet.data.image_arrays import Part, npz_image_shape, read_digits, read_idx_parts, read_npz
from linnet.data.memory import require_memory
from linnet.data.order import shuffled
from linnet.data.picture import decode_picture, pillow, without_warnings

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS = "digits"
_MOST_CLASSES = 65_536
FOLDER_SIZE = 224  # pixels a side that files of all sizes are brought to, when nothing else is asked for
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ImageSet:
    """Pixels 0 … 255 and the number of each image's class."""

    images_NCHW: NDArray[np.uint8]
    labels_N: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, places: NDArray[np.int64]) -> ImageSet:
        """Some of them."""
        return ImageSet(self.images_NCHW[places], self.labels_N[places])


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
        """A word that changes with any pixel, label or class."""
        found = hashlib.blake2b("\0".join(self.labels).encode(), digest_size=8)
        for part in (self.train, self.held_out):
            found.update(np.ascontiguousarray(part.images_NCHW).data)
            found.update(np.ascontiguousarray(part.labels_N).data)
        return found.hexdigest()


def native_size(source: str) -> int | None:
    """Pixels a side of the images of a source whose images all have one size; None for folders of files."""
    path = Path(source)
    if source == DIGITS and not path.exists():
        return 8
    if path.suffix == ".npz":
        shape = npz_image_shape(path)
        return min(shape[1:3]) if len(shape) > 2 else None
    pairs = idx_pairs(path) if path.exists() else []
    return min(peek_idx(pairs[0].images)[1:]) if pairs else None


def load_images(
    source: str,
    *,
    size: int | None = None,
    channels: int | None = None,
    num_classes: int | None = None,
    held_out: float = 0.2,
    strict: bool = False,
    progress: Progress | None = None,
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
        raise DataError(f"--held-out is a share of the images, above 0 and below 1, found {held_out}")
    if num_classes is not None and not 2 <= num_classes <= _MOST_CLASSES:
        raise DataError(f"--num-classes is a number from 2 to {_MOST_CLASSES:,}, found {num_classes}")
    try:
        return _load(source, size, channels, num_classes, held_out, strict, progress)
    except MemoryError:
        raise DataError(f"{source}: there is not enough memory to read these images") from None


def _load(
    source: str,
    size: int | None,
    channels: int | None,
    num_classes: int | None,
    held_out: float,
    strict: bool,
    progress: Progress | None,
) -> Images:
    path = Path(source)
    skipped: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    if source == DIGITS and not path.exists():
        parts = [read_digits()]
    elif not path.exists():
        raise DataError(f"there are no images at {source}: give a folder, an IDX or .npz file, or {DIGITS}")
    elif path.suffix == ".npz":
        parts = read_npz(path)
    elif pairs := idx_pairs(path):
        parts = read_idx_parts(path, pairs)
    elif path.is_dir():
        listed = list_folders(path)
        names = listed.names
        parts, skipped = _files(path, listed, size or FOLDER_SIZE, channels, strict, progress)
    else:
        raise DataError(f"{source}: not a folder, an IDX file (…-images-idx3-ubyte) or an .npz")
    sets = [ImageSet(_fitted(images, size, channels, source), labels) for images, labels in parts]
    names = names or _numbered(source, sets, num_classes)
    _check_labels(source, sets, names, num_classes)
    train, held = sets if len(sets) == 2 else _split(sets[0], held_out)
    for part, word in ((train, "train on"), (held, "evaluate on")):
        if not len(part):
            raise DataError(f"{source}: there are no images to {word}")
    return Images(source, train, held, names, skipped)


def _files(
    path: Path, listed: Listed, size: int, channels: int | None, strict: bool, progress: Progress | None
) -> tuple[list[Part], tuple[str, ...]]:
    pillow()
    files = [file for part in listed.parts for file, _ in part]
    content = f"{len(files):,} images of {size} × {size}"
    require_memory(path, len(files) * 3 * size * size, content, "take a smaller --image-size")
    skipped: list[str] = []
    parts: list[Part] = []
    done = 0
    with without_warnings(), ThreadPoolExecutor() as pool:  # Pillow lets go of the interpreter while it works
        for part in listed.parts:
            pictures, labels = [], []
            for (_, label), found in zip(
                part, pool.map(lambda each: _tried(each[0], size, channels), part), strict=True
            ):
                done += 1
                if progress is not None and (done % 64 == 0 or done == len(files)):
                    progress("images", done, len(files))
                if isinstance(found, DataError):
                    if strict:
                        raise found
                    skipped.append(str(found))
                    continue
                pictures.append(found)
                labels.append(label)
            count = channels or (1 if all(len(picture) == 1 for picture in pictures) else 3)
            stacked = [np.broadcast_to(picture, (count, size, size)) if count == 3 else picture for picture in pictures]
            array = np.stack(stacked) if stacked else np.empty((0, count, size, size), np.uint8)
            parts.append((array, np.array(labels, np.int64)))
    if len({part[0].shape[1] for part in parts}) > 1:  # one part grey, the other not
        parts = [(np.repeat(a, 3, 1) if a.shape[1] == 1 else a, labels) for a, labels in parts]
    return parts, tuple(skipped)


def _tried(file: Path, size: int, channels: int | None) -> NDArray[np.uint8] | DataError:
    try:
        return decode_picture(file, size, channels)
    except DataError as error:
        return error


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
        raise DataError(f"{source}: there are {len(names)} classes, and --num-classes {num_classes} were asked for")
    for part in sets:
        wrong = np.flatnonzero((part.labels_N < 0) | (part.labels_N >= most))
        if wrong.size:
            label = int(part.labels_N[wrong[0]])
            expected = f"0 to {most - 1}" if most else "0 or more"
            raise DataError(
                f"{source}: label {label} of image {int(wrong[0])} is out of range: expected {expected}"
                f" ({wrong.size:,} such)"
            )
    there = np.unique(sets[0].labels_N)
    if len(there) < 2:
        found = names[int(there[0])] if len(there) else "none"
        raise DataError(f"{source}: a classifier needs two classes at least, found one: {found}")


def _split(whole: ImageSet, share: float) -> tuple[ImageSet, ImageSet]:
    """The same images are held out whatever a run's seed is, so that runs compare."""
    order = shuffled(np.arange(len(whole), dtype=np.uint64), len(whole), 0)
    held = max(1, round(len(whole) * share))
    return whole.take(np.sort(order[held:])), whole.take(order[:held])
