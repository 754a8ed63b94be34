"""The order of an epoch: a shuffling that can be asked for any place without being stored.

A Feistel network turns an index into another one, and no two into the same. It works on powers of two; an index that
lands beyond the end is sent through again until it lands inside (cycle walking), which keeps it a permutation. So the
block to read at any step is a function of (seed, epoch, index), and a run's position in its data is one integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDS = 6
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, as in SplitMix64
_LOW = 0xFFFFFFFFFFFFFFFF


def shuffled(index: NDArray[np.uint64], size: int, seed: int) -> NDArray[np.int64]:
    """Where the samples `index` of an endless stream lie: `index // size` is the epoch, each shuffled anew."""
    epoch, place = index // np.uint64(size), index % np.uint64(size)
    keys = _keys(epoch, seed)
    bits = max(2, (size - 1).bit_length())
    found = _feistel(place, keys, bits)
    while (outside := np.flatnonzero(found >= size)).size:
        found[outside] = _feistel(found[outside], [key[outside] for key in keys], bits)
    return found.astype(np.int64)


def _keys(epoch: NDArray[np.uint64], seed: int) -> list[NDArray[np.uint64]]:
    """One key for each round and sample."""
    start = seed_word(seed)
    of_epoch = mix(mix(epoch + GOLDEN) ^ start)
    return [mix(of_epoch + np.uint64(turn * int(GOLDEN) & _LOW)) for turn in range(1, _ROUNDS + 1)]


def seed_word(seed: int) -> np.uint64:
    """A seed in 64 bits; the whole of it counts, however long or negative."""
    start = np.uint64(0)
    words = seed if seed >= 0 else (-seed << 1) | 1 << (seed.bit_length() + 64)
    while True:
        start = mix(np.array([int(start) ^ (words & _LOW)], np.uint64) + GOLDEN)[0]
        words >>= 64
        if not words:
            return np.uint64(start)


def _feistel(place: NDArray[np.uint64], keys: list[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """A permutation of the numbers below 2^bits. The halves differ by a bit where `bits` is odd, and swap."""
    high, low = bits // 2, bits - bits // 2
    left, right = place >> np.uint64(low), place & np.uint64((1 << low) - 1)
    for key in keys:
        left, right = right, left ^ (mix(right + key) & np.uint64((1 << high) - 1))
        high, low = low, high
    return left << np.uint64(low) | right


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: every bit of the input moves every bit of the result."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
