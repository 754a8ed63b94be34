"""Anything that people call an image, as 8-bit pixels: arrays, tensors, PIL images, figures, files, lists of them."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linnet.files import read_bounded
from linnet.runs.media import png
from linnet.runs.media.capture import LARGEST, ArrayCopy, Capture, MediaFile, copy_array
from linnet.runs.media.image_formats import decode_image, format_of
from linnet.runs.media.png import Pixels

_CHANNELS = (1, 2, 3, 4)
_LAYOUTS = {"HW": 2, "HWC": 3, "CHW": 3, "NHW": 3, "NHWC": 4, "NCHW": 4}  # and their dimensions
_GAP = 2  # pixels between the images of a grid
_MOST_IN_GRID = 1024
_TALLEST = 1 << 15  # pixels of a side


class _Source(NamedTuple):
    """One image, or a batch of one size, that was copied: as an array, or as the content of a file."""

    n_bytes: int
    arrays: Callable[[], list[NDArray[Any]]]  # height, width, channels
    file: tuple[bytes, str, str] | None = None  # content, suffix, mime: kept as it is
    copied: ArrayCopy | None = None


def capture_image(
    value: Any, *, layout: str | None = None, value_range: tuple[float, float] | None = None, columns: int | None = None
) -> Capture:
    """Copy an image, or several as one grid, to be encoded later.

    - `layout`: `HWC`, `CHW`, `NCHW` …; None: told by the shape, and where that fits both by the library it comes from.
    - `value_range`: the numbers that are black and white; None: 0 and 1 for fractions, 0 and 255 for others, else the
      least and the greatest.
    - `columns`: of a grid.
    """
    if layout is not None and layout not in _LAYOUTS:
        raise ValueError(f"expected a `layout` of {', '.join(_LAYOUTS)}, found {str(layout)[:40]!r}")
    sources = [_source(part, layout) for part in _parts(value)]
    if len(sources) == 1 and (kept := sources[0].file) is not None:
        content, suffix, mime = kept
        return Capture(len(content), lambda: MediaFile(content, suffix, mime, _size_of(content, suffix)))

    def encode() -> MediaFile:
        arrays = [array for source in sources for array in source.arrays()]
        pixels = _to_8_bit(arrays, value_range)
        fields: dict[str, Any] = {"images": len(pixels)} if len(pixels) > 1 else {}
        if bad := sum(int(np.count_nonzero(~np.isfinite(array))) for array in arrays if array.dtype.kind == "f"):
            fields["nan_count"] = bad
        whole = pixels[0] if len(pixels) == 1 else _grid(pixels, columns)
        height, width, channels = whole.shape
        return MediaFile(
            png.encode(whole), ".png", "image/png", {"width": width, "height": height, "channels": channels, **fields}
        )

    def release() -> None:
        for source in sources:
            if source.copied is not None:
                source.copied.release()

    return Capture(sum(source.n_bytes for source in sources), encode, release)


def _parts(value: Any) -> Sequence[Any]:
    """The images of a list, which may be a list of rows of numbers as well."""
    if not isinstance(value, list | tuple):
        return [value]
    if not value:
        raise ValueError("expected an image, found an empty list")
    if len(value) > _MOST_IN_GRID:
        raise ValueError(f"expected at most {_MOST_IN_GRID} images, found {len(value)}")
    first = value[0]
    is_image = isinstance(first, str | bytes | os.PathLike) or len(getattr(first, "shape", ())) >= 2
    return value if is_image or _is_drawn(first) or _depth(first) >= 2 else [value]


def _depth(value: Any) -> int:
    """How deep lists are nested."""
    depth = 0
    while isinstance(value, list | tuple) and value and depth < 8:
        value, depth = value[0], depth + 1
    return depth


def _is_drawn(value: Any) -> bool:
    """Is it an object of PIL, or of a library that draws figures?"""
    return any(callable(getattr(value, name, None)) for name in ("convert", "savefig")) or hasattr(value, "figure")


def _source(value: Any, layout: str | None) -> _Source:
    if isinstance(value, str | os.PathLike):
        return _file_source(read_bounded(value, LARGEST))
    if isinstance(value, bytes):
        return _file_source(value)
    if not callable(getattr(value, "savefig", None)) and hasattr(getattr(value, "figure", None), "savefig"):
        value = value.figure  # of axes
    if callable(getattr(value, "savefig", None)):
        drawn = io.BytesIO()
        value.savefig(drawn, format="png")
        return _file_source(drawn.getvalue())
    if callable(getattr(value, "convert", None)) and hasattr(value, "mode"):
        value, layout = _of_pil(value), None
    copied = copy_array(value)
    layout = _layout_of(copied) if layout is None else layout
    if len(copied.shape) != _LAYOUTS[layout] or 0 in copied.shape or max(copied.shape) > _TALLEST:
        raise ValueError(f"expected an image of the layout {layout}, found the shape {copied.shape}")
    channels = copied.shape[layout.index("C")] if "C" in layout else 1
    if channels not in _CHANNELS:
        raise ValueError(f"expected 1 to 4 channels, found {channels} (shape {copied.shape}, layout {layout})")
    return _Source(copied.n_bytes, lambda: _split(copied.numbers(), layout), copied=copied)


def _file_source(content: bytes) -> _Source:
    suffix, mime = format_of(content)
    return _Source(len(content), lambda: [decode_image(content)], (content, suffix, mime))


def _size_of(content: bytes, suffix: str) -> dict[str, Any]:
    """What a file's header says of its size; of other formats than PNG nothing."""
    if suffix != ".png" or len(content) < 24:
        return {}
    return {"width": int.from_bytes(content[16:20]), "height": int.from_bytes(content[20:24])}


