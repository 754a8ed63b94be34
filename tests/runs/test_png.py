"""PNG without a library: what is written any program reads, and what others wrote is read to the bit."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image, PngImagePlugin

from linnet.runs.media import png
from linnet.runs.media.image_formats import ImageError, decode_image

MOST = 1 << 20
_pixels = arrays(np.uint8, array_shapes(min_dims=3, max_dims=3, max_side=4).map(lambda s: (s[0] * 3, s[1] * 3, s[2])))


def by_pillow(data: bytes, channels: int) -> np.ndarray:
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
    image = Image.open(io.BytesIO(data))
    assert image.mode == mode
    return np.asarray(image).reshape(image.height, image.width, channels)


@given(pixels=_pixels)
@settings(max_examples=60, deadline=None)
def test_what_is_written_pillow_reads_and_so_do_we(pixels: np.ndarray) -> None:
    data = png.encode(pixels)
    np.testing.assert_array_equal(by_pillow(data, pixels.shape[2]), pixels)
    np.testing.assert_array_equal(png.decode(data, MOST), pixels)


def smooth(height: int, width: int, channels: int) -> np.ndarray:
    """A gradient with some noise: libpng chooses all five filters on such."""
    generator = np.random.default_rng(3)
    base = np.add.outer(np.arange(height) * 2, np.arange(width) * 3)[..., None] + np.arange(channels) * 40
    return ((base + generator.integers(0, 9, base.shape)) % 256).astype(np.uint8)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_what_pillow_writes_is_read_to_the_bit(mode: str) -> None:
    image = Image.fromarray(smooth(37, 53, 3)).convert("RGB" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray((np.arange(37 * 53).reshape(37, 53) * 30).astype(np.uint16))
    data = io.BytesIO()
    image.save(data, "PNG")
    ours = png.decode(data.getvalue(), MOST)
    if mode == "I;16":
        theirs = (np.asarray(image) >> 8).astype(np.uint8)[..., None]
    else:
        kept = image.convert({"1": "L", "P": "RGB"}.get(mode, mode))
        theirs = np.asarray(kept).reshape(ours.shape)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_few_colours_in_few_bits_are_read(depth: int) -> None:
    colours = 2**depth
    image = Image.fromarray((np.arange(11 * 7) % colours).astype(np.uint8).reshape(7, 11), "P")
    image.putpalette([value for index in range(colours) for value in (index * 10, 255 - index, index)])
    data = io.BytesIO()
    image.save(data, "PNG", bits=depth, transparency=0)
    theirs = np.asarray(Image.open(data).convert("RGBA"))
    np.testing.assert_array_equal(png.decode(data.getvalue(), MOST), theirs)


def test_an_interlaced_file_is_left_to_pillow() -> None:
    data = bytearray(png.encode(smooth(8, 8, 3)))
    data[28] = 1
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4)
    with pytest.raises(png.InterlacedError):
        png.decode(bytes(data), MOST)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damage_is_said_and_nothing_else_happens(data: st.DataObject) -> None:
    whole = png.encode(smooth(9, 7, 3))
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        decode_image(cut)
    except ImageError as error:
        assert 0 < len(str(error)) < 200


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    header = (60_000).to_bytes(4) * 2 + bytes([8, 6, 0, 0, 0])
    bomb = png.SIGNATURE + png._chunk(b"IHDR", header) + png._chunk(b"IDAT", zlib.compress(bytes(1 << 20), 9))
    with pytest.raises(ImageError, match="expected at most 67,108,864 pixels, found 60000×60000"):
        decode_image(bomb + png._chunk(b"IEND", b""))
    small = (8).to_bytes(4) * 2 + bytes([8, 0, 0, 0, 0])
    more = png.SIGNATURE + png._chunk(b"IHDR", small) + png._chunk(b"IDAT", zlib.compress(bytes(1 << 24), 9))
    assert png.decode(more + png._chunk(b"IEND", b""), MOST).shape == (8, 8, 1)  # and no more than that is unpacked


@pytest.mark.parametrize("form", ["JPEG", "GIF", "WEBP", "BMP"])
def test_other_formats_are_decoded_by_pillow(form: str) -> None:
    data = io.BytesIO()
    Image.fromarray(np.full((6, 5, 3), 200, np.uint8)).save(data, form)
    pixels = decode_image(data.getvalue())
    assert pixels.shape[:2] == (6, 5)
    assert abs(int(pixels[3, 3, 0]) - 200) < 4
    with pytest.raises(ImageError, match=r"damaged|at most"):
        decode_image(data.getvalue()[:20])


def test_a_damaged_file_with_text_chunks_of_megabytes_is_bounded() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("comment", "a" * (1 << 22), zip=True)
    data = io.BytesIO()
    Image.fromarray(smooth(4, 4, 3)).save(data, "PNG", pnginfo=info)
    np.testing.assert_array_equal(decode_image(data.getvalue()), smooth(4, 4, 3))
