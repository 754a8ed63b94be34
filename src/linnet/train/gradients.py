"""The gradients of a step: where autograd leaves them, or in one flat buffer, added up in a fixed order.

Sums of floating-point numbers depend on their order. With this one it does not matter how many ranks add them up: the
parts of a batch form shares, as many as a power of two; a share adds up its parts one after the other, and the shares
are added up by a binary tree. A rank has whole shares, and the tree goes on across the ranks (docs/train.md, Ranks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from linnet.train.overlap import Overlap
from linnet.train.ranks import SIGNALS, Ranks

MOST_SHARES = 8  # each doubling costs a rank one more copy of the gradients
_ALIGNMENT = 16  # a gradient begins at a multiple of so many numbers
_TAIL = 32  # numbers behind the gradients: a step's metrics, then what ranks tell each other
_MOST_METRICS = _TAIL - 8


@dataclass(frozen=True)
class SumOrder:
    """In which order the gradients of a rank's parts are added up: `shares` of `size` parts each.

    - `exact`: are the gradients, whatever the number of ranks, the same to the bit as one rank's?
    """

    shares: int
    size: int
    exact: bool

    @classmethod
    def of(cls, rows: int, at_once: int, ranks: int = 1) -> SumOrder:
        """For a batch of `rows` of which `at_once` pass through the model together, shared by so many ranks."""
        parts = -(-rows // at_once)
        shares = min(parts & -parts, MOST_SHARES)
        if rows % (at_once * ranks) or shares % ranks:
            return cls(1, -(-rows // ranks // at_once), ranks == 1)
        shares, size = shares // ranks, parts // shares
        if size == 1 and shares > 1:  # two parts have one order only: a buffer less
            shares, size = shares // 2, 2
        return cls(shares, size, exact=True)

    def is_one_sum(self, ranks: int) -> bool:
        """Is the sum over so many ranks that of one buffer, in the backend's order?"""
        return self.shares == 1 and not (self.exact and ranks > 2)

    @property
    def copies(self) -> int:
        """Buffers of gradients that there are at a time."""
        return self.shares.bit_length()


