"""Matrices of random blocks, packed as a file's are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from linnet.gguf.blocks import dequantize
from linnet.gguf.tensor import GGMLType
from linnet.kernels.packed import PackedMatrix
from linnet.models.frozen import packed_rows


def random_blocks(type: GGMLType, rows: int, values: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of a quantised tensor; scales are small and finite, all other bits are random."""
    dice = np.random.default_rng(seed)
    raw = dice.integers(0, 256, (rows, type.row_bytes(values)), dtype=np.uint8)
    blocks = raw.reshape(-1, type.block_bytes)
    for place in _SCALES[type]:
        halves = (0.01 + 0.02 * dice.random(len(blocks))).astype(np.float16)
        blocks[:, place : place + 2] = halves.view(np.uint8).reshape(-1, 2)
    return raw


def packed(*kinds: tuple[GGMLType, int], values: int = 512) -> tuple[PackedMatrix, NDArray[np.float32]]:
    """A matrix of parts of these types and heights; and the same as float32, decoded by the reader of files."""
    raws = [(random_blocks(type, rows, values, seed), type) for seed, (type, rows) in enumerate(kinds)]
    return (
        PackedMatrix([packed_rows(raw, type) for raw, type in raws]),
        np.concatenate([dequantize(raw, type) for raw, type in raws]),
    )


# Where the scales and minima of a block are.
_SCALES = {
    GGMLType.Q8_0: (0,),
    GGMLType.Q4_0: (0,),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0,),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q2_K: (80, 82),
    GGMLType.Q3_K: (108,),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208,),
    GGMLType.IQ4_NL: (0,),
    GGMLType.IQ4_XS: (0,),
}
