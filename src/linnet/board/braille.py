"""Line charts in text: each character is two by four dots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from linnet.board.words import number

DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint16)  # [row, column] of a cell
MARK = "◆"


def canvas(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    width: int,
    height: int,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
) -> list[str]:
    """Draw one line through the points into `height` rows of `width` characters; a point not finite breaks it."""
    dots = np.zeros((height * 4, width * 2), dtype=bool)
    column = place(x, x_range, width * 2)
    row = height * 4 - 1 - place(y, y_range, height * 4)
    drawn = np.isfinite(x) & np.isfinite(y)
    dots[row[drawn], column[drawn]] = True
    begins = np.flatnonzero(drawn[:-1] & drawn[1:])
    across, down = np.diff(column)[begins], np.diff(row)[begins]
    steps = np.maximum(np.maximum(np.abs(across), np.abs(down)), 1)
    segment = np.repeat(np.arange(len(begins)), steps)
    along = np.arange(len(segment)) - np.repeat(np.cumsum(steps) - steps, steps)
    dots[
        (row[begins][segment] + along * (down / steps)[segment]).round().astype(int),
        (column[begins][segment] + along * (across / steps)[segment]).round().astype(int),
    ] = True
    cells = dots.reshape(height, 4, width, 2).transpose(0, 2, 1, 3)
    codes = (cells * DOTS).sum(axis=(2, 3))
    return ["".join(chr(0x2800 + int(code)) for code in line) for line in codes]


def chart(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    width: int,
    height: int,
    mark: tuple[float, float] | None = None,
) -> list[str]:
    """A chart with axes in `height` lines of at most `width` characters; empty when nothing can be drawn.

    `mark`: the point that is drawn as a diamond.
    """
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        return []
    low, high = span(y[finite])
    left, right = span(x[finite])
    rows = max(2, height - 2)
    marks = _marks(low, high, rows)
    margin = max(len(label) for label in marks.values())
    drawn = canvas(x, y, max(8, width - margin - 2), rows, (left, right), (low, high))
    if mark is not None:
        drawn = _marked(drawn, mark, (left, right), (low, high))
    lines = [
        f"{marks.get(index, ''):>{margin}} {'┤' if index in marks else '│'}{line.rstrip(chr(0x2800))}"
        for index, line in enumerate(drawn)
    ]
    inner = len(drawn[0])
    first, last = number(int(x[finite][0])), number(int(x[finite][-1]))
    lines.append(f"{'':>{margin}} └{'─' * inner}")
    lines.append(f"{'':>{margin}}  {first}{last:>{max(1, inner - len(first))}}")
    return lines


def _marked(
    drawn: list[str], mark: tuple[float, float], x_range: tuple[float, float], y_range: tuple[float, float]
) -> list[str]:
    column = int(place(np.array([mark[0]], dtype=float), x_range, len(drawn[0]) * 2)[0]) // 2
    row = len(drawn) - 1 - int(place(np.array([mark[1]], dtype=float), y_range, len(drawn) * 4)[0]) // 4
    return [f"{line[:column]}{MARK}{line[column + 1 :]}" if at == row else line for at, line in enumerate(drawn)]


def sparkline(values: Sequence[float] | NDArray[np.float64], width: int) -> str:
    """A curve in one line of block characters."""
    held = np.asarray(values, dtype=np.float64)
    held = held[np.isfinite(held)]
    if not len(held):
        return ""
    if len(held) > width:
        held = np.array([part.mean() for part in np.array_split(held, width)])
    low, high = span(held)
    return "".join("▁▂▃▄▅▆▇█"[level] for level in place(held, (low, high), 8))


def place(values: NDArray[np.float64], span: tuple[float, float], cells: int) -> NDArray[np.int64]:
    """Which of `cells` each value falls into; those outside the span, or not finite, fall on its ends."""
    low, high = span
    with np.errstate(invalid="ignore", over="ignore"):
        share = values / 2 - low / 2
        share = share / (high / 2 - low / 2)
    return (np.clip(np.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0), 0, 1) * (cells - 1)).round().astype(np.int64)


def span(values: NDArray[np.float64]) -> tuple[float, float]:
    """Least and greatest, drawn apart when they are the same."""
    low, high = float(values.min()), float(values.max())
    if high > low:
        return low, high
    room = abs(low) * 0.05 or 0.5
    return low - room, high + room


def _marks(low: float, high: float, rows: int) -> dict[int, str]:
    """Labels for the top, the bottom and, where there is room, between."""
    places = sorted({0, rows - 1} | ({rows // 2} if rows >= 7 else set()))
    share = {place: 1 - place / (rows - 1) for place in places}
    return {place: number(low * (1 - share[place]) + high * share[place]) for place in places}
