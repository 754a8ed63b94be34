"""Moments that are shared out among ranks, on their way into rank 0's checkpoint, a few megabytes at a time.

A thread of each rank sends what it holds while training goes on; rank 0 writes it to its place in the file as it comes.
No rank ever holds another one's moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.train.ranks import Ranks
from linnet.train.shards import MomentLayout

_AT_ONCE = 1 << 21  # numbers that are on their way at a time


@dataclass(frozen=True)
class StreamedTensor:
    """A float32 tensor that is written as it comes: `chunks` gives its numbers once, in their order."""

    shape: torch.Size
    chunks: Iterator[Tensor]
    dtype: torch.dtype = torch.float32

    def numel(self) -> int:
        """How many numbers it has."""
        return self.shape.numel()

    def element_size(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize


class MomentStream:
    """One checkpoint's moments: other ranks `send`; rank 0 reads `tensors`, all of them, or else calls `drain`."""

    def __init__(self, layouts: Mapping[str, MomentLayout], ranks: Ranks) -> None:
        self._layouts, self._ranks = dict(sorted(layouts.items())), ranks
        self._expected = [  # from the other ranks, in the order in which they send
            (key, piece, start)
            for key, layout in self._layouts.items()
            for piece in layout.pieces
            if piece.rank != 0
            for start in range(piece.start, piece.stop, _AT_ONCE)
        ]
        self._arrived = 0
        self._buffer = torch.empty(0)

    def of_this_rank(self, moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those moments that this rank alone holds."""
        return {key: tensor for key, tensor in moments.items() if key in self._layouts}

    def send(self, own: Mapping[str, Tensor]) -> None:
        """Send what this rank holds, `own` by its keys, on the host."""
        for key, piece, start in self._expected:
            if piece.rank == self._ranks.rank:
                flat = own[key].reshape(-1)
                self._ranks.send_to_first(flat[start - piece.start : min(piece.stop, start + _AT_ONCE) - piece.start])

    def tensors(self, own: Mapping[str, Tensor]) -> dict[str, StreamedTensor]:
        """What is shared out, by its key, rank 0's `own` share of it included. It must be read in the keys' order."""
        return {
            key: StreamedTensor(layout.shape, self._chunks(key, own.get(key))) for key, layout in self._layouts.items()
        }

    def _chunks(self, key: str, own: Tensor | None) -> Iterator[Tensor]:
        for piece in self._layouts[key].pieces:
            if piece.rank == 0:
                assert own is not None
                yield own.reshape(-1)
                continue
            for _ in range(piece.start, piece.stop, _AT_ONCE):
                expected, _, _ = self._expected[self._arrived]
                assert expected == key, "moments are read in the order of their keys"
                yield self._receive()

    def _receive(self) -> Tensor:
        _, piece, start = self._expected[self._arrived]
        if not len(self._buffer):
            self._buffer = torch.empty(_AT_ONCE)
        chunk = self._buffer[: min(piece.stop, start + _AT_ONCE) - start]
        self._ranks.receive(chunk, piece.rank)
        self._arrived += 1
        return chunk

    def drain(self) -> None:
        """Take what nobody wants any more: a checkpoint could not be written, and the others must not wait."""
        while self._ranks.is_first and self._arrived < len(self._expected):
            self._receive()
