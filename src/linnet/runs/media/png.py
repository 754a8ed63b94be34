"""PNG without a library: every 8-bit image is written, and what has no interlacing is read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # height, width, channels: grey, grey and alpha, RGB, RGBA

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by channels
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type; 3 is a palette
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_LEVEL = 2  # of zlib: the thread that encodes shares its cores with a training
_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)  # filters of a row


class PNGError(ValueError):
    """Bytes that are no PNG, or a damaged one."""


class InterlacedError(PNGError):
    """A PNG whose rows are interlaced, which this decoder does not read."""


def encode(pixels: Pixels, *, level: int = _LEVEL, filtered: bool = True) -> bytes:
    """A PNG file of `pixels`, which has one to four channels.

    - `level`: of zlib; `filtered`: write differences where those are smaller, as photographs want it.
    """
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    data = zlib.compress(_filtered(pixels, filtered).tobytes(), level)
    return SIGNATURE + b"".join(
        _chunk(kind, part) for kind, part in ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    )


def _filtered(pixels: Pixels, choose: bool) -> Pixels:
    """Rows, each behind its filter's number: one filter for all, the one with the least differences."""
    height, width, channels = pixels.shape
    rows = pixels.reshape(height, width * channels)
    candidates = {_NONE: rows}
    if choose:
        candidates |= {_SUB: rows.copy(), _UP: rows.copy()}
        candidates[_SUB][:, channels:] -= rows[:, :-channels]
        candidates[_UP][1:] -= rows[:-1]
    number = min(candidates, key=lambda number: _spread(candidates[number]))
    filtered = np.empty((height, 1 + width * channels), np.uint8)
    filtered[:, 0], filtered[:, 1:] = number, candidates[number]
    return filtered


