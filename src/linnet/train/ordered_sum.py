"""`OrderedSum`: a vector added up over the ranks by a fixed binary tree: the same bits, whatever moves them.

Each rank adds up one slice of the vector: it takes that slice of every other rank, adds by the tree, and sends the sum
back. That moves the bytes of a ring's all_reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_PIECE = 1 << 21  # numbers, 8 MiB: smaller ones take longer where ranks share cores (docs/log.md)


class OrderedSum:
    """Sums over ranks whose number is a power of two; a vector's length must be a multiple of it."""

    def __init__(self, rank: int, count: int) -> None:
        self._rank, self._count = rank, count
        self._peers = [(rank + distance) % count for distance in range(1, count)]  # not all begin with the same one
        self._received = torch.empty(0)

    def __call__(self, flat: Tensor, group: dist.ProcessGroup | None) -> None:
        """Add up in place."""
        if self._received.numel() != flat.numel() or self._received.device != flat.device:
            self._received = torch.empty_like(flat).view(self._count, -1)
        if flat.is_cuda:
            self._by_collectives(flat, group)
        else:
            self._by_pieces(flat, group)

    def _by_collectives(self, flat: Tensor, group: dist.ProcessGroup | None) -> None:
        """NCCL moves whole slices at the link's speed."""
        dist.all_to_all_single(self._received.view(-1), flat, group=group)
        slices = list(self._received.unbind())
        all_gather(flat, _tree_sum(slices, out=slices[0]), group)

    def _by_pieces(self, flat: Tensor, group: dist.ProcessGroup | None) -> None:
        """Piece by piece: one is added up while others are on their way, and each goes straight to its place.

        Gloo's own all_gather copies what it has gathered once more: with it a sum takes twice as long (docs/log.md).
        """
        slices, received = flat.view(self._count, -1), self._received
        length = slices.shape[1]
        ranges = [slice(start, min(length, start + _PIECE)) for start in range(0, length, _PIECE)]
        arriving: list[list[dist.Work]] = []
        pending: list[dist.Work] = []
        for tag, piece in enumerate(ranges):
            arriving.append([_receive(received[peer, piece], peer, group, tag) for peer in self._peers])
            for peer in self._peers:
                pending.append(_send(slices[peer, piece], peer, group, tag))
                # The sum comes into the memory that is being sent; it cannot come before that has arrived.
                pending.append(_receive(slices[peer, piece], peer, group, len(ranges) + tag))
        for tag, piece in enumerate(ranges):
            for work in arriving[tag]:
                work.wait()
            own = slices[self._rank, piece]
            summands = [own if rank == self._rank else received[rank, piece] for rank in range(self._count)]
            _tree_sum(summands, out=own)
            pending += [_send(own, peer, group, len(ranges) + tag) for peer in self._peers]
        for work in pending:
            work.wait()


def _tree_sum(summands: Sequence[Tensor], out: Tensor) -> Tensor:
    """The sum of a power of two of vectors, which are written over; `out` may be one of them."""
    while len(summands) > 2:
        summands = [left.add_(right) for left, right in zip(summands[::2], summands[1::2], strict=True)]
    return torch.add(*summands, out=out)


def _send(part: Tensor, rank: int, group: dist.ProcessGroup | None, tag: int) -> dist.Work:
    work = dist.isend(part, rank, group=group, tag=tag)
    assert work is not None  # this process is in the group
    return work


def _receive(part: Tensor, rank: int, group: dist.ProcessGroup | None, tag: int) -> dist.Work:
    work = dist.irecv(part, rank, group=group, tag=tag)
    assert work is not None
    return work


def all_gather(out: Tensor, part: Tensor, group: dist.ProcessGroup | None) -> None:
    """The parts of all ranks, one behind the other. Torch 2.13 has another name for it, and warns of the old one."""
    gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(out, part, group=group)
