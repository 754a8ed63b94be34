"""Batches as a function: `batches.at(step)` is the same whenever and wherever it is asked.

The tokens are cut into blocks of `ctx` inputs; a block's targets are the tokens one position further, so that every
token but the first is a target exactly once an epoch. Each epoch takes the blocks in an order of its own (`order.py`).
Batches run on across the end of an epoch. The last block reaches back to be full; what it shows a second time is not
scored (target `NOT_SCORED`, which torch's losses ignore).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from linnet.data.errors import DataError
from linnet.data.order import shuffled
from linnet.data.prefetch import Prefetch
from linnet.data.segments import SegmentedTokens
from linnet.data.token_set import TokenSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOT_SCORED = -100
_AHEAD = 1 << 18  # tokens gathered at a time: then a step takes its rows, and costs a few microseconds
_ON_DEVICE = 2 << 30  # bytes a set may take to live on the device whole, or to be read from memory without a thread
_PARTS_AHEAD = 2  # gathers that are under way before their steps come, of a set that is streamed


@dataclass(frozen=True)
class Batch:
    """Inputs and targets (int64), and which document each input belongs to (int32) where that is asked for.

    `teacher_top`: ids [B, T, K] and logarithms [B, T, K + 1] of what a teacher says of the targets (teacher_logits.py).
    """

    ids_BT: torch.Tensor
    targets_BT: torch.Tensor
    documents_BT: torch.Tensor | None
    n_targets: int  # how many targets are scored: known without asking the device
    teacher_top: tuple[torch.Tensor, ...] = ()

    @property
    def inputs(self) -> tuple[torch.Tensor | None, ...]:
        """What the loss of a step takes."""
        return self.ids_BT, self.targets_BT, self.documents_BT, *self.teacher_top


class Blocks(Protocol):
    """Rows of `ctx` inputs with their targets, numbered from 0; row -1 is padding whose targets are not scored.

    - `is_streamed`: they are read ahead of their steps, by a thread.
    """

    ctx: int
    count: int

    @property
    def is_streamed(self) -> bool: ...  # noqa: D102

    def to(self, device: str | torch.device) -> None:
        """Let them come from a device."""

    def gather(self, blocks: NDArray[np.int64]) -> Gathered:
        """Some of them. Nothing in it waits for the device."""

    def n_targets(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many targets of each are scored."""


