"""Line charts in text: each character is two by four dots.

A column of dots shows the least and greatest of the rows that fall into it, so no spike is lost. Nothing here knows a
terminal: a line is pieces of text, each with the name of a style.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Curve, Floats
from linnet.board.words import number

Span = tuple[str, str]  # text, style
Line = list[Span]
Range = tuple[float, float]

BEST_MARK = "◆"
BLOCKS = "▁▂▃▄▅▆▇█"
_BLANK = ord(" ")
_BRAILLE = 0x2800
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint16)  # [row, column] of a cell


class Plot:
    """`height` rows of `width` characters to draw into."""

    def __init__(self, width: int, height: int, x_range: Range, y_range: Range) -> None:
        self.width, self.height = width, height
        self.x_range, self.y_range = x_range, y_range
        self._characters = np.full((height, width), _BLANK, dtype=np.uint32)
        self._dots = np.zeros((height, width), dtype=np.uint16)
        self._styles = np.zeros((height, width), dtype=np.int16)
        self._names = [""]
        self._ends: list[tuple[float, int, str, str]] = []  # row, column, letter and style of lines that have a letter

    def draw(self, curve: Curve, style: str, *, over: bool = False, letter: str = "") -> None:
        """Draw one line.

        - `over`: dots of lines below it are taken away where it passes.
        - `letter`: for its end, to tell it by where there is no colour.
        """
        reduced = _reduce(curve, self.width * 2, self.x_range)
        if reduced is None:
            return
        columns, broken, points = reduced
        codes = _dots(columns, broken, self.height * 4, self.y_range)
        used = codes > 0
        self._dots = np.where(used, codes if over else codes | self._dots, self._dots)
        self._styles[used] = self._style(style)
        if points == 1:
            row, column = np.argwhere(used)[0].tolist()
            self.write(row, column, "•", style)
        if letter:
            self._ends.append((*_end(columns[3], self.height, self.y_range), letter, style))

    def mark(self, x: float, y: float, style: str) -> None:
        """A diamond at a point, where that is in range."""
        if self.x_range[0] <= x <= self.x_range[1] and self.y_range[0] <= y <= self.y_range[1]:
            self.write(self.row(y), self.column(x), BEST_MARK, style)

    def write(self, row: int, column: int, character: str, style: str) -> None:
        """Put a character over the dots."""
        if 0 <= row < self.height and 0 <= column < self.width:
            self._characters[row, column] = ord(character)
            self._styles[row, column] = self._style(style)

    def rule(self, column: int, character: str, style: str) -> None:
        """A vertical line behind everything."""
        for row in range(self.height):
            if not self._dots[row, column] and self._characters[row, column] == _BLANK:
                self.write(row, column, character, style)

    def column(self, x: float) -> int:
        """The column of characters in which x lies."""
        return int(cell_of(np.array([x]), self.x_range, self.width * 2)[0]) // 2

    def row(self, y: float) -> int:
        """The row of characters in which y lies, the top row first."""
        return self.height - 1 - int(cell_of(np.array([y]), self.y_range, self.height * 4)[0]) // 4

    def lines(self) -> list[Line]:
        self._write_letters()
        dots = np.where(self._dots > 0, self._dots.astype(np.uint32) + _BRAILLE, np.uint32(_BLANK))
        characters = np.where(self._characters == _BLANK, dots, self._characters)
        styles = np.where(characters == _BLANK, -1, self._styles)
        return [self._line(row, look) for row, look in zip(characters, styles, strict=True)]

    def _write_letters(self) -> None:
        """A letter at the end of each line; those of lines that end in one place stand one below the other.

        What a column of characters has no room for stands in the column before it; at the left edge, behind it.
        """
        used_cells: set[tuple[int, int]] = set()
        waiting = sorted(self._ends, key=lambda end: (-end[1], end[0], end[2]))
        column = self.width - 1
        while waiting and column >= 0:
            ends_here = [end for end in waiting if end[1] >= column]
            waiting = ends_here[self.height :] + waiting[len(ends_here) :]
            ends_here = sorted(ends_here[: self.height], key=lambda end: (end[0], end[2]))
            rows = _apart([int(end[0]) for end in ends_here], self.height)
            for row, (_, _, letter, style) in zip(rows, ends_here, strict=True):
                self.write(row, column, letter, style)
                used_cells.add((row, column))
            column -= 1
        free = ((row, column) for column in range(self.width) for row in range(self.height))
        for (_, _, letter, style), cell in zip(
            waiting, (cell for cell in free if cell not in used_cells), strict=False
        ):
            self.write(*cell, letter, style)

    def _line(self, row: NDArray[np.uint32], styles: NDArray[np.int16]) -> Line:
        text = row.tobytes().decode("utf-32")
        used = np.flatnonzero(styles >= 0)
        if not len(used):
            return [(text, "")]
        changes = used[1:][np.diff(styles[used]) != 0]  # blanks take the style of what stands before them
        cuts = [0, *changes.tolist(), len(text)]
        looks = [int(styles[used[0]]), *(int(styles[at]) for at in changes)]
        return [(text[a:b], self._names[style]) for a, b, style in zip(cuts[:-1], cuts[1:], looks, strict=True)]

    def _style(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)


def chart(curve: Curve, width: int, height: int, mark: tuple[float, float] | None = None) -> list[str]:
    """A chart with axes in `height` lines of at most `width` characters; empty when nothing can be drawn.

    `mark`: x and y of the point that is drawn as a diamond.
    """
    ranges = range_of([curve])
    if ranges is None:
        return []
    across, up = ranges
    rows = max(2, height - 2)
    labels = y_labels(up, rows)
    margin = max(len(label) for label in labels.values())
    plot = Plot(max(8, width - margin - 2), rows, across, up)
    plot.draw(curve, "")
    if mark is not None:
        plot.mark(*mark, "")
    lines = []
    for row, spans in enumerate(plot.lines()):
        edge = f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}"
        lines.append(edge + "".join(text for text, _ in spans).rstrip())
    x = curve.x[np.isfinite(curve.mean) & np.isfinite(curve.x)]
    first, last = number(int(x.min())), number(int(x.max()))
    lines.append(f"{'':>{margin}} └{'─' * plot.width}")
    lines.append(f"{'':>{margin}}  {first}{last:>{max(1, plot.width - len(first))}}")
    return lines


def sparkline(values: Sequence[float] | NDArray[np.float64], width: int) -> str:
    """A curve in one line of block characters."""
    shown = np.asarray(values, dtype=np.float64)
    shown = shown[np.isfinite(shown)]
    if not len(shown):
        return ""
    if len(shown) > width:
        shown = np.array([part.mean() for part in np.array_split(shown, width)])
    return "".join(BLOCKS[level] for level in cell_of(shown, span(shown), len(BLOCKS)))


def range_of(curves: Sequence[Curve], window: Range | None = None, clip: bool = False) -> tuple[Range, Range] | None:
    """The least and greatest x and y of what is to be drawn; None when nothing is.

    `window`: only between these x. `clip`: leave out the one in a hundred that is farthest off at either end.
    """
    shown = [(c.x[inside], c.low[inside], c.high[inside]) for c in curves if (inside := rows_inside(c, window)).any()]
    if not shown:
        return None
    low, high = np.concatenate([s[1] for s in shown]), np.concatenate([s[2] for s in shown])
    across = window or span(np.concatenate([s[0] for s in shown]))
    if clip and len(low) > 4:
        ordered_low, ordered_high = np.sort(low), np.sort(high)
        cut = max(1, len(low) // 100)
        least, most = ordered_low[cut], ordered_high[-1 - cut]
        if most > least:
            return across, (float(least), float(most))
    return across, span(np.concatenate([low, high]))


def rows_inside(curve: Curve, window: Range | None) -> NDArray[np.bool_]:
    """Which rows have a value, and their x in the window."""
    inside = np.isfinite(curve.mean) & np.isfinite(curve.x)
    if window is not None:
        inside &= (curve.x >= window[0]) & (curve.x <= window[1])
    return inside


def cell_of(values: NDArray[np.float64], span: Range, cells: int) -> NDArray[np.int64]:
    """Which of `cells` each value falls into; those outside the span, or not finite, fall on its ends."""
    low, high = span
    with np.errstate(invalid="ignore", over="ignore"):
        share = values / 2 - low / 2
        share = share / (high / 2 - low / 2)
    return (np.clip(np.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0), 0, 1) * (cells - 1)).round().astype(np.int64)


def span(values: NDArray[np.float64]) -> Range:
    """Least and greatest, drawn apart when they are the same."""
    low, high = float(values.min()), float(values.max())
    if high > low:
        return low, high
    room = abs(low) * 0.05 or 0.5
    return low - room, high + room


def y_labels(up: Range, rows: int, log_scale: bool = False, count: int = 0) -> dict[int, str]:
    """Labels by row, top row first; `count`: about so many, at round numbers, else at the ends and in the middle."""
    low, high = up
    if rows == 1:
        return {0: _y_text(high, log_scale)}
    if count:
        labels: dict[int, str] = {}
        for value in ticks(low, high, count):
            row = rows - 1 - round((value - low) / (high - low) * (rows - 1))
            labels.setdefault(row, _y_text(value, log_scale))
        if len(labels) >= 2:
            return labels
    labelled = sorted({0, rows - 1} | ({rows // 2} if rows >= 9 else set()))
    share = {row: 1 - row / (rows - 1) for row in labelled}
    return {row: _y_text(low * (1 - share[row]) + high * share[row], log_scale) for row in labelled}


def _y_text(value: float, log_scale: bool) -> str:
    if log_scale:
        value = 10.0**value if abs(value) < 308 else math.copysign(math.inf, value)
    return number(float(value))


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers between two, about `count` of them."""
    rough = (high / count) - (low / count)
    if not (0 < rough < math.inf) or not math.isfinite(low):
        return []
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else rough
    step = power * next((m for m in (1, 2, 5, 10) if m * power >= rough * 0.999), 10)
    first = math.ceil(low / step - 1e-9)
    if not math.isfinite(low / step) or abs(first) > 1e15:
        return []
    return [at * step for at in range(first, first + count + 2) if at * step <= high + step * 1e-9]


