"""`Zoom`: which stretch of the x axis is looked at, and where the cursor is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from linnet.board.curve import Curve
from linnet.board.plot import Range


@dataclass
class Zoom:
    """The stretch of the x axis that is shown; all of it without a window. `at_end`: it moves on with the run."""

    window: Range | None = None
    whole: Range | None = None  # what could be shown; set when a chart is drawn
    at_end: bool = False
    cursor: float | None = None
    columns: tuple[int, int] = (0, 1)  # where on the screen the plot begins, and how wide it is; set with `whole`
    curves: list[Curve] = field(default_factory=list)  # the lines the cursor moves along; set with `whole`

    def x_at(self, column: int) -> float | None:
        """The x of a column of the screen."""
        shown = self.shown() or self.whole
        if shown is None:
            return None
        left, width = self.columns
        share = min(1.0, max(0.0, (column - left + 0.5) / width))
        return shown[0] * (1 - share) + shown[1] * share

    def shown(self) -> Range | None:
        if self.window is not None and self.at_end and self.whole is not None:
            width = self.window[1] - self.window[0]
            self.window = (self.whole[1] - width, self.whole[1])
        return self.window

    def scale(self, factor: float, around: float | None = None) -> None:
        """Show `factor` times as much, keeping the place of `around` (the cursor, or the right end)."""
        if self.whole is None:
            return
        low, high = self.window or self.whole
        if around is None:
            around = self.cursor if self.cursor is not None and low <= self.cursor <= high else high
        least = (self.whole[1] - self.whole[0]) * 1e-7
        width = max((high - low) * factor, least)
        left = around - (around - low) / (high - low) * width
        self._set(left, width)

    def move(self, share: float) -> None:
        """Move the window by a share of its width."""
        if self.window is not None and self.whole is not None:
            low, high = self.window
            self._set(low + share * (high - low), high - low)

    def _set(self, left: float, width: float) -> None:
        assert self.whole is not None
        low, high = self.whole
        if width >= high - low:
            self.window, self.at_end = None, False
            return
        left = min(max(left, low), high - width)
        self.window = (left, left + width)
        self.at_end = left + width >= high - (high - low) * 1e-9

    def move_cursor(self, by: int) -> None:
        """Move the cursor a column of dots to the left (-1) or right (1), or to the next row where that is farther."""
        shown = self.shown() or self.whole
        if shown is None:
            return
        low, high = shown
        if self.cursor is None:
            self.cursor = high
            return
        column = (high - low) / max(1, self.columns[1] * 2)
        rows = [curve.x[np.isfinite(curve.x) & np.isfinite(curve.mean)] for curve in self.curves]
        ahead = np.concatenate([[], *(x[by * (x - self.cursor) > 0] for x in rows)])
        distance = np.abs(ahead - self.cursor)
        is_close = distance <= column
        if is_close.any():
            target = float(ahead[is_close][distance[is_close].argmax()])
        else:
            target = float(ahead[distance.argmin()]) if len(ahead) else self.cursor + by * column
        self.cursor = min(max(target, low), high)

    def reset(self) -> None:
        """Show everything, without a cursor."""
        self.window, self.cursor, self.at_end = None, None, False
