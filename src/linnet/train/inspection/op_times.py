"""`OpTimes`: where the time of one step goes, by operation: torch's profiler for a step, without its trace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from linnet.train.hardware import Hardware
from linnet.train.inspection.late_events import InspectedEvent
from linnet.train.profile import buckets_of, costs_of, profiler_for


class OpTimes:
    """Profiles what is done in its `with` block. `step`: its number."""

    def __init__(self, hardware: Hardware, step: int) -> None:
        self.step = step
        self._hardware = hardware
        self._profiler = profiler_for(hardware)
        self._seconds = 0.0

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """The device is waited for before and after: what it still has to do is none of this step."""
        self._wait()
        self._profiler.start()
        began = time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            self._seconds = time.perf_counter() - began
            self._profiler.stop()

    def are_here(self) -> bool:
        """They were waited for."""
        return True

    def events(self) -> Iterator[InspectedEvent]:
        """One `op_timing`, in microseconds."""
        costs = costs_of(self._profiler, self._hardware, 1)
        if costs:
            yield InspectedEvent("op_timing", {"compute_us": round(self._seconds * 1e6), "buckets": buckets_of(costs)})

    def _wait(self) -> None:
        if self._hardware.device.type == "cuda":
            torch.cuda.synchronize(self._hardware.device)
