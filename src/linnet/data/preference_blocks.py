"""Pairs as rows to train on: the chosen answers and the rejected ones in two rows beside each other, a block.

Each conversation is whole and alone in its row, as in `conversation_blocks`; the two of a pair have one number there,
and stand in the two rows of one block, so that whatever takes a part of a batch, by twos, has both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from linnet.data.batches import NOT_SCORED, Batch, Gathered, send
from linnet.data.conversation_blocks import PackedBlocks, PackingFacts, mixed_order
from linnet.data.errors import DataError
from linnet.data.packing import pack_pairs
from linnet.data.token_set import TokenSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 2  # of a block
_SIGNS = (1.0, -1.0)  # of a chosen and a rejected answer


@dataclass(frozen=True)
class PreferenceBatch(Batch):
    """Rows of pairs, two and two: rows 2i and 2i + 1 hold the same pairs. `n_targets` is the number of pairs.

    - `signs_BT`: 1 where a target is of a chosen answer, −1 of a rejected one, 0 where it is not scored (float32).
    - `pairs_BP`: the numbers, among its documents, of a row's pairs, −1 where it has fewer (int32).
    """

    signs_BT: torch.Tensor | None = None
    pairs_BP: torch.Tensor | None = None

    @property
    def inputs(self) -> tuple[torch.Tensor | None, ...]:
        """What the loss of a step takes."""
        return self.ids_BT, self.targets_BT, self.documents_BT, self.signs_BT, self.pairs_BP


@dataclass(frozen=True)
class GatheredPairs(Gathered):
    """Blocks read together; of each `rows` gives both rows."""

    signs_NT: torch.Tensor | None = None
    pairs_NP: torch.Tensor | None = None

    def rows(self, first: int, count: int) -> PreferenceBatch:
        """Some blocks as a batch."""
        at = slice(ROWS * first, ROWS * (first + count))
        assert self.documents_NT is not None and self.signs_NT is not None and self.pairs_NP is not None
        return PreferenceBatch(
            self.ids_NT[at],
            self.targets_NT[at],
            self.documents_NT[at],
            int(self.n_targets_N[first : first + count].sum()),
            signs_BT=self.signs_NT[at],
            pairs_BP=self.pairs_NP[at],
        )


class PreferenceBlocks(PackedBlocks):
    """Blocks of a set of pairs; `vocab`: the rows of its vocabulary.

    - `most_pairs`: that a block holds.
    """

    def __init__(self, tokens: TokenSet, vocab: int, ctx: int) -> None:
        super().__init__(ctx)
        self._vocab, self._values = vocab, tokens.tokens
        begins_P2, lasts_P2, counts_P2, cut_P2 = self._measure(tokens)
        kept = np.flatnonzero(counts_P2.all(1))
        self._begins_P2 = begins_P2[kept]
        self._lengths_P2 = np.minimum(lasts_P2[kept], ctx)
        blocks = pack_pairs(self._lengths_P2, ctx)
        self.count = len(blocks)
        self._blocks = [blocks[number] for number in mixed_order(self.count)]
        self._n_targets = np.array([len(block) for block in self._blocks], np.int64)
        self.most_pairs = int(self._n_targets.max(initial=0))
        self.facts = PackingFacts(
            conversations=len(kept),
            rows=ROWS * self.count,
            ctx=ctx,
            tokens=int(self._lengths_P2.sum()),
            trained=int(counts_P2[kept].sum()),
            cut=int((lasts_P2[kept] > ctx).any(1).sum()),
            cut_tokens=int(cut_P2[kept].sum()),
            left_out=len(lasts_P2) - len(kept),
        )

    def gather(self, blocks: NDArray[np.int64]) -> GatheredPairs:
        """The blocks, sent to the device. Nothing in it waits for that."""
        shape = (ROWS * len(blocks), self.ctx)
        ids_NT, targets_NT = np.zeros(shape, np.int64), np.full(shape, NOT_SCORED, np.int64)
        documents_NT, signs_NT = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        pairs_NP = np.full((shape[0], max(1, self.most_pairs)), -1, np.int32)
        for number, block in enumerate(blocks.tolist()):
            places = self._blocks[block] if block >= 0 else []
            ends = [0] * ROWS
            for document, (pair, swapped) in enumerate(places):
                pairs_NP[ROWS * number : ROWS * (number + 1), document] = document
                for side, sign in enumerate(_SIGNS):
                    row = side ^ swapped
                    begin, length = int(self._begins_P2[pair, side]), int(self._lengths_P2[pair, side])
                    values = np.asarray(self._values[begin : begin + length + 1]).astype(np.int64)
                    id_S, is_trained_S = values % self._vocab, values // self._vocab % 2 == 1
                    at = ROWS * number + row, slice(ends[row], ends[row] + length)
                    ids_NT[at] = id_S[:-1]
                    targets_NT[at] = np.where(is_trained_S[1:], id_S[1:], NOT_SCORED)
                    signs_NT[at] = np.where(is_trained_S[1:], sign, 0.0)
                    documents_NT[at] = document
                    ends[row] += length
            for row, end in enumerate(ends):
                documents_NT[ROWS * number + row, end:] = len(places)
        arrays = (ids_NT, targets_NT, documents_NT, signs_NT, pairs_NP)
        ids, targets, documents, signs, pairs = (send(array, self.device) for array in arrays)
        return GatheredPairs(ids, targets, documents, self.n_targets(blocks), signs_NT=signs, pairs_NP=pairs)

    def _measure(self, tokens: TokenSet) -> tuple[NDArray[np.int64], ...]:
        """Of both conversations of each pair: where it begins, the last token that is trained on; how many are, in a
        row, and how many behind it.
        """
        opened = np.asarray(tokens.documents[:-1]).astype(np.int64)
        ends = np.append(opened[1:], len(tokens)) if len(opened) else opened
        begins, lasts, counts, behind = (np.zeros((len(opened), 2), np.int64) for _ in range(4))
        for number, (begin, end) in enumerate(zip(opened.tolist(), ends.tolist(), strict=True)):
            values = np.asarray(self._values[begin:end]).astype(np.int64) // self._vocab
            second = int(np.searchsorted(values // 2, 1))  # the first conversation's are 0 and 1, the second's 2 and 3
            for side, part in enumerate((values[:second], values[second:])):
                begins[number, side] = begin + side * second
                places = 1 + np.flatnonzero(part[1:] % 2)  # its first token is no target
                if len(places):
                    lasts[number, side] = places[-1]
                    counts[number, side] = np.searchsorted(places, self.ctx, side="right")
                    behind[number, side] = len(places) - counts[number, side]
        return begins, lasts, counts, behind


def require_pairs(blocks: PreferenceBlocks, corpus: str) -> None:
    """Refuse a set of which nothing fits a row."""
    if not blocks.count:
        raise DataError(
            f"corpus {corpus}: of none of its {blocks.facts.left_out:,} pairs both answers begin within {blocks.ctx}"
            " tokens: choose a larger `ctx`"
        )
