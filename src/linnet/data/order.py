"""The order of an epoch, and the random numbers of a step: functions of (seed, position), nothing is stored.

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
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, as in SplitMix64
_LOW = 0xFFFFFFFFFFFFFFFF
_UNIFORM = 0x696D61676573  # so that random numbers have nothing to do with the order of the same seed


def shuffled(index: NDArray[np.uint64], size: int, seed: int) -> NDArray[np.int64]:
    """Where the samples `index` of an endless stream lie: `index // size` is the epoch, each shuffled anew."""
    epoch, position = index // np.uint64(size), index % np.uint64(size)
    keys = _keys(epoch, seed)
    bits = max(2, (size - 1).bit_length())
    order = _feistel(position, keys, bits)
    while (outside := np.flatnonzero(order >= size)).size:
        order[outside] = _feistel(order[outside], [key[outside] for key in keys], bits)
    return order.astype(np.int64)


def uniform(seed: int, step: int, rows: int, columns: int) -> NDArray[np.float32]:
    """Random numbers of a step [rows, columns] in [0, 1), 24 bits each: asked again, they are the same."""
    start = _mix(np.array([step], np.uint64) * _GOLDEN + (_seed_word(seed) ^ np.uint64(_UNIFORM)))
    index = np.arange(rows * columns, dtype=np.uint64).reshape(rows, columns)
    return (_mix(index * _GOLDEN + start) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _keys(epoch: NDArray[np.uint64], seed: int) -> list[NDArray[np.uint64]]:
    """One key for each round and sample."""
    start = _seed_word(seed)
    of_epoch = _mix(_mix(epoch + _GOLDEN) ^ start)
    return [_mix(of_epoch + np.uint64(turn * int(_GOLDEN) & _LOW)) for turn in range(1, _ROUNDS + 1)]


def _seed_word(seed: int) -> np.uint64:
    """A seed in 64 bits; the whole of it counts, however long or negative."""
    start = np.uint64(0)
    words = seed if seed >= 0 else (-seed << 1) | 1 << (seed.bit_length() + 64)
    while True:
        start = _mix(np.array([int(start) ^ (words & _LOW)], np.uint64) + _GOLDEN)[0]
        words >>= 64
        if not words:
            return np.uint64(start)


def _feistel(position: NDArray[np.uint64], keys: list[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """A permutation of the numbers below 2^bits. The halves differ by a bit where `bits` is odd, and swap."""
    high, low = bits // 2, bits - bits // 2
    left, right = position >> np.uint64(low), position & np.uint64((1 << low) - 1)
    for key in keys:
        left, right = right, left ^ (_mix(right + key) & np.uint64((1 << high) - 1))
        high, low = low, high
    return left << np.uint64(low) | right


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: every bit of the input moves every bit of the result."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