class PlainGradients:
    """Gradients as autograd leaves them, each parameter's by itself, one part's added to the last one's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._totals: list[Tensor] = []

    def begin(self, order: SumOrder) -> None:
        """A batch begins; no parameter has a gradient."""
        assert order.shares == 1
        self._totals = []

    def attach(self) -> None:
        """They are where the optimizer looks for them."""

    def add(self, metrics: Sequence[Tensor]) -> None:
        """A part has left its gradients; these are its metrics."""
        if not self._totals:
            self._totals = [torch.zeros((), device=self._device) for _ in metrics]
        for total, share in zip(self._totals, metrics, strict=True):
            total += share

    def metrics(self) -> tuple[Tensor, ...]:
        """The metrics of the batch."""
        return tuple(self._totals)

    def signals(self) -> tuple[Tensor, ...]:
        """There is nobody to say anything to."""
        return ()


class GradientBuffer:
    """The gradients of all parameters as views of one flat float32 tensor, with the metrics of the step behind them.

    What is sent between ranks is this one tensor; no copy of it is ever made for that.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], ranks: Ranks, device: torch.device) -> None:
        self._parameters, self._ranks = list(parameters), ranks
        starts, end = [], 0
        for parameter in self._parameters:
            starts.append(end)
            end += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        length = end + _TAIL
        length += -length % (_ALIGNMENT * ranks.count)  # ranks add up a slice each
        self.flat = torch.zeros(length, device=device)
        self._views = [
            self.flat[start : start + parameter.numel()].view(parameter.shape)
            for start, parameter in zip(starts, self._parameters, strict=True)
        ]
        self._starts, self._end = starts, end
        self._overlap: Overlap | None = None
        self._metrics, self._signals = (
            self.flat[end : end + _MOST_METRICS],
            self.flat[end + _MOST_METRICS : end + _TAIL],
        )
        self._reached: list[bool] | None = None  # which parameters have a part in the loss: known after the first pass
        self._agreed = ranks.alone  # do all ranks know the same of that?
        self._count = 0  # of metrics
        self._partial: list[Tensor] = []  # sums of shares, the larger ones first
        self._heights: list[int] = []
        self._order = SumOrder(1, 1, exact=True)
        self._done = 0  # parts

    def begin(self, order: SumOrder) -> None:
        """A batch begins, whose parts are added up in this order."""
        self._order, self._done, self._heights = order, 0, []
        self.flat.zero_()
        if self._reached is not None:
            self.attach()

    def attach(self) -> None:
        """Let the parameters' gradients be the views; those without a part in the loss have none."""
        assert self._reached is not None
        for parameter, view, reached in zip(self._parameters, self._views, self._reached, strict=True):
            parameter.grad = view if reached else None

    @torch.no_grad()
    def add(self, metrics: Sequence[Tensor]) -> None:
        """A part has left its gradients; these are its metrics."""
        self._copy_unviewed_gradients()
        self._count = len(metrics)
        self._metrics[: self._count] += torch.stack([share.float() for share in metrics])
        self._done += 1
        if self._order.shares > 1 and self._done % self._order.size == 0:
            self._close_share()

    def _copy_unviewed_gradients(self) -> None:
        """Copy gradients that are no views yet: all of them after the very first part, later hardly ever any."""
        if self._reached is not None and all(self._reached):
            return
        reached = self._reached or [False] * len(self._parameters)
        for index, known in enumerate(reached):
            gradient = None if known else self._parameters[index].grad
            if gradient is not None:
                self._views[index].add_(gradient)
                reached[index] = True
        self._reached = reached
        self.attach()

    def _close_share(self) -> None:
        """Add this share to those before it, as a binary counter carries."""
        height = 0
        while self._heights and self._heights[-1] == height:
            self._heights.pop()
            self.flat += self._partial[len(self._heights)]
            height += 1
        if self._done < self._order.shares * self._order.size:
            if len(self._partial) == len(self._heights):
                self._partial.append(torch.empty_like(self.flat))
            self._partial[len(self._heights)].copy_(self.flat)
            self._heights.append(height)
            self.flat.zero_()

    def overlapped(self) -> Overlap:
        """Let sums begin while a backward pass is still under way: of buckets whose gradients are complete."""
        if self._overlap is None:
            views = self._views
            self._overlap = Overlap(self._parameters, views, self._starts, self._end, self.flat, self._ranks)
        return self._overlap

    def sum(self) -> Tensor | None:
        """Add up what all ranks have, with the signals of each. The norm of the gradients, where it is known then."""
        for index, name in enumerate(SIGNALS):
            if self._ranks.signals[name]:
                self._signals[index].fill_(self._ranks.signals[name])
        if self._overlap is not None and self._overlap.watching:
            return self._overlap.finish()
        self._ranks.sum_(self.flat, ordered=self._order.exact)
        assert self._reached is not None
        if not self._agreed:
            self._reached = [any(known) for known in zip(*self._ranks.gather(self._reached), strict=True)]
            self._agreed = True
        for index in (index for index, known in enumerate(self._reached) if not known):
            self._reached[index] = bool(self._views[index].any())  # equal on all ranks, as the sum is
        return None

    @property
    def is_one_sum(self) -> bool:
        """Is the sum over the ranks that of one buffer, in the backend's order?"""
        return self._order.is_one_sum(self._ranks.count)

    @property
    def is_settled(self) -> bool:
        """Do all ranks know that every parameter has a gradient? Only then can buckets be waited for."""
        return self._agreed and self._reached is not None and all(self._reached)

    def metrics(self) -> tuple[Tensor, ...]:
        """The metrics of the batch."""
        return self._metrics[: self._count].unbind()

    def signals(self) -> tuple[Tensor, ...]:
        """What the ranks said, added up; one alone says nothing."""
        return () if self._ranks.alone else self._signals[: len(SIGNALS)].unbind()
