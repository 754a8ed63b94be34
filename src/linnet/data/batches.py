"""Batches as a function: `batches.at(step)` is the same whenever and wherever it is asked.

The tokens are cut into blocks of `ctx` inputs; a block's targets are the tokens one position further, so that every
token but the first is a target exactly once an epoch. Each epoch takes the blocks in an order of its own (`order.py`).
Batches run on across the end of an epoch. The last block reaches back to be full; what it shows a second time is not
scored (target `NOT_SCORED`, which torch's losses ignore).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from linnet.data.errors import DataError
from linnet.data.order import shuffled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from linnet.data.token_set import TokenSet

NOT_SCORED = -100
_AHEAD = 1 << 18  # tokens gathered at a time: then a step takes its rows, and costs a few microseconds
_ON_DEVICE = 2 << 30  # bytes a set may take to live on the device whole


@dataclass(frozen=True)
class Batch:
    """Inputs and targets (int64), and which document each input belongs to (int32) where that is asked for."""

    ids_BT: torch.Tensor
    targets_BT: torch.Tensor
    documents_BT: torch.Tensor | None
    n_targets: int  # how many targets are scored: known without asking the device

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """What a language model's loss takes."""
        return self.ids_BT, self.targets_BT, self.documents_BT


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
                f" {ctx + 1:,}; take more text or a smaller `ctx`"
            )
        self.tokens, self.ctx, self.batch, self.seed, self.documents = tokens, ctx, batch, seed, documents
        self._part = -1
        self._gathered: dict[tuple[int, int], _Gathered] = {}  # of this part of the steps, by rank and ranks
        if device != "cpu":
            self.to(device)

    @property
    def steps_per_epoch(self) -> float:
        """How many batches show every token once; rarely a whole number."""
        return self.blocks.count / self.batch

    def to(self, device: str | torch.device) -> Batches:
        """Let batches come from `device`, with all tokens kept there when they take at most 2 GiB."""
        self.blocks.to(device)
        self._part = -1
        return self

    def at(self, step: int, rank: int = 0, ranks: int = 1) -> Batch:
        """The batch of a step, or `rank`'s share when `ranks` divide it: joined, the shares are the same batch."""
        if self.batch % ranks or not 0 <= rank < ranks:
            raise DataError(
                f"a batch of {self.batch} sequences cannot be shared out to rank {rank} of {ranks}: the number of ranks"
                " must divide `batch`"
            )
        steps = max(1, _AHEAD // (self.batch * self.ctx))
        part, row = divmod(step, steps)
        if part != self._part:
            self._part, self._gathered = part, {}
        share = self.batch // ranks
        if (rank, ranks) not in self._gathered:
            index = np.arange(part * steps * self.batch, (part + 1) * steps * self.batch, dtype=np.uint64)
            mine = index.reshape(steps, self.batch)[:, rank * share : (rank + 1) * share].reshape(-1)
            self._gathered[rank, ranks] = self.blocks.gather(shuffled(mine, self.blocks.count, self.seed))
        return self._gathered[rank, ranks].rows(row * share, share)

    def n_targets(self, step: int) -> int:
        """How many targets the whole batch of a step has: what every rank divides the sum of its losses by."""
        index = np.arange(step * self.batch, (step + 1) * self.batch, dtype=np.uint64)
        last = int((shuffled(index, self.blocks.count, self.seed) == self.blocks.count - 1).sum())
        return self.batch * self.ctx - last * self.blocks.repeated


def windows(
    tokens: TokenSet | NDArray[Any],
    ctx: int,
    batch: int,
    *,
    documents: bool = False,
    device: str | torch.device = "cpu",
) -> Iterator[Batch]:
    """All of a set or an array in order, every token but the first scored once; the last batch is filled up unscored.

    The last window reaches back to be full, so that its tokens are predicted from as many as the others' are.
    """
    if not isinstance(tokens, np.ndarray) and len(tokens) < 2:
        raise DataError(f"{tokens.path}: this set has nothing to score; prepare the corpus with `held_out` above 0")
    blocks = _Blocks(tokens, ctx, documents)
    blocks.to(device)
    for first in range(0, blocks.count, batch):
        rows = np.arange(first, first + batch, dtype=np.int64)
        yield blocks.gather(np.where(rows < blocks.count, rows, -1)).rows(0, batch)


@dataclass(frozen=True)
class _Gathered:
    """Blocks read together, to be given out as batches."""

    ids_NT: torch.Tensor
    targets_NT: torch.Tensor
    documents_NT: torch.Tensor | None
    n_targets_N: NDArray[np.int64]

    def rows(self, first: int, count: int) -> Batch:
        at = slice(first, first + count)
        documents_BT = None if self.documents_NT is None else self.documents_NT[at]
        return Batch(self.ids_NT[at], self.targets_NT[at], documents_BT, int(self.n_targets_N[at].sum()))


class _Blocks:
    """The blocks of a set, numbered from 0; block -1 is padding whose targets are not scored."""

    def __init__(self, tokens: TokenSet | NDArray[Any], ctx: int, documents: bool) -> None:
        self.ctx = ctx
        self._values = tokens if isinstance(tokens, np.ndarray) else tokens.tokens
        self._opened = None if isinstance(tokens, np.ndarray) or not documents else tokens.documents
        self.targets = max(len(tokens) - 1, 0)
        self.short = self.targets < ctx
        self.count = -(-self.targets // ctx)
        self.repeated = self.count * ctx - self.targets  # what the last block shows again
        self.to("cpu")

    def to(self, device: str | torch.device) -> None:
        """Keep tokens and documents on a device; on the CPU the memory map is the cheapest place to read from."""
        self.device = torch.device(device)
        self._span = torch.arange(self.ctx + 1, device=self.device)
        self._tokens: torch.Tensor | None = None
        self._documents: torch.Tensor | None = None
        if self.device.type != "cpu" and len(self._values) * 4 <= _ON_DEVICE and not self.short:
            self._tokens = torch.from_numpy(self._values.astype(np.int32)).to(self.device)
        if self._opened is not None:
            self._documents = torch.from_numpy(np.asarray(self._opened[:-1]).astype(np.int64)).to(self.device)

    def gather(self, blocks: NDArray[np.int64]) -> _Gathered:
        """The tokens of some blocks. Nothing here waits for the device."""
        first = np.minimum(np.maximum(blocks, 0) * self.ctx, max(self.targets - self.ctx, 0))
        if self._tokens is None:
            span_NS = self._read(first)
        else:
            span_NS = self._tokens[send(first, self.device)[:, None] + self._span].long()
        ids_NT, targets_NT = span_NS[:, :-1], span_NS[:, 1:]
        unscored_N = np.where(blocks == self.count - 1, self.repeated, 0)
        unscored_N[blocks < 0] = self.ctx
        rows = np.flatnonzero(unscored_N).tolist()
        if rows:
            targets_NT = targets_NT.clone()  # the inputs look at the same memory
        for row in rows:
            unscored = int(unscored_N[row])
            # A set shorter than a context has nothing to reach back to: it is filled up behind.
            part = slice(self.ctx - unscored, None) if self.short else slice(unscored)
            targets_NT[row, part] = NOT_SCORED
        documents_NT = None
        if self._documents is not None:  # an end-of-text token belongs to the document it opens
            positions_NT = send(first, self.device)[:, None] + self._span[:-1]
            documents_NT = torch.searchsorted(self._documents, positions_NT, right=True).int() - 1
        return _Gathered(ids_NT, targets_NT, documents_NT, self.ctx - unscored_N)

    def _read(self, first: NDArray[np.int64]) -> torch.Tensor:
        """From the memory map; sent as int32 and widened where it arrives."""
        positions_NS = np.minimum(first[:, None] + np.arange(self.ctx + 1), self.targets)
        narrow = np.int64 if self.device.type == "cpu" else np.int32
        return send(self._values[positions_NS].astype(narrow), self.device).long()


def send(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array on a device. A GPU fetches page-locked memory by itself; any other copy would be waited for."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
