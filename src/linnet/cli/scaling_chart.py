"""The scaling curve of `linnet plan` as a chart: throughput against the number of GPUs, beside a straight line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linnet.board import words
from linnet.board.figure.scales import Scale, with_room
from linnet.board.figure.scatter import Group, Scatter, ScatterSeries

if TYPE_CHECKING:
    from linnet.train.forecast import Forecast, Limit


_LIMITS: tuple[Limit, ...] = ("compute", "link", "batch too small", "memory")


def scaling_chart(curve: Sequence[Forecast], devices: str, title: str) -> Scatter:
    """Both axes logarithmic; a point for each number of `devices` that can train, in the colour of what limits it."""
    points = [forecast for forecast in curve if forecast.speed is not None]
    ranks = [forecast.cluster.ranks for forecast in points]
    alone = (points[0].speed or 0.0) / ranks[0]
    unit = points[0].plan.unit
    series = [
        ScatterSeries(f"limited by {limit}" if limit != "batch too small" else limit, groups, colour, colour)
        for colour, limit in enumerate(_LIMITS)
        if (
            groups := [
                _group(forecast.cluster.ranks, forecast.speed or 0.0, limit)
                for forecast in points
                if forecast.limit == limit
            ]
        )
    ]
    ends = [_group(count, alone * count, "as many times one") for count in sorted({ranks[0], ranks[-1]})]
    series.append(ScatterSeries("as many times one", ends, colour=7, marker=0))
    low, high = with_room((math.log10(min(ranks)), math.log10(max(ranks))), 0.04)
    return Scatter(series, Scale(low, high, log=True), devices, f"{unit}/s", title, log=True, of="points")


def _group(ranks: int, speed: float, words_of_it: str) -> Group:
    return Group(math.log10(ranks), words.number(ranks), (speed,), (words_of_it,))
