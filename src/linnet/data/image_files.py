"""Images as files that Pillow reads, in folders whose names are the classes."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.data.errors import DataError, printable, reason, require_memory
from linnet.errors import error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

    from linnet.data.image_arrays import Part
    from linnet.data.preparation import PrepareProgress

_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "valid", "validation")
_MOST_PIXELS = 1 << 27  # of an image file: half a gigabyte while it is unpacked
_LONGEST = 64  # times the shorter side; what is beyond it is cut off before scaling
_GREY = ("1", "L", "LA", "La", "I", "F")


# -- folders of classes -----------------------------------------------------------------------------------------------


def read_class_folders(
    folder: Path, size: int, channels: int | None, strict: bool, progress: PrepareProgress | None
) -> tuple[list[Part], tuple[str, ...], tuple[str, ...]]:
    """All images (one part, or two where there is one for testing), the classes, and what was left out and why."""
    try:
        names, listed = _list_classes(folder)
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {reason(error)}") from None
    _require_pillow()
    count = sum(map(len, listed))
    content = f"{count:,} images of {size} × {size}"
    require_memory(folder, count * 3 * size * size, content, "take a smaller `image_size`")
    skipped: list[str] = []
    parts: list[Part] = []
    done = 0
    with _no_warnings(), ThreadPoolExecutor() as pool:  # Pillow lets go of the interpreter while it works
        for files in listed:
            images, labels = [], []
            decoded = pool.map(lambda entry: _decoded_or_error(entry[0], size, channels), files)
            for (_, label), image in zip(files, decoded, strict=True):
                done += 1
                if progress is not None and (done % 64 == 0 or done == count):
                    progress("images", done, count)
                if not isinstance(image, DataError):
                    images.append(image)
                    labels.append(label)
                elif strict:
                    raise image
                else:
                    skipped.append(str(image))
            n_channels = channels or (1 if all(len(image) == 1 for image in images) else 3)
            shape = (n_channels, size, size)
            stacked = np.stack([np.broadcast_to(image, shape) for image in images] or [np.zeros(shape, np.uint8)])
            parts.append((stacked[: len(images)], np.array(labels, np.int64)))
    if len({images.shape[1] for images, _ in parts}) > 1:  # one part grey, the other not
        parts = [(np.repeat(part, 3, 1) if part.shape[1] == 1 else part, labels) for part, labels in parts]
    return parts, names, tuple(skipped)


def _list_classes(folder: Path) -> tuple[tuple[str, ...], list[list[tuple[Path, int]]]]:
    """The names of the classes, and the files of each part with their class's number; hidden ones are not looked at."""
    by_name = {inside.name.lower(): inside for inside in _folders(folder)}
    train = next((by_name[name] for name in _TRAIN if name in by_name), None)
    test = next((by_name[name] for name in _TEST if name in by_name), None)
    roots = [train, test] if train is not None and test is not None else [folder]
    names = _class_names(roots)
    if len(names) == 0:
        raise DataError(f"{folder}: expected a folder for each class with its images, found no folder")
    if len(names) == 1:
        raise DataError(f"{folder}: a classifier needs two classes at least, found one: {names[0]}")
    return names, [_class_files(root, names) for root in roots]


def _class_names(roots: list[Path]) -> tuple[str, ...]:
    """Sorted, always the same; numbers by their value, so that 10 comes after 9."""
    names = {folder.name for root in roots for folder in _folders(root)}
    for name in names:
        if name != printable(name):
            raise DataError(
                f"{printable(name)}: the name of this folder is not UTF-8, and it is to be a label: rename it"
            )
    return tuple(sorted(names, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name)))