def _reduce(curve: Curve, columns: int, x_range: Range) -> tuple[Floats, NDArray[np.bool_], int] | None:
    """Bring rows into columns of dots; columns between two rows far apart get the line that joins them.

    Returns the least, greatest, first and last of each column (NaN where nothing stands), whether the line does not
    come from the column before, and of how many rows they are made; None where nothing is to be drawn.
    """
    finite = np.isfinite(curve.x) & np.isfinite(curve.mean)
    at = np.flatnonzero(finite)
    if not len(at):
        return None
    x = curve.x[at]
    if np.any(x[1:] < x[:-1]):
        order = np.argsort(x, kind="stable")
        at, x = at[order], x[order]
    first, last = x_range
    begin = max(0, int(np.searchsorted(x, first, "left")) - 1)  # one more at each side, to draw the line to the edge
    end = min(len(x), int(np.searchsorted(x, last, "right")) + 1)
    at, x = at[begin:end], x[begin:end]
    with np.errstate(over="ignore", invalid="ignore"):
        share = (x / 2 - first / 2) / (last / 2 - first / 2)
    column = np.clip(np.nan_to_num(share * (columns - 1)), -1e6, 1e6).round().astype(np.int64)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(column)) + 1])
    ends = np.append(starts[1:], len(column)) - 1
    at_columns = column[starts]
    mean = curve.mean[at]
    gap = np.concatenate([[True], np.diff(at) > 1]) if not finite.all() else np.zeros(len(at), dtype=bool)
    breaks = gap[starts]
    extents_4C = np.full((4, columns), np.nan)
    broken = np.zeros(columns, dtype=bool)
    _fill_gaps(extents_4C, at_columns, mean[ends], mean[starts], breaks)
    inside = (at_columns >= 0) & (at_columns < columns)
    where = at_columns[inside]
    extents_4C[0, where] = np.minimum.reduceat(curve.low[at], starts)[inside]
    extents_4C[1, where] = np.maximum.reduceat(curve.high[at], starts)[inside]
    extents_4C[2, where], extents_4C[3, where] = mean[starts][inside], mean[ends][inside]
    broken[where] = breaks[inside]
    return (extents_4C, broken, len(at)) if np.isfinite(extents_4C[0]).any() else None


