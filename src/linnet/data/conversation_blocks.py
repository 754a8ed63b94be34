"""Conversations as rows to train on: each whole and in one row, seeing nothing of its neighbours.

A conversation ends with the last token of it that is trained on, and what would only come before nothing is no input:
of n tokens n − 1 stand in a row. One that is longer than a row is cut there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from linnet.data.batches import NOT_SCORED, Gathered, send
from linnet.data.errors import DataError
from linnet.data.order import shuffled
from linnet.data.packing import pack
from linnet.data.token_set import TokenSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

TrainOn = Literal["answers", "all"]
_AT_ONCE = 1 << 22  # tokens that are looked at together


@dataclass(frozen=True)
class PackingFacts:
    """What became of the conversations of a set.

    - `tokens`: inputs in all rows; `trained`: targets that are scored; `cut_tokens`: those that are cut off.
    - `cut`: conversations longer than a row; `left_out`: those of them whose first answer begins behind it.
    """

    conversations: int
    rows: int
    ctx: int
    tokens: int
    trained: int
    cut: int
    cut_tokens: int
    left_out: int

    @property
    def padding(self) -> float:
        """The share of inputs that are of no conversation."""
        return 1 - self.tokens / (self.rows * self.ctx) if self.rows else 0.0


class PackedBlocks:
    """Blocks of what was packed, as `Batches` takes them: what rows of conversations and of pairs share.

    Block -1 is padding of which nothing is scored, as in the blocks of a text.
    """

    is_streamed = False

    def __init__(self, ctx: int) -> None:
        self.ctx, self.count = ctx, 0
        self.device = torch.device("cpu")
        self._n_targets = np.zeros(0, np.int64)  # of each block

    def to(self, device: str | torch.device) -> None:
        """Let them come from a device."""
        self.device = torch.device(device)

    def n_targets(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many targets of each are scored; of pairs, how many there are."""
        if not self.count:
            return np.zeros(len(blocks), np.int64)
        return np.where(blocks < 0, 0, self._n_targets[np.maximum(blocks, 0)])


def mixed_order(count: int) -> list[int]:
    """The order of packed blocks. Long ones come first out of a packing: an evaluation of some should see all kinds."""
    order: list[int] = shuffled(np.arange(count, dtype=np.uint64), max(1, count), 0).tolist()
    return order


class ConversationBlocks(PackedBlocks):
    """Rows of a set of conversations; `vocab`: the rows of its vocabulary."""

    def __init__(self, tokens: TokenSet, vocab: int, ctx: int, train_on: TrainOn = "answers") -> None:
        super().__init__(ctx)
        self._vocab, self._values = vocab, tokens.tokens
        self._trains_all = train_on == "all"
        lasts, counts, cut_tokens = self._measure(tokens)
        self._opened = np.asarray(tokens.documents[:-1]).astype(np.int64)
        kept = np.flatnonzero(counts)
        self._numbers = kept  # of the conversations that are packed
        self._lengths, self._counts = np.minimum(lasts[kept], ctx), counts[kept]
        packing = pack(self._lengths, ctx)
        self.count = packing.rows
        self._rows = [packing.row(number) for number in mixed_order(self.count)]
        self._n_targets = np.array([self._counts[row].sum() for row in self._rows], np.int64)
        self.facts = PackingFacts(
            conversations=len(kept),
            rows=self.count,
            ctx=ctx,
            tokens=int(self._lengths.sum()),
            trained=int(self._counts.sum()),
            cut=int((lasts[kept] > ctx).sum()),
            cut_tokens=int(cut_tokens[kept].sum()),
            left_out=len(lasts) - len(kept),
        )

    def gather(self, blocks: NDArray[np.int64]) -> Gathered:
        """The rows, sent to the device. Nothing in it waits for that."""
        ids_NT = np.zeros((len(blocks), self.ctx), np.int64)
        targets_NT = np.full((len(blocks), self.ctx), NOT_SCORED, np.int64)
        documents_NT = np.zeros((len(blocks), self.ctx), np.int32)
        for ids_T, targets_T, documents_T, block in zip(ids_NT, targets_NT, documents_NT, blocks.tolist(), strict=True):
            at = number = 0
            for number, conversation in enumerate(self._rows[block].tolist() if block >= 0 else ()):
                begin, length = int(self._opened[self._numbers[conversation]]), int(self._lengths[conversation])
                values = self._values[begin : begin + length + 1].astype(np.int64)
                id_S, is_trained_S = values % self._vocab, values >= self._vocab
                ids_T[at : at + length] = id_S[:-1]
                targets_T[at : at + length] = np.where(is_trained_S[1:] | self._trains_all, id_S[1:], NOT_SCORED)
                documents_T[at : at + length] = number
                at += length
            documents_T[at:] = number + 1
        ids, targets, documents = (send(array, self.device) for array in (ids_NT, targets_NT, documents_NT))
        return Gathered(ids, targets, documents, self.n_targets(blocks))

    def _measure(self, tokens: TokenSet) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of each conversation: the last token that is trained on; how many are, in a row; how many behind it."""
        begins = np.asarray(tokens.documents[:-1]).astype(np.int64)
        ends = np.append(begins[1:], len(tokens)) if len(begins) else begins
        lasts, counts, behind = (np.zeros(len(begins), np.int64) for _ in range(3))
        first = 0
        while first < len(begins):
            stop = max(first + 1, int(np.searchsorted(ends, begins[first] + _AT_ONCE, side="right")))
            low = int(begins[first])
            is_trained = np.asarray(self._values[low : int(ends[stop - 1])]) >= self._vocab
            if self._trains_all:
                is_trained[:] = True
            is_trained[begins[first:stop] - low] = False  # the first token of a conversation is no target
            for number in range(first, stop):
                places = np.flatnonzero(is_trained[begins[number] - low : ends[number] - low])
                if len(places):
                    lasts[number] = places[-1]
                    counts[number] = np.searchsorted(places, self.ctx, side="right")
                    behind[number] = len(places) - counts[number]
            first = stop
        return lasts, counts, behind


def require_rows(blocks: ConversationBlocks, corpus: str) -> None:
    """Refuse a set of which nothing fits a row."""
    if not blocks.count:
        raise DataError(
            f"corpus {corpus}: no answer of its {blocks.facts.left_out:,} conversations begins within {blocks.ctx}"
            " tokens: choose a larger `ctx`"
        )
