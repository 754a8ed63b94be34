"""Figures that come back from the device late, so that the loop never waits for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.train.step import StepResult

_MOST = 16  # steps the host may run ahead of its figures


@dataclass(frozen=True)
class Figures:
    """What the host knew when it queued a step, and what came back."""

    step: int
    lr: float
    seconds: float
    loss: float
    grad_norm: float
    accuracy: float | None = None


class Late:
    """A queue of steps whose loss is still on its way. On the CPU nothing is ever late."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._waiting: deque[tuple[int, float, float, Tensor, torch.cuda.Event | None]] = deque()

    def add(self, step: int, lr: float, seconds: float, result: StepResult) -> None:
        """Queue the figures of a step."""
        told = [result.loss, result.grad_norm] + ([] if result.accuracy is None else [result.accuracy])
        figures = torch.stack([figure.float() for figure in told])
        event = None
        if self._cuda:
            figures = figures.to("cpu", non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._waiting.append((step, lr, seconds, figures, event))

    def ready(self, wait: bool = False) -> list[Figures]:
        """The figures that have come; all of them with `wait`."""
        found = []
        while self._waiting:
            step, lr, seconds, figures, event = self._waiting[0]
            if event is not None and not event.query():  # type: ignore[no-untyped-call]
                if not wait and len(self._waiting) < _MOST:
                    break
                event.synchronize()
            self._waiting.popleft()
            found.append(Figures(step, lr, seconds, *figures.tolist()))
        return found
