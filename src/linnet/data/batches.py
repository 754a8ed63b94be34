"""Batches as a function: `batches.at(step)` is the same whenever and wherever it is asked.

The tokens are cut into blocks of `ctx` inputs; a block's targets are the tokens one place further, so that every token
but the first is a target exactly once an epoch. Each epoch takes the blocks in an order of its own (`order.py`).
Batches run on across the end of an epoch. The last block reaches back to be full; what it shows a second time is not
scored (target `NOT_SCORED`, which torch's losses ignore).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from linnet.data.errors import DataError
from linnet.data.order import shuffled

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from linnet.data.shard import TokenSet

NOT_SCORED = -100
_AHEAD = 8192  # samples whose places are worked out at a time: one small copy to the device now and then
_ON_DEVICE = 2 << 30  # bytes a set may take to live on the device whole


@dataclass(frozen=True)
class Batch:
    """Inputs and targets (int64), and which document each input belongs to (int32) where that is asked for."""

    ids_BT: torch.Tensor
    targets_BT: torch.Tensor
    documents_BT: torch.Tensor | None
    n_targets: int  # how many targets are scored: known without asking the device


class Batches:
    """Endless shuffled batches of `batch` sequences of `ctx` tokens."""

    def __init__(
        self, tokens: TokenSet, *, ctx: int, batch: int, seed: int = 0, documents: bool = False, device: str = "cpu"
    ) -> None:
        if ctx < 1 or batch < 1:
            raise DataError(f"a batch is at least one sequence of one token, found batch {batch} and ctx {ctx}")
        self.blocks = _Blocks(tokens, ctx, documents)
        if self.blocks.short:
            raise DataError(
                f"the corpus is too small: {len(tokens):,} tokens to train on, but one context of {ctx} needs"
                f" {ctx + 1:,}; take more text or a smaller --ctx"
            )
        self.tokens, self.ctx, self.batch, self.seed, self.documents = tokens, ctx, batch, seed, documents
        self._starts: dict[int, tuple[NDArray[np.int64], torch.Tensor]] = {}
        if device != "cpu":
            self.to(device)

    @property
    def steps_per_epoch(self) -> float:
        """How many batches show every token once; rarely a whole number."""
        return self.blocks.count / self.batch

    def epoch(self, step: int) -> int:
        """The epoch, from 0, that the batch of `step` begins in."""
        return step * self.batch // self.blocks.count

    def to(self, device: str | torch.device) -> Batches:
        """Let batches come from `device`, with all tokens kept there when they take at most 2 GiB."""
        self.blocks.to(device)
        self._starts.clear()
        return self

    def at(self, step: int, rank: int = 0, ranks: int = 1) -> Batch:
        """The batch of a step, or `rank`'s share when `ranks` divide it: joined, the shares are the same batch."""
        if self.batch % ranks or not 0 <= rank < ranks:
            raise DataError(
                f"a batch of {self.batch} sequences cannot be shared out to rank {rank} of {ranks}: the number of ranks"
                " must divide --batch"
            )
        share = self.batch // ranks
        places, on_device = self._places(step)
        first = step * self.batch % len(places) + rank * share
        return self.blocks.batch(places[first : first + share], on_device[first : first + share])

    def _places(self, step: int) -> tuple[NDArray[np.int64], torch.Tensor]:
        """The blocks of this step and its neighbours, shuffled."""
        steps = max(1, _AHEAD // self.batch)
        part = step // steps
        if part not in self._starts:
            size = steps * self.batch
            index = np.arange(part * size, (part + 1) * size, dtype=np.uint64)
            places = shuffled(index, self.blocks.count, self.seed)
            self._starts = {part: (places, self.blocks.send(places))}
        return self._starts[part]


def windows(
    tokens: TokenSet, ctx: int, batch: int, *, documents: bool = False, device: str | torch.device = "cpu"
) -> Iterator[Batch]:
    """All of a set in order, every token but the first scored once; the last batch is filled up unscored."""
    if len(tokens) < 2:
        raise DataError(f"{tokens.path}: this set has nothing to score; prepare the corpus with --held-out above 0")
    blocks = _Blocks(tokens, ctx, documents)
    blocks.to(device)
    for first in range(0, blocks.count, batch):
        rows = np.arange(first, first + batch, dtype=np.int64)
        yield blocks.batch(np.where(rows < blocks.count, rows, -1), None)


class _Blocks:
    """The blocks of a set, numbered from 0; block -1 is padding whose targets are not scored."""

    def __init__(self, tokens: TokenSet, ctx: int, documents: bool) -> None:
        import torch

        self.set, self.ctx, self.documents = tokens, ctx, documents
        self.targets = max(len(tokens) - 1, 0)
        self.short = self.targets < ctx
        self.count = -(-self.targets // ctx)
        self.repeated = self.count * ctx - self.targets  # what the last block shows again
        self.device = torch.device("cpu")
        self._tokens: torch.Tensor | None = None
        self._documents: torch.Tensor | None = None
        self._span = torch.arange(ctx + 1)

    def to(self, device: str | torch.device) -> None:
        import torch

        self.device = torch.device(device)
        self._span = torch.arange(self.ctx + 1, device=self.device)
        self._tokens = self._documents = None
        # On the CPU the memory map itself is the cheapest place to read from.
        if self.device.type != "cpu" and len(self.set) * 4 <= _ON_DEVICE and not self.short:
            self._tokens = torch.from_numpy(self.set.tokens.astype(np.int32)).to(self.device)
        if self.documents and self.device.type != "cpu":
            self._documents = torch.from_numpy(self.set.documents.astype(np.int64)).to(self.device)

    def send(self, places: NDArray[np.int64]) -> torch.Tensor:
        """Block numbers where the tokens are."""
        import torch

        return torch.from_numpy(places).to(self.device)

    def batch(self, places: NDArray[np.int64], on_device: torch.Tensor | None) -> Batch:
        import torch

        starts = self._start(places)
        scored = np.where(places == self.count - 1, self.ctx - self.repeated, self.ctx)
        scored[places < 0] = 0
        masked = np.flatnonzero(scored < self.ctx)
        if self._tokens is not None:
            at = self.send(places) if on_device is None else on_device
            at = (at.clamp(min=0) * self.ctx).clamp(max=self.targets - self.ctx)
            span_BS = self._tokens[at[:, None] + self._span].long()
        else:
            span_BS = self._read(starts)
        ids_BT, targets_BT = span_BS[:, :-1], span_BS[:, 1:]
        if masked.size:
            targets_BT = targets_BT.clone()
            for row in masked.tolist():
                if self.short and scored[row]:
                    targets_BT[row, int(scored[row]) :] = NOT_SCORED
                else:
                    targets_BT[row, : self.ctx - int(scored[row])] = NOT_SCORED
        documents_BT = None
        if self.documents:
            documents_BT = self._documents_of(torch.from_numpy(starts))
        return Batch(ids_BT, targets_BT, documents_BT, int(scored.sum()))

    def _start(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        starts: NDArray[np.int64] = np.maximum(places, 0) * self.ctx
        return np.minimum(starts, max(self.targets - self.ctx, 0))

    def _read(self, starts: NDArray[np.int64]) -> torch.Tensor:
        """From the memory map, through page-locked memory when a GPU is to have it; widened where it arrives."""
        import torch

        wide = torch.int32 if self.device.type != "cpu" else torch.int64
        span_BS = torch.zeros(len(starts), self.ctx + 1, dtype=wide, pin_memory=self.device.type == "cuda")
        out = span_BS.numpy()
        for row, start in enumerate(starts.tolist()):
            piece = self.set.tokens[start : start + self.ctx + 1]
            out[row, : len(piece)] = piece
        return span_BS.to(self.device, non_blocking=True).long()

    def _documents_of(self, starts: torch.Tensor) -> torch.Tensor:
        """The document each input is in; an end-of-text token belongs to the document it opens."""
        import torch

        if self._documents is None:
            places = starts.numpy()[:, None] + np.arange(self.ctx)
            found = np.searchsorted(self.set.documents[:-1], places.astype(np.uint64), side="right") - 1
            return torch.from_numpy(found.astype(np.int32)).to(self.device, non_blocking=True)
        places_BT = starts.to(self.device, non_blocking=True)[:, None] + self._span[:-1]
        return (torch.searchsorted(self._documents[:-1], places_BT, right=True) - 1).int()