class Batches:
    """Endless shuffled batches of `batch` sequences of `ctx` tokens: of a token set, or of other blocks."""

    def __init__(
        self,
        tokens: TokenSet | Blocks,
        *,
        ctx: int,
        batch: int,
        seed: int = 0,
        documents: bool = False,
        device: str = "cpu",
    ) -> None:
        if ctx < 1 or batch < 1:
            raise DataError(f"a batch is at least one sequence of one token, found batch {batch} and ctx {ctx}")
        self.blocks = _token_blocks(tokens, ctx, documents) if isinstance(tokens, TokenSet) else tokens
        assert self.blocks.ctx == ctx, "blocks are as long as a sequence of a batch"
        self.ctx, self.batch, self.seed, self.documents = ctx, batch, seed, documents
        self._part = -1
        self._gathered: dict[tuple[int, int], Gathered] = {}  # of this part of the steps, by rank and ranks
        self._prefetch: Prefetch[tuple[int, int, int], Gathered] | None = None
        self.to(device)

    @property
    def steps_per_epoch(self) -> float:
        """How many batches show every token once; rarely a whole number."""
        return self.blocks.count / self.batch

    def to(self, device: str | torch.device) -> Batches:
        """Let batches come from `device`, with all tokens kept there when they take at most 2 GiB.

        Those of a larger set are read ahead of their steps, by a thread that also sends them to the device.
        """
        self.blocks.to(device)
        self._part = -1
        if self._prefetch is not None:
            self._prefetch.close()
        self._prefetch = Prefetch(self._gather) if self.blocks.is_streamed else None
        return self

    def at(self, step: int, rank: int = 0, ranks: int = 1) -> Batch:
        """The batch of a step, or `rank`'s share when `ranks` divide it: joined, the shares are the same batch."""
        if self.batch % ranks or not 0 <= rank < ranks:
            raise DataError(
                f"a batch of {self.batch} sequences cannot be shared out to rank {rank} of {ranks}: the number of ranks"
                " must divide `batch`"
            )
        part, row = divmod(step, self._steps_per_part)
        if part != self._part:
            self._part, self._gathered = part, {}
        share = self.batch // ranks
        if (rank, ranks) not in self._gathered:
            if self._prefetch is None:
                gathered = self._gather((part, rank, ranks))
            else:
                following = [(part + k, rank, ranks) for k in range(1, 1 + _PARTS_AHEAD)]
                gathered = self._prefetch.take((part, rank, ranks), following)
            gathered.arrive()
            self._gathered[rank, ranks] = gathered
        return self._gathered[rank, ranks].rows(row * share, share)

    def block_numbers(self, step: int, rank: int = 0, ranks: int = 1) -> NDArray[np.int64]:
        """Which blocks of the set the rows of `at(step, rank, ranks)` are, counted from 0."""
        share = self.batch // ranks
        first = step * self.batch + rank * share
        return shuffled(np.arange(first, first + share, dtype=np.uint64), self.blocks.count, self.seed)

    def n_targets(self, step: int) -> int:
        """How many targets the whole batch of a step has: what every rank divides the sum of its losses by."""
        index = np.arange(step * self.batch, (step + 1) * self.batch, dtype=np.uint64)
        return int(self.blocks.n_targets(shuffled(index, self.blocks.count, self.seed)).sum())

    @property
    def _steps_per_part(self) -> int:
        return max(1, _AHEAD // (self.batch * self.ctx))

    def _gather(self, key: tuple[int, int, int]) -> Gathered:
        """What a rank needs for the steps of a part."""
        part, rank, ranks = key
        steps, share = self._steps_per_part, self.batch // ranks
        index = np.arange(part * steps * self.batch, (part + 1) * steps * self.batch, dtype=np.uint64)
        mine = index.reshape(steps, self.batch)[:, rank * share : (rank + 1) * share].reshape(-1)
        return self.blocks.gather(shuffled(mine, self.blocks.count, self.seed))


def _token_blocks(tokens: TokenSet, ctx: int, documents: bool) -> TokenBlocks:
    blocks = TokenBlocks(tokens, ctx, documents)
    if blocks.short:
        raise DataError(
            f"the corpus is too small: {len(tokens):,} tokens to train on, but one context of {ctx} needs"
            f" {ctx + 1:,}; take more text or a smaller `ctx`"
        )
    return blocks


def windows(
    tokens: TokenSet | NDArray[Any],
    ctx: int,
    batch: int,
    *,
    documents: bool = False,
    device: str | torch.device = "cpu",
    first: int = 0,
) -> Iterator[Batch]:
    """All of a set or an array in order, every token but the first scored once; the last batch is filled up unscored.

    The last window reaches back to be full, so that its tokens are predicted from as many as the others' are. `first`:
    the number of the window to begin with. They are the blocks of `Batches`, with the same numbers.
    """
    if not isinstance(tokens, np.ndarray) and len(tokens) < 2:
        raise DataError(f"{tokens.path}: this set has nothing to score; prepare the corpus with `held_out` above 0")
    blocks = TokenBlocks(tokens, ctx, documents)
    blocks.to(device)
    yield from in_order(blocks, batch, first)


def in_order(blocks: Blocks, batch: int, first: int = 0) -> Iterator[Batch]:
    """All blocks from `first` on, `batch` at a time; the last batch is filled up unscored."""
    for start in range(first, blocks.count, batch):
        rows = np.arange(start, start + batch, dtype=np.int64)
        gathered = blocks.gather(np.where(rows < blocks.count, rows, -1))
        gathered.arrive()
        yield gathered.rows(0, batch)


@dataclass(frozen=True)
class Gathered:
    """Blocks read together, to be given out as batches."""

    ids_NT: torch.Tensor
    targets_NT: torch.Tensor
    documents_NT: torch.Tensor | None
    n_targets_N: NDArray[np.int64]
    sent: torch.cuda.Event | None = None  # when all of it is on the GPU, where another stream than the steps' sends it

    def arrive(self) -> None:
        """Let the steps that are queued from here on wait for it, on the GPU: this returns at once."""
        if self.sent is None:
            return
        stream = torch.cuda.current_stream(self.ids_NT.device)
        stream.wait_event(self.sent)
        for tensor in (self.ids_NT, self.targets_NT, self.documents_NT):
            if tensor is not None:
                tensor.record_stream(stream)  # else its memory could be given to the next while steps still read it

    def rows(self, first: int, count: int) -> Batch:
        """Some of them as a batch."""
        at = slice(first, first + count)
        documents_BT = None if self.documents_NT is None else self.documents_NT[at]
        return Batch(self.ids_NT[at], self.targets_NT[at], documents_BT, int(self.n_targets_N[at].sum()))


class TokenBlocks:
    """The blocks of a token set, numbered from 0; block -1 is padding whose targets are not scored."""

    def __init__(self, tokens: TokenSet | NDArray[Any], ctx: int, documents: bool) -> None:
        self.ctx = ctx
        self._values = tokens if isinstance(tokens, np.ndarray) else tokens.tokens
        self._segments = [] if isinstance(tokens, np.ndarray) else tokens.segments
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
        if self._opened is not None and not self.is_streamed:
            self._documents = torch.from_numpy(np.asarray(self._opened[:-1]).astype(np.int64)).to(self.device)
        self._stream: torch.cuda.Stream | None = None
        if self.is_streamed and self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    @property
    def is_streamed(self) -> bool:
        """Whether the set is too large for the device, or for a CPU's memory to be counted on."""
        n_bytes = len(self._values) * (self._values.dtype.itemsize if self.device.type == "cpu" else 4)
        return bool(self._segments) and not self.short and n_bytes > _ON_DEVICE

    def n_targets(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many targets of each are scored."""
        unscored_N = np.where(blocks == self.count - 1, self.repeated, 0)
        unscored_N[blocks < 0] = self.ctx
        return self.ctx - unscored_N

    def gather(self, blocks: NDArray[np.int64]) -> Gathered:
        """The tokens of some blocks. Nothing here waits for the device."""
        if self._stream is None:
            return self._gathered(blocks)
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            gathered = self._gathered(blocks)
            sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
            sent.record(self._stream)
        return replace(gathered, sent=sent)

    def _gathered(self, blocks: NDArray[np.int64]) -> Gathered:
        first = np.minimum(np.maximum(blocks, 0) * self.ctx, max(self.targets - self.ctx, 0))
        if self.is_streamed:
            self._fetch(first)
        if self._tokens is None:
            span_NS = self._read(first)
        else:
            span_NS = self._tokens[send(first, self.device)[:, None] + self._span].long()
        ids_NT, targets_NT = span_NS[:, :-1], span_NS[:, 1:]
        n_targets_N = self.n_targets(blocks)
        unscored_N = self.ctx - n_targets_N
        rows = np.flatnonzero(unscored_N).tolist()
        if rows:
            targets_NT = targets_NT.clone()  # the inputs look at the same memory
        for row in rows:
            unscored = int(unscored_N[row])
            # A set shorter than a context has nothing to reach back to: it is filled up behind.
            part = slice(self.ctx - unscored, None) if self.short else slice(unscored)
            targets_NT[row, part] = NOT_SCORED
        documents_NT = None
        if self._opened is not None and self.is_streamed:
            documents_NT = send(self._document_numbers(first), self.device)
        elif self._documents is not None:  # an end-of-text token belongs to the document it opens
            positions_NT = send(first, self.device)[:, None] + self._span[:-1]
            documents_NT = torch.searchsorted(self._documents, positions_NT, right=True).int() - 1
        return Gathered(ids_NT, targets_NT, documents_NT, n_targets_N)

    def _read(self, first: NDArray[np.int64]) -> torch.Tensor:
        """From the memory map; sent as int32 and widened where it arrives."""
        narrow = np.int64 if self.device.type == "cpu" else np.int32
        if isinstance(self._values, SegmentedTokens) and not self.short:
            values_NS = self._values.rows(first, self.ctx + 1)
        else:
            values_NS = self._values[np.minimum(first[:, None] + np.arange(self.ctx + 1), self.targets)]
        return send(values_NS.astype(narrow), self.device).long()

    def _fetch(self, first: NDArray[np.int64]) -> None:
        """Ask the system for all pages at once: read one by one, each would be waited for."""
        ends = np.cumsum([len(segment.tokens) for segment in self._segments])
        for position, number in zip(first.tolist(), np.searchsorted(ends, first, side="right").tolist(), strict=True):
            segment = self._segments[number]
            segment.fetch(position - int(ends[number]) + len(segment.tokens), self.ctx + 1)

    def _document_numbers(self, first: NDArray[np.int64]) -> NDArray[np.int32]:
        """The document of each input [N, ctx], looked up here: the table of a large set may not fit on the device."""
        assert self._opened is not None
        opened = self._opened[:-1]
        begin = np.searchsorted(opened, first.astype(np.uint64), side="right")
        end = np.searchsorted(opened, (first + self.ctx - 1).astype(np.uint64), side="right")
        opens_NT = np.zeros((len(first), self.ctx), np.int32)
        opens_NT[:, 0] = begin - 1
        for row in np.flatnonzero(end > begin).tolist():
            places = np.asarray(opened[begin[row] : end[row]]).astype(np.int64) - first[row]
            np.add.at(opens_NT[row], places, 1)
        return np.cumsum(opens_NT, axis=1, dtype=np.int32)


def send(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """An array on a device. A GPU fetches page-locked memory by itself; any other copy would be waited for."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