def _of_pil(image: Any) -> NDArray[Any]:
    """The pixels of a PIL image; palettes, CMYK and the rest as RGB."""
    if image.mode not in ("L", "LA", "RGB", "RGBA", "1", "I;16", "F", "I"):
        has_alpha = "transparency" in getattr(image, "info", {}) or image.mode in ("PA", "RGBa", "La")
        image = image.convert("RGBA" if has_alpha else "RGB")
    array: NDArray[Any] = np.asarray(image)
    return array


def _layout_of(copied: ArrayCopy) -> str:
    """Which dimension is which, by the shape; where both could be, as the array's library has it."""
    shape = copied.shape
    if len(shape) == 2:
        return "HW"
    if len(shape) not in (3, 4):
        raise ValueError(f"expected an image of 2 to 4 dimensions, found the shape {shape}")
    batch = "N" if len(shape) == 4 else ""
    first, last = shape[-3] in _CHANNELS, shape[-1] in _CHANNELS
    if first and (copied.channels_first or not last):
        return f"{batch}CHW"
    if last:
        return f"{batch}HWC"
    if len(shape) == 3:
        return "NHW"
    raise ValueError(f"expected 1 to 4 channels first or last, found the shape {shape}")


def _split(array: NDArray[Any], layout: str) -> list[NDArray[Any]]:
    """Each image of an array, its channels last."""
    if "C" not in layout:
        array, layout = array[..., None], f"{layout}C"
    if layout.endswith("CHW"):
        array = np.moveaxis(array, -3, -1)
    return list(array) if layout.startswith("N") else [array]


def _to_8_bit(arrays: list[NDArray[Any]], value_range: tuple[float, float] | None) -> list[Pixels]:
    """All of them by one scale, so that images of a grid compare."""
    if value_range is None and all(array.dtype == np.uint8 for array in arrays):
        return [np.ascontiguousarray(array) for array in arrays]
    black, white = value_range or _range_of(arrays)
    scale = 255 / (white - black) if white != black else 0.0
    pixels = []
    for array in arrays:
        scaled = (array.astype(np.float32) - np.float32(black)) * np.float32(scale)
        scaled = np.nan_to_num(scaled, copy=False, nan=0.0, posinf=255.0, neginf=0.0)
        pixels.append(np.rint(np.clip(scaled, 0, 255)).astype(np.uint8))
    return pixels


def _range_of(arrays: list[NDArray[Any]]) -> tuple[float, float]:
    if all(array.dtype == np.bool_ for array in arrays):
        return 0.0, 1.0
    finite = [array[np.isfinite(array)] for array in arrays]
    extremes = [(float(values.min()), float(values.max())) for values in finite if values.size]
    low = min((least for least, _ in extremes), default=0.0)
    high = max((greatest for _, greatest in extremes), default=1.0)
    if low >= 0 and high <= 1 and any(array.dtype.kind == "f" for array in arrays):
        return 0.0, 1.0
    if low >= 0 and high <= 255:
        return 0.0, 255.0
    if all(array.dtype == np.uint16 for array in arrays):
        return 0.0, 65535.0
    return low, high


def _grid(images: list[Pixels], columns: int | None) -> Pixels:
    """Images side by side on a dark ground, in rows; smaller ones at the upper left of their place."""
    if len(images) > _MOST_IN_GRID:
        raise ValueError(f"expected at most {_MOST_IN_GRID} images, found {len(images)}")
    columns = max(1, min(columns or math.ceil(math.sqrt(len(images))), len(images)))
    rows = -(-len(images) // columns)
    height, width = (max(image.shape[axis] for image in images) for axis in (0, 1))
    channels = 1 if all(image.shape[2] == 1 for image in images) else 3
    if (height + _GAP) * rows > _TALLEST or (width + _GAP) * columns > _TALLEST:
        raise ValueError(
            f"expected a grid of at most {_TALLEST} pixels a side, found {len(images)} of {width}×{height}"
        )
    grid = np.full((rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, channels), 40, np.uint8)
    for index, image in enumerate(images):
        y, x = (index // columns) * (height + _GAP), (index % columns) * (width + _GAP)
        shown = image if channels == 1 else as_rgb(image)
        grid[y : y + shown.shape[0], x : x + shown.shape[1]] = shown
    return grid


def as_rgb(pixels: Pixels, ground: int = 0) -> Pixels:
    """The same image in three channels; what is transparent shows the ground."""
    channels = pixels.shape[2]
    colour = pixels[..., :1].repeat(3, axis=2) if channels < 3 else pixels[..., :3]
    if channels in (1, 3):
        return np.ascontiguousarray(colour)
    alpha = pixels[..., -1:].astype(np.uint16)
    return ((colour * alpha + np.uint16(ground) * (255 - alpha) + 127) // 255).astype(np.uint8)
