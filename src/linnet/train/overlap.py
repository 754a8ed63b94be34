"""`Overlap`: gradients of the last layers are added up over the ranks while those of the first are being computed.

The flat buffer of gradients is cut into buckets. A backward pass fills it from the end; a bucket whose gradients are
all there is sent at once, the last ones first, in the same order on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from linnet.train.optim import is_small
from linnet.train.ranks import Pending, Ranks

BUCKET = 25 << 18  # numbers, 25 MiB: large enough for a link's full speed


@dataclass
class _Bucket:
    start: int
    stop: int
    parameters: list[int]  # their numbers
    missing: int = 0


class Overlap:
    """The buckets of a flat buffer, on their way while a backward pass fills it.

    `starts`: where each parameter's gradient begins in `flat`, whose numbers from `end` on are no gradients.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        views: Sequence[Tensor],
        starts: Sequence[int],
        end: int,
        flat: Tensor,
        ranks: Ranks,
        size: int = BUCKET,
    ) -> None:
        self._flat, self._ranks, self._end = flat, ranks, end
        self._views = views
        self._numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self._buckets: list[_Bucket] = []  # the last one first
        stop = end
        members: list[int] = []
        for number in reversed(range(len(starts))):
            members.append(number)
            if stop - starts[number] >= size or number == 0:
                self._buckets.append(_Bucket(starts[number], stop, members))
                stop, members = starts[number], []
        self._of = {number: bucket for bucket in self._buckets for number in bucket.parameters}
        self._under_way: list[Pending] = []
        self._begun = 0
        self.watching = False  # is this the part of the batch after which gradients are complete?

    def begin(self) -> None:
        """The last backward pass of a step begins: from now on gradients that arrive are complete."""
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)
        self._under_way, self._begun, self.watching = [], 0, True

    def arrived(self, parameter: Tensor) -> None:
        """A parameter has its gradient of the batch."""
        if self.watching:
            self._of[self._numbers[id(parameter)]].missing -= 1
            self._start(lambda bucket: bucket.missing == 0)

    def finish(self) -> Tensor | None:
        """Send what is left, wait for all, and return the norm of the gradients; None of a small model's.

        The norms of what has arrived are computed while the last bucket, which nothing else can hide, is under way.
        """
        self.watching = False
        self._start(lambda bucket: True)
        tail = self._ranks.start_sum(self._flat[self._end :])
        if is_small(self._views):  # whose norm is taken of all gradients at once
            self._ranks.finish([*self._under_way, tail], self._flat)
            return None
        norms: dict[int, Tensor] = {}
        for bucket, pending in zip(self._buckets, self._under_way, strict=True):
            self._ranks.finish([pending], self._flat)
            gradients = [self._views[number] for number in bucket.parameters]
            norms.update(zip(bucket.parameters, torch._foreach_norm(gradients), strict=True))
        self._ranks.finish([tail], self._flat)
        norm: Tensor = torch.linalg.vector_norm(torch.stack([norms[number] for number in sorted(norms)]))
        return norm

    def _start(self, is_ready: Callable[[_Bucket], bool]) -> None:
        while self._begun < len(self._buckets) and is_ready(self._buckets[self._begun]):
            bucket = self._buckets[self._begun]
            self._under_way.append(self._ranks.start_sum(self._flat[bucket.start : bucket.stop]))
            self._begun += 1
