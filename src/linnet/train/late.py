"""Figures that come back from the device late, so that the loop never waits for them."""

from __future__ import annotations

import time
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
    """A queue of steps whose loss is still on its way. On the CPU nothing is ever late.

    A step's time is taken where it is spent: on a GPU by events in its stream, since the host runs ahead.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._waiting: deque[_Waiting] = deque()
        self._began = self._now()

    def begin(self) -> None:
        """The next step begins now: what was done since the last one is not its time."""
        self._began = self._now()

    def add(self, step: int, lr: float, result: StepResult) -> None:
        """Queue the figures of a step that was just handed out."""
        told = [result.loss, result.grad_norm] + ([] if result.accuracy is None else [result.accuracy])
        figures = torch.stack([figure.float() for figure in told])
        if self._cuda:
            figures = figures.to("cpu", non_blocking=True)
        ended = self._now()
        self._waiting.append(_Waiting(step, lr, self._began, ended, figures))
        self._began = ended

    def ready(self, wait: bool = False) -> list[Figures]:
        """The figures that have come; all of them with `wait`."""
        found = []
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first.ended, torch.cuda.Event) and not first.ended.query():  # type: ignore[no-untyped-call]
                if not wait and len(self._waiting) < _MOST:
                    break
                first.ended.synchronize()
            self._waiting.popleft()
            found.append(Figures(first.step, first.lr, first.seconds, *first.figures.tolist()))
        return found

    def _now(self) -> _Moment:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


_Moment = float | torch.cuda.Event


@dataclass(frozen=True)
class _Waiting:
    step: int
    lr: float
    began: _Moment
    ended: _Moment
    figures: Tensor

    @property
    def seconds(self) -> float:
        """How long the step took; the device must have done it."""
        if isinstance(self.began, float):
            assert isinstance(self.ended, float)
            return self.ended - self.began
        assert not isinstance(self.ended, float)
        return float(self.began.elapsed_time(self.ended)) / 1000