def _class_files(root: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    files: list[tuple[Path, int]] = []
    for number, name in enumerate(names):
        below = sorted((root / name).rglob("*")) if (root / name).is_dir() else []
        of_class = [(file, number) for file in below if file.is_file() and not _is_hidden(file.relative_to(root))]
        if not of_class:
            raise DataError(
                f"{root / name}: the folder of a class is empty or missing: put images in it, or remove the class"
            )
        files += of_class
    return files


def _is_hidden(path: Path) -> bool:
    """Does it, or a folder on the way to it, begin with a dot?"""
    return any(part.startswith(".") for part in path.parts)


def _folders(folder: Path) -> list[Path]:
    return [inside for inside in folder.iterdir() if inside.is_dir() and not inside.name.startswith(".")]


def find_images(folder: Path) -> tuple[list[Path], list[Path]]:
    """All images below a folder, sorted, by the endings that Pillow knows; and the files that are none.

    Hidden ones are not looked at, links to folders not followed.
    """
    _require_pillow()
    from PIL import Image

    endings = {ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    images: list[Path] = []
    skipped: list[Path] = []
    for inside, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(inside, name) for name in names if not name.startswith(".")):
            (images if path.suffix.lower() in endings else skipped).append(path)
    return sorted(images), sorted(skipped)


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be read: {reason(error)}") from None


# -- one file ---------------------------------------------------------------------------------------------------------


def read_image(path: Path, size: int, channels: int | None = None) -> NDArray[np.uint8]:
    """[channels, size, size]; what cannot be read is a DataError. `channels` None: 1 for a grey image, else 3.

    The shorter side is scaled to `size`, and the middle is kept. Transparent parts are white, as on a page. A
    camera's note of how it was held is followed.
    """
    with _no_warnings():
        return _decoded(path, size, channels)


def shorter_side(path: Path) -> int | None:
    """Pixels of an image file's shorter side, by its head; None where it cannot be read."""
    _require_pillow()
    from PIL import Image

    try:
        with _no_warnings(), path.open("rb") as stream, Image.open(stream) as file:
            return min(file.size)
    except Exception:  # of any decoder; reading the set names the file and what is wrong with it
        return None


def read_images(paths: Sequence[Path], size: int, channels: int) -> list[NDArray[np.uint8] | DataError]:
    """The same of several files, some at a time; in the place of one that cannot be read is what is wrong with it."""
    with _no_warnings(), ThreadPoolExecutor() as pool:
        return list(pool.map(lambda path: _decoded_or_error(path, size, channels), paths))


def image_pixels(image: Image.Image | NDArray[Any], size: int, channels: int | None = None) -> NDArray[np.uint8]:
    """The same of an image that is in memory: of Pillow, or an array [H, W] or [H, W, channels] of bytes."""
    _require_pillow()
    from PIL import Image

    if not isinstance(image, Image.Image):
        array = np.asarray(image)
        if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
            found = f"{array.dtype} {list(array.shape)}"
            raise DataError(f"an image is an array of uint8, [H, W] or [H, W, 1, 3 or 4 channels], found {found}")
        image = Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    with _no_warnings():
        return _square(_plain(_without_ends(image), channels), size)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Keep Pillow's warnings off the screen: what cannot be read is an error, which names the file.

    For a whole set at once, not for each file: Python's list of filters belongs to all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _require_pillow() -> None:
    """A machine without it trains on arrays all the same."""
    if importlib.util.find_spec("PIL") is None:
        raise DataError("image files are read by Pillow, which is not installed: pip install 'linnet[vision]'")


def _decoded_or_error(path: Path, size: int, channels: int | None) -> NDArray[np.uint8] | DataError:
    try:
        return _decoded(path, size, channels)
    except DataError as error:
        return error


def _decoded(path: Path, size: int, channels: int | None) -> NDArray[np.uint8]:
    _require_pillow()
    from PIL import Image, ImageOps, UnidentifiedImageError

    if path.exists() and not path.is_file() and not path.is_dir():  # opening a pipe would wait for ever
        raise DataError(f"{path}: not an image that can be read: it is neither file nor folder")
    try:
        with Image.open(path) as file:
            if file.width * file.height > _MOST_PIXELS:
                raise DataError(
                    f"{path}: {file.width:,} × {file.height:,} pixels are more than the {_MOST_PIXELS:,} that are read"
                    " of an image: scale it down"
                )
            image = _plain(_without_ends(ImageOps.exif_transpose(file)), channels)
        return _square(image, size)
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(f"{path}: not an image that can be read: its format is not known") from None
    except Exception as error:  # what a damaged file makes Pillow's many decoders stumble over is not to be listed
        why = error.strerror if isinstance(error, OSError) else None
        why = why or error_text(error).replace(repr(str(path)), "the file").replace(str(path), "the file")
        why = "there is not enough memory" if isinstance(error, MemoryError) else why
        raise DataError(f"{path}: not an image that can be read: {why or type(error).__name__}") from None


def _without_ends(image: Image.Image) -> Image.Image:
    """Of an image much longer than wide the middle part: all of it would be scaled for a small square."""
    longest = _LONGEST * min(image.size)
    if max(image.size) <= longest:
        return image
    return _middle(image, min(image.width, longest), min(image.height, longest))


def _middle(image: Image.Image, width: int, height: int) -> Image.Image:
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _square(image: Image.Image, size: int) -> NDArray[np.uint8]:
    from PIL import Image

    scale = size / min(image.size)
    if scale != 1:
        wide, high = (max(size, round(side * scale)) for side in image.size)
        image = image.resize((wide, high), Image.Resampling.BILINEAR)
    pixels = np.array(_middle(image, size, size))
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _plain(image: Image.Image, channels: int | None) -> Image.Image:
    """Eight bits a channel, grey or RGB."""
    from PIL import Image

    if image.mode.startswith(("I", "F")):
        image = Image.fromarray(_eight_bits(image))
    if "transparency" in image.info or image.mode in ("LA", "La", "RGBA", "RGBa", "PA"):
        is_grey = image.mode in _GREY
        clear = image.convert("RGBA")
        page = Image.new("RGBA", clear.size, "white")
        image = Image.alpha_composite(page, clear).convert("L" if is_grey else "RGB")
    if channels is None:
        channels = 1 if image.mode in _GREY else 3
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Of 16 bits the upper eight (Pillow itself would cut off all above 255); of floats, what is between 0 and 1."""
    pixels = np.asarray(image)
    if image.mode == "F":
        return np.asarray(np.clip(np.nan_to_num(pixels), 0, 1) * 255 + 0.5, np.uint8)
    return np.asarray(np.clip(pixels.astype(np.int64), 0, 65535) >> 8, np.uint8)
