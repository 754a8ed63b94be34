"""Stragglers: ranks that all others wait for."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

SLOW = 1.2  # times the median of the others' work in a step


def slowdowns(busy: Mapping[int, float]) -> dict[int, float]:
    """How many times as long as the median of the others each rank works in a step; above `SLOW` it is a straggler."""
    ratios = {}
    for rank, seconds in busy.items():
        other_ranks = [value for other, value in busy.items() if other != rank]
        if other_ranks and (usual := statistics.median(other_ranks)) > 0:
            ratios[rank] = round(seconds / usual, 2)
    return ratios
