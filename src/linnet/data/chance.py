"""Random numbers of a step, as a function of (seed, step): asked again, they are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linnet.data.order import GOLDEN, mix, seed_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OWN = 0x696D61676573  # so that they have nothing to do with the order of the same seed


def uniform(seed: int, step: int, rows: int, slots: int) -> NDArray[np.float32]:
    """[rows, slots] in [0, 1), 24 bits each."""
    start = mix(np.array([step], np.uint64) * GOLDEN + (seed_word(seed) ^ np.uint64(_OWN)))
    index = np.arange(rows * slots, dtype=np.uint64).reshape(rows, slots)
    return (mix(index * GOLDEN + start) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
