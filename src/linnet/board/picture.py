"""Pictures in characters and at other sizes: pixels fitted into a room, as half blocks or as braille dots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from linnet.board.plot import Line

Pixels = NDArray[np.uint8]  # height, width, three channels

_OVERSAMPLED = 8  # of a far larger image so many pixels a side go into one
_BRAILLE = 0x2800
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint32)  # [row, column] of a cell
_BAYER = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]], dtype=np.float32)


def fitted_size(
    width: int, height: int, most_width: int, most_height: int, most_scale: float = 16.0
) -> tuple[int, int]:
    """The largest size of the same shape that fits; a small image is made larger, up to `most_scale` times."""
    scale = min(most_width / max(1, width), most_height / max(1, height), most_scale)
    return max(1, min(most_width, round(width * scale))), max(1, min(most_height, round(height * scale)))


def resized(pixels: Pixels, width: int, height: int) -> Pixels:
    """The same image in another size: the mean of the pixels that fall into one, or the nearest."""
    return _resized_rows(_resized_rows(pixels, height).swapaxes(0, 1), width).swapaxes(0, 1)


def _resized_rows(pixels: Pixels, rows: int) -> Pixels:
    if len(pixels) > rows * _OVERSAMPLED:
        pixels = pixels[np.linspace(0, len(pixels) - 1, rows * _OVERSAMPLED).round().astype(np.intp)]
    if len(pixels) <= rows:
        return pixels[np.arange(rows) * len(pixels) // rows]
    begins = np.arange(rows) * len(pixels) // rows
    sums = np.add.reduceat(pixels, begins, axis=0, dtype=np.uint32)
    counts = np.diff(np.append(begins, len(pixels))).reshape(-1, *[1] * (pixels.ndim - 1))
    means: Pixels = ((sums + counts // 2) // counts).astype(np.uint8)
    return means


def half_blocks(pixels: Pixels, width: int, height: int) -> list[Line]:
    """An image in at most `height` lines of `width` characters, each of which is two pixels, one above the other.

    The style of such a character is `pixel.<upper>.<lower>`, colours as six hex digits.
    """
    columns, rows = fitted_size(pixels.shape[1], pixels.shape[0], width, height * 2)
    shown = resized(pixels, columns, rows + rows % 2)
    codes = (shown.astype(np.uint32) * np.array([1 << 16, 1 << 8, 1], np.uint32)).sum(axis=2, dtype=np.uint32)
    return [_merged(upper.tolist(), lower.tolist()) for upper, lower in zip(codes[::2], codes[1::2], strict=True)]


def _merged(upper: list[int], lower: list[int]) -> Line:
    """One line of characters; neighbours of the same colours are one piece."""
    line: Line = []
    before, length = (upper[0], lower[0]), 0
    for pair in [*zip(upper, lower, strict=True), (-1, -1)]:
        if pair != before:
            line.append(("▀" * length, f"pixel.{before[0]:06x}.{before[1]:06x}"))
            before, length = pair, 0
        length += 1
    return line


def braille(pixels: Pixels, width: int, height: int) -> list[Line]:
    """An image without colour: two by four dots a character, more of them where it is bright."""
    columns, rows = fitted_size(pixels.shape[1], pixels.shape[0], width * 2, height * 4)
    columns, rows = columns + columns % 2, rows + -rows % 4
    light = resized(pixels, columns, rows).astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    thresholds = np.tile((_BAYER + 0.5) * 16, (rows // 4, -(-columns // 4)))[:, :columns]
    return dots_to_lines(light > thresholds)


def dots_to_lines(dots: NDArray[np.bool_], style: str = "") -> list[Line]:
    """Dots as braille characters; rows are a multiple of four, columns of two."""
    cells = dots.reshape(dots.shape[0] // 4, 4, dots.shape[1] // 2, 2)
    codes = (cells * _DOTS[None, :, None, :]).sum(axis=(1, 3)) + _BRAILLE
    return [[("".join(map(chr, row)), style)] for row in codes.tolist()]
