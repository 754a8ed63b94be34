"""`HeatMap`: a table of numbers that is drawn as colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from linnet.board.figure.colours import Theme, mixed
from linnet.board.words import number, plain

_NONE = "·"  # a cell without a number
_PALEST, _STRONGEST = 0.04, 0.92  # how much of the colour there is at the ends of the scale
_DARK_FROM = 0.52  # from which share of the colour on a text on it has the colour of the ground


@dataclass(frozen=True)
class HeatMap:
    """A table that is drawn as colours.

    - `values`: NaN where there is no number.
    - `low`, `high`: the ends of the scale of colours; None: those of the values.
    - `quantity`: what a number is; `percent`: it is shown in hundredths.
    - `texts`: what stands in the cells instead of their numbers.
    - `log`: colours go by the logarithm; what is not positive has the palest.
    """

    values: NDArray[np.float64]
    rows: Sequence[str]
    columns: Sequence[str]
    quantity: str
    title: str = ""
    row_label: str = ""
    column_label: str = ""
    low: float | None = None
    high: float | None = None
    percent: bool = True
    texts: Sequence[Sequence[str]] | None = None
    log: bool = False

    @property
    def cell_texts(self) -> list[list[str]]:
        """What stands in each cell."""
        if self.texts is not None:
            return [[plain(text) for text in row] for row in self.texts]
        return [[self.text(value) for value in row] for row in self.values.tolist()]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The ends of the scale of colours."""
        finite = self.values[np.isfinite(self.values) & ((self.values > 0) | (not self.log))]
        low = (float(finite.min()) if len(finite) else 0.0) if self.low is None else self.low
        high = (float(finite.max()) if len(finite) else 1.0) if self.high is None else self.high
        if self.log:
            low = low if low > 0 else 1e-300
            return low, high if high > low else low * 10.0
        return low, high if high > low else low + max(1.0, abs(low))  # to 1e20 one adds nothing

    def share(self, value: float) -> float:
        """Where on the scale of colours a value lies, from 0 to 1; NaN stays NaN."""
        low, high = self._counted_ends
        if self.log and value <= 0:
            return 0.0
        return value if math.isnan(value) else min(1.0, max(0.0, (self._counted(value) - low) / (high - low)))

    def value_at(self, share: float) -> float:
        """The value at a place on the scale of colours."""
        low, high = self._counted_ends
        value = low + (high - low) * share
        return 10.0**value if self.log else value

    def _counted(self, value: float) -> float:
        return math.log10(value) if self.log else value

    @cached_property
    def _counted_ends(self) -> tuple[float, float]:
        low, high = self.ends
        return self._counted(low), self._counted(high)

    def text(self, value: float) -> str:
        """A value as its cell says it."""
        if math.isnan(value):
            return _NONE
        return f"{100 * value:.{self._decimals}f}" if self.percent else number(value, 2)

    @cached_property
    def _decimals(self) -> int:
        """Of hundredths: two digits of the end of the scale at least, as an adapter moves a layer by 2 %."""
        end = 100 * self.ends[1]
        return 0 if end >= 10 or end <= 0 else min(4, 1 - math.floor(math.log10(end)))

    def colour(self, share: float, theme: Theme) -> str:
        """The ground of a cell."""
        return mixed(theme.lines[0], theme.ground, _PALEST + (_STRONGEST - _PALEST) * share)

    def ink(self, share: float, theme: Theme) -> str:
        """The colour of a text on that ground."""
        return theme.ground if share > _DARK_FROM else theme.text
