"""The lines that a fork has from the runs it came from: their metrics up to the step at which it began."""

from __future__ import annotations

import math

import numpy as np

from linnet.board.curve import Curve, Floats
from linnet.errors import LinnetError
from linnet.runs import Run
from linnet.runs.family import ancestors

_MOST_POINTS = 4096  # of a metric: more than a screen has columns


def inherited_curves(run: Run) -> dict[str, Curve]:
    """By metric, one line over all ancestors that are still there; the machine's figures are no part of it."""
    parts: dict[str, list[tuple[Floats, Floats]]] = {}
    for ancestor in reversed(ancestors(run)):
        try:
            metrics = ancestor.run.metrics()
            for name in metrics:
                if name.startswith("sys/") or (series := metrics.get(name)) is None:
                    continue
                own = (series.step > ancestor.after) & (series.step <= ancestor.until)
                parts.setdefault(name, []).append((series.step[own].astype(np.float64), series.value[own]))
            metrics.close()
        except (LinnetError, OSError):  # its stream cannot be read: the line has a gap
            continue
    return {name: _joined(name, pieces) for name, pieces in parts.items() if any(len(step) for step, _ in pieces)}


def _joined(name: str, pieces: list[tuple[Floats, Floats]]) -> Curve:
    step, value = (np.concatenate([piece[column] for piece in pieces]) for column in (0, 1))
    every = max(1, math.ceil(len(step) / _MOST_POINTS))
    return Curve.through(step[::every], value[::every], name)
