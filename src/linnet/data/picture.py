"""One image file as pixels: any format and mode that Pillow reads, cut to a square."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

MOST_PIXELS = 1 << 27  # of an image file: half a gigabyte while it is unpacked
_LONGEST = 64  # times the shorter side; what is beyond it is cut off before scaling
_GREY = ("1", "L", "LA", "La", "I", "F")


def read_picture(path: Path, size: int, channels: int | None = None) -> NDArray[np.uint8]:
    """[channels, size, size]; what cannot be read is a DataError. `channels` None: 1 for a grey image, else 3.

    The shorter side is scaled to `size`, and the middle is kept. Transparent parts are white, as on a page. A
    camera's note of how it was held is followed.
    """
    with without_warnings():
        return decode_picture(path, size, channels)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Keep Pillow's warnings off the screen: what cannot be read is an error, which names the file.

    For a whole set at once, not for each file: Python's list of filters belongs to all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def decode_picture(path: Path, size: int, channels: int | None = None) -> NDArray[np.uint8]:
    """`read_picture`, for use in threads."""
    pillow()
    from PIL import Image, ImageOps, UnidentifiedImageError

    if path.exists() and not path.is_file() and not path.is_dir():  # opening a pipe would wait for ever
        raise DataError(f"{path}: not an image that can be read: not a file")
    try:
        with Image.open(path) as file:
            if file.width * file.height > MOST_PIXELS:
                raise DataError(
                    f"{path}: {file.width:,} × {file.height:,} pixels are more than the {MOST_PIXELS:,} that are read"
                    " of an image: scale it down"
                )
            picture = _plain(_without_ends(ImageOps.exif_transpose(file)), channels)
        return _square(picture, size)
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(f"{path}: not an image that can be read: its format is not known") from None
    except Exception as error:  # what a damaged file makes Pillow's many decoders stumble over is not to be listed
        said = error.strerror if isinstance(error, OSError) and error.strerror else _without(path, str(error))
        said = "there is not enough memory" if isinstance(error, MemoryError) else said
        raise DataError(f"{path}: not an image that can be read: {said or type(error).__name__}") from None


def _without_ends(picture: Image.Image) -> Image.Image:
    """Of a picture much longer than wide the middle part: all of it would be scaled for a small square."""
    longest = _LONGEST * min(picture.size)
    if max(picture.size) <= longest:
        return picture
    width, height = min(picture.width, longest), min(picture.height, longest)
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def _square(picture: Image.Image, size: int) -> NDArray[np.uint8]:
    from PIL import Image

    width, height = picture.size
    scale = size / min(width, height)
    if scale != 1:
        wide, high = max(size, round(width * scale)), max(size, round(height * scale))
        picture = picture.resize((wide, high), Image.Resampling.BILINEAR)
    left, top = (picture.width - size) // 2, (picture.height - size) // 2
    pixels = np.array(picture.crop((left, top, left + size, top + size)))
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _without(path: Path, said: str) -> str:
    return said.replace(repr(str(path)), "the file").replace(str(path), "the file")


def pillow() -> None:
    """Is Pillow there? A machine without it trains on arrays all the same."""
    if find_spec("PIL") is None:
        raise DataError("image files are read by Pillow, which is not installed: pip install 'linnet[vision]'")


def _plain(picture: Image.Image, channels: int | None) -> Image.Image:
    """Eight bits a channel, grey or RGB."""
    from PIL import Image

    if picture.mode.startswith(("I", "F")):
        picture = Image.fromarray(_eight_bits(picture))
    if "transparency" in picture.info or picture.mode in ("LA", "La", "RGBA", "RGBa", "PA"):
        grey = picture.mode in _GREY
        clear = picture.convert("RGBA")
        page = Image.new("RGBA", clear.size, "white")
        picture = Image.alpha_composite(page, clear).convert("L" if grey else "RGB")
    if channels is None:
        channels = 1 if picture.mode in _GREY else 3
    mode = "L" if channels == 1 else "RGB"
    return picture if picture.mode == mode else picture.convert(mode)


def _eight_bits(picture: Image.Image) -> NDArray[np.uint8]:
    """Of 16 bits the upper eight (Pillow itself would cut off all above 255); of floats, what is between 0 and 1."""
    pixels = np.asarray(picture)
    if picture.mode == "F":
        return np.asarray(np.clip(np.nan_to_num(pixels), 0, 1) * 255 + 0.5, np.uint8)
    return np.asarray(np.clip(pixels.astype(np.int64), 0, 65535) >> 8, np.uint8)
