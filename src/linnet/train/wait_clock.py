"""`WaitClock`: how long a rank has waited in collectives, on the host and on its GPU."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_PENDING = 64  # pairs of events that are kept at most


class WaitClock:
    """Adds up the time of collectives. A GPU's is taken by events in its stream, since the host does not wait there."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._pending: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque(maxlen=_PENDING)

    @contextmanager
    def measured(self, tensor: Tensor) -> Iterator[None]:
        """A collective on this tensor."""
        if not tensor.is_cuda:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began
            return
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        before.record()
        yield
        after.record()
        self._pending.append((before, after))

    def seconds(self) -> float:
        """So far; of a GPU those that it has done."""
        while self._pending and self._pending[0][1].query():  # type: ignore[no-untyped-call]
            before, after = self._pending.popleft()
            self._seconds += float(before.elapsed_time(after)) / 1000
        return self._seconds
