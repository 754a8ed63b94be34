"""Pieces of different lengths into rows of one length, each piece whole, with as few tokens left over as can be.

The longest piece that is left begins a row; the rest of the row is filled by pieces whose lengths add up to just that,
where there are such (a sum of subsets, found with the bits of one large integer). As long as there is a choice of
pieces rows are full to the last token, so hardly more rows are made than the tokens need: what is left over are the
last few rows, and rows of a few long pieces that do not go together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_OPEN = 512  # blocks that a pair is offered to


class Packing(NamedTuple):
    """Which pieces stand in which row: those of row `i` are `pieces[starts[i] : starts[i + 1]]`, in that order."""

    pieces: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.starts) - 1

    def row(self, number: int) -> NDArray[np.int64]:
        """The pieces of a row."""
        return self.pieces[self.starts[number] : self.starts[number + 1]]


def pack(lengths: NDArray[np.integer], room: int) -> Packing:
    """Lay pieces of 1 to `room` tokens out in rows of `room`. The same lengths give the same rows, on any machine."""
    order = np.argsort(lengths, kind="stable")
    distinct, first, counts = np.unique(lengths[order], return_index=True, return_counts=True)
    pile = _Pile(distinct.tolist(), dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
    following = dict(
        zip(distinct.tolist(), first.tolist(), strict=True)
    )  # the place in `order` of a length's next piece
    pieces, starts = [], [0]
    while pile.lengths:
        longest = pile.lengths[-1]
        pile.take(longest, 1)
        row = [(longest, 1)]
        for length, count in pile.filling(room - longest):
            pile.take(length, count)
            row.append((length, count))
        for length, count in row:
            at = following[length]
            pieces += order[at : at + count].tolist()
            following[length] = at + count
        starts.append(len(pieces))
    return Packing(np.array(pieces, np.int64), np.array(starts, np.int64))


class PairPlace(NamedTuple):
    """Where a pair of pieces stands: the first of them in row 0 or, `swapped`, in row 1 of its block."""

    pair: int
    swapped: bool


def pack_pairs(lengths_P2: NDArray[np.integer], room: int) -> list[list[PairPlace]]:
    """Lay pairs of pieces out in blocks of two rows of `room`, the two pieces of a pair in the two rows of a block.

    The longest pair first, each into the fullest block that has room for it, and so that the rows of a block become
    alike. The same lengths give the same blocks, on any machine.
    """
    blocks: list[list[PairPlace]] = []
    # Of the blocks that may still take a pair: their numbers, and what room the two rows have.
    numbers, room_K2 = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    shortest = int(lengths_P2.max(1).min(initial=room)) if len(lengths_P2) else 0
    for pair in np.argsort(-lengths_P2.max(1), kind="stable").tolist():
        both = lengths_P2[pair].astype(np.int64)
        left_K22 = np.stack((room_K2 - both, room_K2 - both[::-1]), 1)  # of each block, either way round
        fits_K2 = (left_K22 >= 0).all(2)
        # What is left of the room, and how unlike the rows are then: the least of both.
        cost_K2 = np.where(fits_K2, 2 * left_K22.sum(2) + np.abs(left_K22[..., 0] - left_K22[..., 1]), 8 * room)
        if fits_K2.any():
            at, swapped = divmod(int(cost_K2.argmin()), 2)
            room_K2[at] = left_K22[at, swapped]
            blocks[numbers[at]].append(PairPlace(pair, bool(swapped)))
            if room_K2[at].max() < shortest:
                numbers, room_K2 = np.delete(numbers, at), np.delete(room_K2, at, 0)
            continue
        if len(numbers) == _OPEN:
            fullest = int(room_K2.sum(1).argmin())
            numbers, room_K2 = np.delete(numbers, fullest), np.delete(room_K2, fullest, 0)
        blocks.append([PairPlace(pair, False)])
        numbers, room_K2 = np.append(numbers, len(blocks) - 1), np.concatenate((room_K2, (room - both)[None]))
    return blocks


class _Pile(NamedTuple):
    """Pieces that are left: their lengths, the shortest first, and how many there are of each."""

    lengths: list[int]
    counts: dict[int, int]

    def take(self, length: int, count: int) -> None:
        self.counts[length] -= count
        if not self.counts[length]:
            del self.lengths[bisect_left(self.lengths, length)]

    def filling(self, room: int) -> list[tuple[int, int]]:
        """Lengths, and how often each, that fill the room as far as can be; the longer ones where there is a choice."""
        full = (1 << room + 1) - 1
        sums, steps = 1, list[tuple[int, int, int]]()  # bit n: n tokens can be filled. With the sums before each step
        for at in range(bisect_right(self.lengths, room) - 1, -1, -1):
            length = self.lengths[at]
            for copies in _in_powers(min(self.counts[length], room // length)):
                steps.append((length, copies, sums))
                sums |= (sums << length * copies) & full
            if sums >> room & 1:
                break
        chosen, rest = [], sums.bit_length() - 1
        for length, copies, before in reversed(steps):
            if not before >> rest & 1:
                chosen.append((length, copies))
                rest -= length * copies
        return chosen


def _in_powers(count: int) -> Sequence[int]:
    """Numbers of which some add up to any number from 0 to `count`: 1, 2, 4, … and a remainder."""
    powers = []
    power = 1
    while count > 0:
        powers.append(min(power, count))
        count -= power
        power *= 2
    return powers
