"""One image file as pixels: any format and mode that Pillow reads, cut to a square."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

_GREY = ("1", "L", "LA", "La", "I", "F")


def read_picture(path: Path, size: int, channels: int | None = None) -> NDArray[np.uint8]:
    """[channels, size, size]; what cannot be read is a DataError. `channels` None: 1 for a grey image, else 3.

    The shorter side is scaled to `size`, and the middle is kept. Transparent parts are white, as on a page. A
    camera's note of how it was held is followed.
    """
    pillow()
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            picture = ImageOps.exif_transpose(file)
            picture = _plain(picture, channels)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else _without(path, str(error))
        raise DataError(f"{path}: not an image that can be read: {said or type(error).__name__}") from None
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
    return picture.convert("L" if channels == 1 else "RGB")


def _eight_bits(picture: Image.Image) -> NDArray[np.uint8]:
    """Of 16 bits the upper eight (Pillow itself would cut off all above 255); of floats, what is between 0 and 1."""
    pixels = np.asarray(picture)
    if picture.mode == "F":
        return np.asarray(np.clip(np.nan_to_num(pixels), 0, 1) * 255 + 0.5, np.uint8)
    return np.asarray(np.clip(pixels.astype(np.int64), 0, 65535) >> 8, np.uint8)
