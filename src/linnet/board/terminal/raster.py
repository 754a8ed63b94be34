"""Curves to characters: each is two by four dots, and a column of dots shows the least and greatest of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linnet.board.braille import DOTS, place, span
from linnet.board.terminal.curve import Floats
from linnet.board.terminal.spans import Line

Range = tuple[float, float]
_BLANK = ord(" ")


@dataclass
class Trace:
    """A line to be drawn: where its rows stand, what they range over, and its style.

    - `over`: dots of lines below it are taken away where it passes.
    - `mark`: a letter for its end, to tell it by where there is no colour.
    - `exact`: a row is a row of the run, and does not stand for many.
    """

    x: Floats
    low: Floats
    high: Floats
    mean: Floats
    style: str
    over: bool = False
    mark: str = ""
    exact: bool = True


@dataclass
class _Columns:
    """What stands in each column of dots: `low`, `high`, `first` and `last` of its rows; NaN where nothing does."""

    low: Floats
    high: Floats
    first: Floats
    last: Floats
    broken: NDArray[np.bool_]  # the line does not come from the column before
    points: int


def range_of(traces: Sequence[Trace], window: Range | None = None, clip: bool = False) -> tuple[Range, Range] | None:
    """The least and greatest x and y of what is to be drawn; None when nothing is.

    `window`: only between these x. `clip`: leave out the one in a hundred that is farthest off at either end.
    """
    shown = [(t.x[inside], t.low[inside], t.high[inside]) for t in traces if (inside := _inside(t, window)).any()]
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


def _inside(trace: Trace, window: Range | None) -> NDArray[np.bool_]:
    inside = np.isfinite(trace.mean) & np.isfinite(trace.x)
    if window is not None:
        inside &= (trace.x >= window[0]) & (trace.x <= window[1])
    return inside


def nearest(x: Floats, values: Floats, place: float) -> int | None:
    """The row that stands closest to a place and has a value."""
    at = np.flatnonzero(np.isfinite(values) & np.isfinite(x))
    if not len(at):
        return None
    return int(at[int(np.argmin(np.abs(x[at] - place)))])


class Plot:
    """`height` rows of `width` characters to draw into."""

    def __init__(self, width: int, height: int, x_range: Range, y_range: Range) -> None:
        self.width, self.height = width, height
        self.x_range, self.y_range = x_range, y_range
        self._characters = np.full((height, width), _BLANK, dtype=np.uint32)
        self._dots = np.zeros((height, width), dtype=np.uint16)
        self._styles = np.zeros((height, width), dtype=np.int16)
        self._names = [""]
        self._ends: list[tuple[float, int, Trace]] = []  # row and column of each line that has a letter

    def draw(self, trace: Trace) -> None:
        """Draw one line, over what is there."""
        columns = _reduce(trace, self.width * 2, self.x_range)
        if columns is None:
            return
        codes = _dots(columns, self.height * 4, self.y_range)
        used = codes > 0
        self._dots = np.where(used, codes if trace.over else codes | self._dots, self._dots)
        self._styles[used] = self._style(trace.style)
        if columns.points == 1:
            row, column = (int(found[0]) for found in np.nonzero(used))
            self.write(row, column, "•", trace.style)
        if trace.mark:
            self._ends.append((*_end(columns, self.height, self.y_range), trace))

    def write(self, row: int, column: int, text: str, style: str) -> None:
        """Put characters over the dots."""
        for at, character in enumerate(text, column):
            if 0 <= row < self.height and 0 <= at < self.width:
                self._characters[row, at] = ord(character)
                self._styles[row, at] = self._style(style)

    def rule(self, column: int, character: str, style: str) -> None:
        """A vertical line behind everything."""
        for row in range(self.height):
            if not self._dots[row, column] and self._characters[row, column] == _BLANK:
                self.write(row, column, character, style)

    def column(self, x: float) -> int:
        """The column of characters in which x lies."""
        return int(place(np.array([x]), self.x_range, self.width * 2)[0]) // 2

    def lines(self) -> list[Line]:
        """The rows as text."""
        self._write_letters()
        dots = np.where(self._dots > 0, self._dots.astype(np.uint32) + 0x2800, np.uint32(_BLANK))
        characters = np.where(self._characters == _BLANK, dots, self._characters)
        styles = np.where(characters == _BLANK, -1, self._styles)
        return [self._line(row, look) for row, look in zip(characters, styles, strict=True)]

    def _write_letters(self) -> None:
        """A letter at the end of each line; those of lines that end in one place stand one below the other.

        What a column of characters has no room for stands in the column before it.
        """
        waiting = sorted(self._ends, key=lambda end: (-end[1], end[0], end[2].mark))
        column = self.width - 1
        while waiting and column >= 0:
            here = [end for end in waiting if end[1] >= column]
            waiting = here[self.height :] + waiting[len(here) :]
            here = sorted(here[: self.height], key=lambda end: (end[0], end[2].mark))
            for row, (_, _, trace) in zip(_apart([int(end[0]) for end in here], self.height), here, strict=True):
                self.write(row, column, trace.mark, trace.style)
            column -= 1

    def _line(self, row: NDArray[np.uint32], styles: NDArray[np.int16]) -> Line:
        text = row.tobytes().decode("utf-32")
        used = np.flatnonzero(styles >= 0)
        if not len(used):
            return [(text, "")]
        changes = used[1:][np.diff(styles[used]) != 0]  # blanks take the style of what stands before them
        cuts = [0, *changes.tolist(), len(text)]
        looks = [int(styles[used[0]]), *(int(styles[at]) for at in changes)]
        return [(text[a:b], self._names[look]) for a, b, look in zip(cuts[:-1], cuts[1:], looks, strict=True)]

    def _style(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)


def _reduce(trace: Trace, columns: int, x_range: Range) -> _Columns | None:
    """Bring rows into columns of dots; columns between two rows far apart get the line that joins them."""
    finite = np.isfinite(trace.x) & np.isfinite(trace.mean)
    at = np.flatnonzero(finite)
    if not len(at):
        return None
    x = trace.x[at]
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
    mean = trace.mean[at]
    gap = np.concatenate([[True], np.diff(at[...]) > 1]) if not finite.all() else np.zeros(len(at), dtype=bool)
    breaks = gap[starts]
    found = _Columns(
        low=np.full(columns, np.nan),
        high=np.full(columns, np.nan),
        first=np.full(columns, np.nan),
        last=np.full(columns, np.nan),
        broken=np.zeros(columns, dtype=bool),
        points=len(at),
    )
    _fill_gaps(found, at_columns, mean[ends], mean[starts], breaks)
    inside = (at_columns >= 0) & (at_columns < columns)
    where = at_columns[inside]
    found.low[where] = np.minimum.reduceat(trace.low[at], starts)[inside]
    found.high[where] = np.maximum.reduceat(trace.high[at], starts)[inside]
    found.first[where], found.last[where] = mean[starts][inside], mean[ends][inside]
    found.broken[where] = breaks[inside]
    return found if np.isfinite(found.low).any() else None


def _fill_gaps(found: _Columns, at: NDArray[np.int64], last: Floats, first: Floats, breaks: NDArray[np.bool_]) -> None:
    """Empty columns between two that are not: points of the straight line between them, unless it is broken there."""
    if len(at) < 2:
        return
    columns = np.arange(len(found.low))
    after = np.searchsorted(at, columns, "right")
    between = (after > 0) & (after < len(at))
    columns, after = columns[between], after[between]
    left, right = at[after - 1], at[after]
    empty = (columns > left) & ~breaks[after]
    columns, after, left, right = columns[empty], after[empty], left[empty], right[empty]
    share = (columns - left) / (right - left)
    y = last[after - 1] * (1 - share) + first[after] * share
    found.low[columns] = found.high[columns] = found.first[columns] = found.last[columns] = y


def _dots(columns: _Columns, rows: int, y_range: Range) -> NDArray[np.uint16]:
    """Dots as the codes of characters: each column filled from its least to its greatest, and joined to the next."""
    drawn = np.isfinite(columns.low)

    def row_of(values: Floats) -> NDArray[np.int64]:
        return rows - 1 - place(values, y_range, rows)

    top, bottom = row_of(columns.high), row_of(columns.low)
    leave, enter = row_of(columns.last), row_of(columns.first)
    joined = drawn[:-1] & drawn[1:] & ~columns.broken[1:]
    middle = (leave[:-1] + enter[1:]) // 2
    down = enter[1:] > leave[:-1]
    here = np.where(joined, middle, leave[:-1])  # as far as the column itself goes towards the next
    there = np.where(joined & (leave[:-1] != enter[1:]), np.where(down, middle + 1, middle), enter[1:])
    there = np.where(joined & down & (there > enter[1:]), enter[1:], there)
    top[:-1], bottom[:-1] = np.minimum(top[:-1], here), np.maximum(bottom[:-1], here)
    top[1:], bottom[1:] = np.minimum(top[1:], there), np.maximum(bottom[1:], there)
    row = np.arange(rows)[:, None]
    dots = (row >= top) & (row <= bottom) & drawn
    cells = dots.reshape(rows // 4, 4, len(top) // 2, 2).transpose(0, 2, 1, 3)
    return np.asarray((cells * DOTS).sum(axis=(2, 3)), dtype=np.uint16)


def _end(columns: _Columns, height: int, y_range: Range) -> tuple[float, int]:
    at = int(np.flatnonzero(np.isfinite(columns.last))[-1])
    row = height * 4 - 1 - int(place(columns.last[at : at + 1], y_range, height * 4)[0])
    return row / 4, at // 2


def _apart(rows: list[int], height: int) -> list[int]:
    """Rows in rising order, each moved as little as makes them differ; no more of them than `height`."""
    down, up = list(rows), list(rows)
    for at in range(1, len(rows)):
        down[at] = max(down[at], down[at - 1] + 1)
        up[-1 - at] = min(up[-1 - at], up[-at] - 1)
    middle = [(a + b) // 2 for a, b in zip(down, up, strict=True)]
    return [min(max(row, at), height - len(rows) + at) for at, row in enumerate(middle)]
