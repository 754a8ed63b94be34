"""Quantised blocks against gguf-py, to the bit: random and hostile bytes, ranges of rows."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
import torch  # noqa: F401 (loaded, it rounds to f16 and bf16)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import gguf
from linnet.gguf.blocks import READABLE, dequantize, quantize_q8_0, to_bf16, to_f16
from linnet.gguf.errors import GGUFError
from linnet.gguf.tensor import GGMLType

EVERY_TYPE = pytest.mark.parametrize("type", READABLE, ids=lambda type: type.name)


def by_gguf_py(raw: NDArray[np.uint8], type: GGMLType) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return np.asarray(gguf.dequantize(raw.copy(), gguf.GGMLQuantizationType(type)))


def assert_same_bits(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Equal to the bit, except that any NaN equals any other."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype == np.float32
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    both = ~np.isnan(ours)
    assert np.array_equal(ours[both].view(np.uint32), theirs[both].view(np.uint32))


def random_rows(type: GGMLType, rows: int, values: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (rows, type.row_bytes(values)), dtype=np.uint8)


@EVERY_TYPE
def test_random_blocks_are_decoded_as_by_gguf_py(type: GGMLType) -> None:
    raw = random_rows(type, 130, 2048)  # more than one piece, and a remainder
    assert_same_bits(dequantize(raw, type), by_gguf_py(raw, type))


@EVERY_TYPE
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bytes_are_decoded_as_by_gguf_py(type: GGMLType, data: st.DataObject) -> None:
    blocks = data.draw(st.integers(1, 3))
    row_bytes = type.row_bytes(blocks * max(type.block_values, 4))
    raw = data.draw(arrays.arrays(np.uint8, (data.draw(st.integers(1, 2)), row_bytes)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a NaN or infinite scale is no reason to speak
        ours = dequantize(raw, type)
    assert_same_bits(ours, by_gguf_py(raw, type))


@EVERY_TYPE
def test_rows_at_an_odd_address_are_decoded_alike(type: GGMLType) -> None:
    raw = random_rows(type, 100, 2048, seed=1)
    shifted = np.concatenate([np.zeros(1, np.uint8), raw.ravel()])[1:].reshape(raw.shape)
    assert_same_bits(dequantize(shifted, type), dequantize(raw, type))


@EVERY_TYPE
def test_range_of_rows_is_that_range_of_the_whole(type: GGMLType) -> None:
    raw = random_rows(type, 40, 512)
    whole = dequantize(raw, type)
    for rows in (slice(0, 1), slice(7, 19), slice(39, 40), slice(0, 0), slice(0, 40, 3)):
        assert_same_bits(dequantize(raw[rows], type), whole[rows])


@EVERY_TYPE
def test_values_go_where_asked(type: GGMLType) -> None:
    raw = random_rows(type, 6, 512)
    out = np.full((6, 512), 7, np.float32)
    assert dequantize(raw, type, out) is out
    assert_same_bits(out, dequantize(raw, type))


@pytest.mark.parametrize("type", [GGMLType.Q8_0, GGMLType.Q6_K, GGMLType.F16], ids=lambda type: type.name)
def test_decoding_takes_little_memory_of_its_own(type: GGMLType) -> None:
    raw = random_rows(type, 2048, 4096)
    out = np.empty((2048, 4096), np.float32)
    tracemalloc.start()
    dequantize(raw, type, out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20


def test_wrong_input_is_refused_by_name() -> None:
    with pytest.raises(GGUFError, match=r"Q4_K is a multiple of 144 bytes \(a block of 256 values\), found 100"):
        dequantize(np.zeros((2, 100), np.uint8), GGMLType.Q4_K)
    with pytest.raises(GGUFError, match="type IQ2_XXS cannot be read; readable types: F32, F16, BF16, Q4_0"):
        dequantize(np.zeros((1, 66), np.uint8), GGMLType.IQ2_XXS)
    with pytest.raises(GGUFError, match=r"uint8 of shape \[rows, row_bytes\], found uint8 of shape \[34\]"):
        dequantize(np.zeros(34, np.uint8), GGMLType.Q8_0)
    with pytest.raises(GGUFError, match="found int8 of shape"):
        dequantize(np.zeros((1, 34), np.int8), GGMLType.Q8_0)
    raw = np.zeros((2, 34), np.uint8)
    for out in (np.empty((2, 31), np.float32), np.empty((2, 32)), np.empty((32, 2), np.float32).T):
        with pytest.raises(GGUFError, match=r"out is contiguous float32 of shape \[2, 32\], found"):
            dequantize(raw, GGMLType.Q8_0, out)


def floats(rows: int, values: int) -> NDArray[np.float32]:
    """Numbers of every size, with the ones where rounding goes wrong."""
    rng = np.random.default_rng(3)
    numbers = rng.standard_normal((rows, values), dtype=np.float32) * 10.0 ** rng.integers(-6, 6, (rows, 1))
    numbers = numbers.astype(np.float32)
    numbers[0] = 0
    numbers[1, :32] = np.arange(32) + 0.5  # ties, once the largest is 127
    numbers[1, 31] = 127
    numbers[2, :32] = np.nextafter(numbers[1, :32], 0)
    numbers[2, 31] = -127
    numbers[3] = 1e-42
    return numbers


def test_q8_0_is_encoded_as_by_gguf_py() -> None:
    numbers = floats(300, 1024)
    with np.errstate(all="ignore"):
        theirs = gguf.quantize(numbers, gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(quantize_q8_0(numbers), theirs)


def test_q8_0_of_what_is_no_number_neither_raises_nor_warns() -> None:
    numbers = np.array([[np.nan] * 32, [np.inf] * 32, [-np.inf, *[1.0] * 31], [3e38] * 32], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        raw = quantize_q8_0(numbers)
        assert np.isnan(dequantize(raw, GGMLType.Q8_0)[0]).all()


def test_q8_0_wants_rows_of_whole_blocks() -> None:
    with pytest.raises(GGUFError, match="a row of Q8_0 holds a multiple of 32 values, found 33"):
        quantize_q8_0(np.zeros((1, 33), np.float32))
    with pytest.raises(GGUFError, match=r"values are float32 of shape \[rows, values\], found float64"):
        quantize_q8_0(np.zeros((1, 32)))


def test_bf16_is_rounded_as_by_gguf_py() -> None:
    bits = np.random.default_rng(4).integers(0, 2**32, (64, 4096), dtype=np.uint32)
    bits[0, :8] = [
        0x7F800000,
        0xFF800000,
        0x7F800001,
        0xFFFFFFFF,
        0x7FFFFFFF,
        0x3F808000,
        0x3F818000,
        0x7F7FFFFF,
    ]
    numbers = bits.view(np.float32)
    theirs = gguf.quantize(numbers, gguf.GGMLQuantizationType.BF16).view(np.uint16)
    read_back = dequantize(theirs.view(np.uint8), GGMLType.BF16)
    assert_same_bits(dequantize(to_bf16(numbers).view(np.uint8), GGMLType.BF16), read_back)
    numbers.flags.writeable = False  # as a mapped file is: numpy rounds then, keeping the NaN's bits too
    assert np.array_equal(to_bf16(numbers), theirs)


def test_f16_is_rounded_as_by_numpy() -> None:
    numbers = np.random.default_rng(5).integers(0, 2**32, (64, 4096), dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = numbers.astype(np.float16).astype(np.float32)
    assert_same_bits(to_f16(numbers).astype(np.float32), expected)
    numbers.flags.writeable = False  # as a mapped file is
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(to_f16(numbers).astype(np.float32), expected)


def test_nothing_here_loads_torch_or_tokenizers() -> None:
    modules = "linnet.gguf.blocks, linnet.gguf.tokenizer, linnet.gguf.tokenizer_write"
    ask = f"import {modules}, sys; print({{'torch', 'tokenizers', 'gguf'}} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