def _spread(rows: Pixels) -> int:
    """How far bytes are from 0, as differences of either sign: libpng's measure of what will be small."""
    return int(np.minimum(rows, -rows).sum(dtype=np.int64)) if rows.size else 0


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class _Header(NamedTuple):
    width: int
    height: int
    depth: int
    colour_type: int

    @property
    def row_bytes(self) -> int:
        return -(-self.width * self.depth * _CHANNELS[self.colour_type] // 8)


def decode(data: bytes, most_pixels: int) -> Pixels:
    """The pixels of a PNG file. PNGError for what is damaged, or has more than `most_pixels`."""
    header, palette, alphas, compressed = _read(data, most_pixels)
    size = header.height * (1 + header.row_bytes)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(compressed, size)  # no more than the header promises, whatever the stream holds
    except zlib.error as error:
        raise PNGError(f"damaged: {error}") from None
    if len(raw) != size:
        raise PNGError(f"damaged: expected {size} bytes of pixels, found {len(raw)}")
    rows = np.frombuffer(raw, np.uint8).reshape(header.height, 1 + header.row_bytes)
    unit = max(1, header.depth * _CHANNELS[header.colour_type] // 8)
    samples = _samples(_unfiltered(rows[:, 1:], rows[:, 0], unit), header)
    if header.colour_type != 3:
        return samples
    table = np.zeros((256, 4), np.uint8)
    table[:, 3] = 255
    table[: len(palette), :3] = palette
    table[: len(alphas), 3] = alphas
    return np.ascontiguousarray(table[samples[:, :, 0], : 4 if len(alphas) else 3])


def _read(data: bytes, most_pixels: int) -> tuple[_Header, Pixels, Pixels, bytes]:
    """Header, palette, its alphas, and the compressed rows."""
    header: _Header | None = None
    palette, alphas = np.zeros((0, 3), np.uint8), np.zeros(0, np.uint8)
    parts: list[bytes] = []
    for kind, content in _chunks(data):
        if kind == b"IHDR":
            header = _header(content, most_pixels)
        elif kind == b"PLTE":
            palette = np.frombuffer(content[: len(content) // 3 * 3], np.uint8).reshape(-1, 3)[:256]
        elif kind == b"tRNS":
            alphas = np.frombuffer(content[:256], np.uint8)
        elif kind == b"IDAT":
            parts.append(content)
    if header is None:
        raise PNGError("no header")
    return header, palette, alphas if header.colour_type == 3 else alphas[:0], b"".join(parts)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise PNGError("no PNG file")
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        content, end = data[at + 8 : at + 8 + length], at + 12 + length
        if end > len(data) or struct.unpack_from(">I", data, end - 4)[0] != zlib.crc32(kind + content):
            raise PNGError(f"damaged: the chunk {kind!r} is cut or changed")
        yield kind, content
        if kind == b"IEND":
            return
        at = end
    raise PNGError("damaged: it has no end")


def _header(content: bytes, most_pixels: int) -> _Header:
    if len(content) != 13:
        raise PNGError("damaged: a header of another length")
    width, height, depth, colour_type, compression, filters, interlace = struct.unpack(">IIBBBBB", content)
    if not width or not height or depth not in _DEPTHS.get(colour_type, ()) or compression or filters:
        raise PNGError("damaged: a header that means nothing")
    if width * height > most_pixels:
        raise PNGError(f"expected at most {most_pixels:,} pixels, found {width}×{height}")
    if interlace:
        raise InterlacedError("interlaced")
    return _Header(width, height, depth, colour_type)


def _samples(rows: Pixels, header: _Header) -> Pixels:
    """Bytes of rows as 8-bit samples by channel; indexes into a palette as they are."""
    shape = (header.height, header.width, _CHANNELS[header.colour_type])
    if header.depth == 16:
        return np.ascontiguousarray(rows.reshape(*shape, 2)[..., 0])
    if header.depth == 8:
        return np.ascontiguousarray(rows.reshape(shape))
    bits = np.unpackbits(rows, axis=1).reshape(header.height, -1, header.depth)[:, : header.width]
    values: NDArray[Any] = np.zeros(bits.shape[:2], np.uint8)
    for bit in range(header.depth):
        values = values << 1 | bits[:, :, bit]
    if header.colour_type == 0:
        values = values * (255 // (2**header.depth - 1))
    return values.astype(np.uint8).reshape(shape)


def _unfiltered(rows: Pixels, filters: Pixels, unit: int) -> Pixels:
    """Undo the filters. `unit`: bytes from a sample to the same one of the pixel before."""
    if filters.size and filters.max() > _PAETH:
        raise PNGError("damaged: a filter that is none")
    if np.isin(filters, (_AVERAGE, _PAETH)).any():
        return _unfiltered_by_diagonals(rows, filters, unit)
    out = rows.copy()
    padded = -(-rows.shape[1] // unit) * unit
    for y in range(len(rows)):
        if filters[y] == _SUB:
            whole = np.zeros(padded, np.uint8)
            whole[: rows.shape[1]] = rows[y]
            out[y] = whole.reshape(-1, unit).cumsum(axis=0, dtype=np.uint8).reshape(-1)[: rows.shape[1]]
        elif filters[y] == _UP and y:
            out[y] += out[y - 1]
    return out


def _unfiltered_by_diagonals(rows: Pixels, filters: Pixels, unit: int) -> Pixels:
    """The same for all filters: a pixel needs those to its left and above, so one diagonal is done at a time."""
    height = len(rows)
    width = -(-rows.shape[1] // unit)
    whole = np.zeros((height + 1, (width + 1) * unit), np.uint8)  # a row and a pixel of zeros before the first
    whole[1:, unit : unit + rows.shape[1]] = rows
    grid = whole.reshape(height + 1, width + 1, unit)
    for diagonal in range(width + height - 1):
        y = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        x = diagonal - y + 1
        a, b, c = (grid[y + down, x + right].astype(np.int16) for down, right in ((1, -1), (0, 0), (0, -1)))
        grid[y + 1, x] += _predicted(filters[y][:, None], a, b, c).astype(np.uint8)
    return whole[1:, unit : unit + rows.shape[1]]


def _predicted(filters: Any, a: Any, b: Any, c: Any) -> NDArray[np.int16]:
    """What is added to a filtered sample: from those to the left, above, and above to the left."""
    estimate = a + b - c
    to_a, to_b, to_c = abs(estimate - a), abs(estimate - b), abs(estimate - c)
    paeth = np.where((to_a <= to_b) & (to_a <= to_c), a, np.where(to_b <= to_c, b, c))
    chosen: NDArray[np.int16] = np.select(
        [filters == _SUB, filters == _UP, filters == _AVERAGE, filters == _PAETH], [a, b, (a + b) // 2, paeth], 0
    )
    return chosen
