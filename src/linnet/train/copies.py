"""Copies of many tensors, made at once where the tensors are, and brought to the host later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_APART = 64  # a tensor begins at a multiple of so many numbers: odd places are slow to write to


@dataclass(frozen=True)
class Copies:
    """Copies by name, side by side in as few pieces of memory as the tensors have devices and dtypes.

    On a GPU that is a few kernels and one request for memory instead of hundreds; and while it trains, each copy on its
    own way to the host waits several milliseconds.
    """

    pieces: list[Tensor]
    places: dict[str, tuple[int, int, torch.Size]]  # the piece, where in it, and the shape

    def on_host(self) -> dict[str, Tensor]:
        """The copies by name. They leave the GPU for the host's memory, beside what the GPU is doing."""
        self.pieces[:] = [_brought(piece) if piece.is_cuda else piece for piece in self.pieces]
        return self.by_name()

    def by_name(self) -> dict[str, Tensor]:
        """The copies by name, where they are."""
        return {
            name: self.pieces[piece][start : start + math.prod(shape)].view(shape)
            for name, (piece, start, shape) in self.places.items()
        }


def copies(tensors: Mapping[str, Tensor]) -> Copies:
    """Copies of tensors as they are now.

    A GPU takes a hundredth of the time that the way to the host takes; one without room pauses for the slow way.
    """
    try:
        return _copied(tensors)
    except torch.OutOfMemoryError:
        return _copied({name: tensor.detach().cpu() for name, tensor in tensors.items()})


def _copied(tensors: Mapping[str, Tensor]) -> Copies:
    kinds: dict[tuple[torch.device, torch.dtype], int] = {}
    ends: list[int] = []
    places: dict[str, tuple[int, int, torch.Size]] = {}
    for name, tensor in tensors.items():
        piece = kinds.setdefault((tensor.device, tensor.dtype), len(kinds))
        if piece == len(ends):
            ends.append(0)
        places[name] = piece, ends[piece], tensor.shape
        ends[piece] += -(-tensor.numel() // _APART) * _APART
    pieces = [torch.empty(end, dtype=dtype, device=device) for (device, dtype), end in zip(kinds, ends, strict=True)]
    made = Copies(pieces, places)
    if made.places:
        torch._foreach_copy_(list(made.by_name().values()), [tensor.detach() for tensor in tensors.values()])
    return made


def _brought(piece: Tensor) -> Tensor:
    # It was queued before this thread took it up, on the stream of the training: wait for that one.
    beside = torch.cuda.Stream(piece.device)  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.default_stream(piece.device))
    with torch.cuda.stream(beside):
        return piece.cpu()
