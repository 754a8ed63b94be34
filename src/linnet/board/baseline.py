"""The lines of the run that another one is compared with, as far as that one has come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from linnet.board.curve import Curve
from linnet.board.downsampling import DownsamplingLimits
from linnet.board.history import History
from linnet.runs import Run
from linnet.runs.baseline import find_baseline


class BaselineLines:
    """A baseline's metrics. One thread calls `read`; the rest is for whoever draws."""

    def __init__(self, run: Run, limits: DownsamplingLimits | None = None) -> None:
        self.run = run
        self._history = History(run, limits)

    @classmethod
    def of(cls, run: Run, limits: DownsamplingLimits | None = None) -> BaselineLines | None:
        """Those of the baseline that a run names; None where it names none, or that is gone."""
        named = run.manifest.compare_to is not None or "baseline" in run.manifest.config
        baseline = find_baseline(run) if named else None
        return None if baseline is None else cls(baseline, limits)

    def read(self, seconds: float) -> bool:
        """Take in what was written since, for about so long; what was read of a folder that is gone stays."""
        return self.run.path.exists() and self._history.read(seconds)

    def beside(self, own: Curve, axis: str) -> Curve | None:
        """The same metric on the same axis, up to where the run's own line ends; None where there is nothing."""
        curve = self._history.curve(own.name)
        if curve is None or not len(curve) or not len(own):
            return None
        placed = curve.on_axis(axis, self.run.created_at, self._history.curve("tokens"), curve)
        if placed is None:
            return None
        inside = placed.x <= float(np.nanmax(own.x))
        columns = ("x", "step", "t", "epoch", "low", "high", "mean")
        return replace(placed, **{name: getattr(placed, name)[inside] for name in columns}) if inside.any() else None

    def close(self) -> None:
        """Let go of its file."""
        self._history.close()
