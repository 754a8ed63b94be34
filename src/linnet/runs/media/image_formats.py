"""Image files by their first bytes: what a file is, and its pixels, bounded whatever it claims to hold."""

from __future__ import annotations

import io
import warnings

import numpy as np

from linnet.runs.media import png
from linnet.runs.media.png import Pixels

MOST_PIXELS = 1 << 26  # of an image that is decoded

_FORMATS = (  # first bytes, suffix, mime
    (png.SIGNATURE, ".png", "image/png"),
    (b"\xff\xd8\xff", ".jpg", "image/jpeg"),
    (b"GIF87a", ".gif", "image/gif"),
    (b"GIF89a", ".gif", "image/gif"),
    (b"BM", ".bmp", "image/bmp"),
)


class ImageError(ValueError):
    """An image file that cannot be shown, and why."""


def format_of(content: bytes) -> tuple[str, str]:
    """Suffix and mime type of an image file; ValueError when it is none that is known."""
    for first, suffix, mime in _FORMATS:
        if content.startswith(first):
            return suffix, mime
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return ".webp", "image/webp"
    if b"<svg" in content[:1000]:
        return ".svg", "image/svg+xml"
    raise ValueError("expected a PNG, JPEG, GIF, WebP, BMP or SVG file, found other bytes")


def decode_image(content: bytes) -> Pixels:
    """The pixels of an image file (of several frames the first). ImageError, in few words, where that cannot be."""
    if content.startswith(png.SIGNATURE):
        try:
            return png.decode(content, MOST_PIXELS)
        except png.InterlacedError:
            pass
        except png.PNGError as error:
            raise ImageError(str(error)) from None
    return _decode_by_pillow(content, MOST_PIXELS)


def _decode_by_pillow(content: bytes, most_pixels: int) -> Pixels:
    try:
        suffix, _ = format_of(content)
    except ValueError:
        raise ImageError("no image file that is known") from None
    if suffix == ".svg":
        raise ImageError("an SVG file, for a browser")
    try:
        from PIL import Image
    except ImportError:
        raise ImageError(
            f"a {suffix[1:]} file is drawn where Pillow is installed: pip install 'linnet[vision]'"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a size that is refused below
            image = Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "GIF", "WEBP", "BMP"))
            if image.width * image.height > most_pixels:
                raise ImageError(f"expected at most {most_pixels:,} pixels, found {image.width}×{image.height}")
            opaque = image.mode in ("1", "L", "RGB", "I;16", "YCbCr", "CMYK")
            return np.array(image.convert("RGB" if opaque else "RGBA"), np.uint8)
    except ImageError:
        raise
    except Exception as error:  # Pillow raises nearly anything on damaged files
        raise ImageError(f"damaged: {str(error)[:100] or type(error).__name__}") from None
