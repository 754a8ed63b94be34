"""Copies of many tensors, made at once where the tensors are, and brought to the host later."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

_STAGE = 8 << 20  # bytes on their way to the host at a time
_one_at_a_time = threading.Lock()

_APART = 64  # a tensor begins at a multiple of so many numbers: odd places are slow to write to


@dataclass(frozen=True)
class Copies:
    """Copies by name, side by side in as few pieces of memory as the tensors have devices and dtypes.

    On a GPU that is a few kernels and one request for memory instead of hundreds.
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
    if any(piece.is_cuda for piece in pieces):
        _stage()  # asked for now, while the GPU has nothing to do: it would be waited for
    made = Copies(pieces, places)
    if made.places:
        torch._foreach_copy_(list(made.by_name().values()), [tensor.detach() for tensor in tensors.values()])
    return made


@cache
def _stage() -> Tensor:
    """Memory that the GPU writes to by itself."""
    return torch.empty(_STAGE, dtype=torch.uint8, pin_memory=True)


def _brought(piece: Tensor) -> Tensor:
    """The piece in the host's memory, by way of the stage. Straight there, no step could begin until it has arrived."""
    host = torch.empty(piece.shape, dtype=piece.dtype)
    source, target = piece.view(torch.uint8), host.view(torch.uint8)
    # The copy was queued before this thread took it up, on the stream of the training: wait for that one.
    beside = torch.cuda.Stream(piece.device)  # type: ignore[no-untyped-call]
    beside.wait_stream(torch.cuda.default_stream(piece.device))
    with _one_at_a_time, torch.cuda.stream(beside):
        for part, place in zip(torch.split(source, _STAGE), torch.split(target, _STAGE), strict=True):
            stage = _stage()[: len(part)]
            stage.copy_(part, non_blocking=True)
            arrived = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            arrived.record()
            arrived.synchronize()
            place.copy_(stage)
    return host
