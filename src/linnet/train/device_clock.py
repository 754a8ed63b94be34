"""Moments on the device's own clock: on a GPU events in its stream, which cost nobody a wait."""

from __future__ import annotations

import time

import torch

Moment = float | torch.cuda.Event


def moment_on(device: torch.device) -> Moment:
    """Now; on a GPU when it has done what was asked of it so far."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_between(began: Moment, ended: Moment) -> float:
    """The time between two moments of one device, which must have come to the second."""
    if isinstance(began, float):
        assert isinstance(ended, float)
        return ended - began
    assert not isinstance(ended, float)
    return float(began.elapsed_time(ended)) / 1000