def _fill_gaps(
    extents_4C: Floats, at: NDArray[np.int64], last: Floats, first: Floats, breaks: NDArray[np.bool_]
) -> None:
    """Empty columns between two that are not: points of the straight line between them, unless it is broken there."""
    if len(at) < 2:
        return
    columns = np.arange(extents_4C.shape[1])
    after = np.searchsorted(at, columns, "right")
    between = (after > 0) & (after < len(at))
    columns, after = columns[between], after[between]
    left, right = at[after - 1], at[after]
    empty = (columns > left) & ~breaks[after]
    columns, after, left, right = columns[empty], after[empty], left[empty], right[empty]
    share = (columns - left) / (right - left)
    extents_4C[:, columns] = last[after - 1] * (1 - share) + first[after] * share


def _dots(extents_4C: Floats, broken: NDArray[np.bool_], rows: int, y_range: Range) -> NDArray[np.uint16]:
    """Dots as the codes of characters: each column filled from its least to its greatest, and joined to the next."""
    low, high, first, last = extents_4C
    drawn = np.isfinite(low)

    def row_of(values: Floats) -> NDArray[np.int64]:
        return rows - 1 - cell_of(values, y_range, rows)

    top, bottom = row_of(high), row_of(low)
    leave, enter = row_of(last), row_of(first)
    joined = drawn[:-1] & drawn[1:] & ~broken[1:]
    middle = (leave[:-1] + enter[1:]) // 2
    down = enter[1:] > leave[:-1]
    first_row = np.where(joined, middle, leave[:-1])  # as far as the column itself goes towards the next
    second_row = np.where(joined & (leave[:-1] != enter[1:]), np.where(down, middle + 1, middle), enter[1:])
    second_row = np.where(joined & down & (second_row > enter[1:]), enter[1:], second_row)
    top[:-1], bottom[:-1] = np.minimum(top[:-1], first_row), np.maximum(bottom[:-1], first_row)
    top[1:], bottom[1:] = np.minimum(top[1:], second_row), np.maximum(bottom[1:], second_row)
    row = np.arange(rows)[:, None]
    dots = (row >= top) & (row <= bottom) & drawn
    cells = dots.reshape(rows // 4, 4, len(top) // 2, 2).transpose(0, 2, 1, 3)
    return np.asarray((cells * _DOTS).sum(axis=(2, 3)), dtype=np.uint16)


def _end(last: Floats, height: int, y_range: Range) -> tuple[float, int]:
    """Row and column of characters in which a line ends."""
    at = int(np.flatnonzero(np.isfinite(last))[-1])
    row = height * 4 - 1 - int(cell_of(last[at : at + 1], y_range, height * 4)[0])
    return row / 4, at // 2


def _apart(rows: list[int], height: int) -> list[int]:
    """Rows in rising order, each moved as little as makes them differ; no more of them than `height`."""
    down, up = list(rows), list(rows)
    for at in range(1, len(rows)):
        down[at] = max(down[at], down[at - 1] + 1)
        up[-1 - at] = min(up[-1 - at], up[-at] - 1)
    middle = [(a + b) // 2 for a, b in zip(down, up, strict=True)]
    return [min(max(row, at), height - len(rows) + at) for at, row in enumerate(middle)]
