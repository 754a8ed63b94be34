"""Which rank's optimizer moves which weights, and how the others get them back.

Muon's matrices are shared out whole: to make a matrix orthogonal is most of its work, and needs all of it. With
`shard` "moments" AdamW's weights are shared out too, by ranges of each, so that a rank keeps moments of its own share
only. What a rank has moved it sends to all others, a bucket at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from linnet.train.ranks import Ranks
from linnet.train.settings import TrainSettings

SHARDED_FROM = 300_000_000  # parameters from which on `shard` "auto" shares out the moments
_BUCKET = 1 << 22  # numbers that each rank sends at a time
_ALIGNMENT = 16  # ranges begin at a multiple of so many numbers: the kernels treat them as in the whole


@dataclass(frozen=True)
class Piece:
    """A range of a parameter's numbers, and the rank that moves them."""

    rank: int
    start: int
    stop: int


@dataclass(frozen=True)
class MomentLayout:
    """Where the numbers of a moment are: its whole shape, and the ranks that hold ranges of it, in their order."""

    shape: torch.Size
    pieces: tuple[Piece, ...]


Pieces = Mapping[str, tuple[Piece, ...]]  # of each parameter that is shared out


def shards_moments(settings: TrainSettings, ranks: Ranks, parameters: int) -> bool:
    """Are AdamW's moments shared out, with so many parameters?"""
    if ranks.alone:
        return False
    return settings.shard == "moments" or (settings.shard == "auto" and parameters >= SHARDED_FROM)


def share_out(
    named: Mapping[str, nn.Parameter], ranks: int, is_whole: Callable[[str, nn.Parameter], bool], *, ranges: bool
) -> dict[str, tuple[Piece, ...]]:
    """Whole matrices where `is_whole` says so, the most work first to the rank with the least; `ranges` of the rest."""
    pieces: dict[str, tuple[Piece, ...]] = {}
    work = [0.0] * ranks
    matrices = {name: parameter for name, parameter in named.items() if is_whole(name, parameter)}
    for name, matrix in sorted(matrices.items(), key=lambda item: -_muon_work(item[1])):
        owner = work.index(min(work))
        work[owner] += _muon_work(matrix)
        pieces[name] = (Piece(owner, 0, matrix.numel()),)
    if ranges:
        for name in (name for name in named if name not in matrices):
            total = named[name].numel()
            share = -(-total // (ranks * _ALIGNMENT)) * _ALIGNMENT
            cuts = [min(total, rank * share) for rank in range(ranks + 1)]
            pieces[name] = tuple(Piece(rank, cuts[rank], cuts[rank + 1]) for rank in range(ranks))
    return pieces


def _muon_work(matrix: Tensor) -> float:
    """Arithmetic of making a matrix orthogonal, but for a constant."""
    rows, columns = matrix.shape[0], matrix[0].numel()
    return float(rows * columns * min(rows, columns))


class WeightExchange:
    """Sends the weights that each rank has moved to all others.

    Ranks send equal numbers at a time; where one has less, what is behind is nobody's.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], pieces: Pieces, ranks: Ranks) -> None:
        self._ranks = ranks
        device = next(iter(named.values())).device
        self._outgoing = torch.zeros(0, device=device)
        lengths = [0] * ranks.count
        # By bucket and rank: where the weights lie, and where in the bucket.
        self._buckets: list[list[list[tuple[Tensor, int]]]] = []
        for name, parts in sorted(pieces.items()):
            flat = named[name].detach().view(-1)
            for piece in parts:
                start = piece.start
                while start < piece.stop:
                    bucket, offset = divmod(lengths[piece.rank], _BUCKET)
                    stop = min(piece.stop, start + _BUCKET - offset)
                    if len(self._buckets) == bucket:
                        self._buckets.append([[] for _ in range(ranks.count)])
                    self._buckets[bucket][piece.rank].append((flat[start:stop], offset))
                    lengths[piece.rank] += stop - start
                    start = stop
        self._length = min(_BUCKET, max(lengths, default=0))
        self._outgoing = torch.zeros(self._length, device=device)
        self._incoming = torch.zeros(self._length * ranks.count, device=device)

    @torch.no_grad()
    def __call__(self) -> None:
        """Let all ranks have all weights."""
        incoming = self._incoming.view(self._ranks.count, self._length)
        for by_rank in self._buckets:
            mine = by_rank[self._ranks.rank]
            if mine:
                torch._foreach_copy_(
                    [self._outgoing[at : at + len(weights)] for weights, at in mine], [weights for weights, _ in mine]
                )
            self._ranks.all_gather(self._incoming, self._outgoing)
            theirs = [
                (weights, incoming[rank, at : at + len(weights)])
                for rank, parts in enumerate(by_rank)
                for weights, at in parts
                if rank != self._ranks.rank
            ]
            if theirs:
                torch._foreach_copy_([weights for weights, _ in theirs], [received for _, received in theirs])
