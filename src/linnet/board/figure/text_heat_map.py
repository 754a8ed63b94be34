"""A `HeatMap` in text: each cell its number, on a ground that is the stronger the larger it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from linnet.board.figure.colours import Theme
from linnet.board.figure.heat_map import HeatMap
from linnet.board.plot import Line
from linnet.board.words import cells, padded, plain, shorten

_MOST_LABEL = 18  # characters of a row's label
_MOST_TEXT = 13  # of the text in a cell
_WIDEST = 8  # columns of a cell that is widened
_RAMPS = (10, 5, 3, 2)  # cells of the legend: as many as have room
_DIGITS, _NONE = "0123456789", "·"
_CURSOR = "cursor.cell"
_CURSOR_COLOUR = 4  # of the theme's lines, for a cursor that is half a character

Cell = tuple[int, int]  # row and column of a map


@dataclass(frozen=True)
class CellPlaces:
    """Where the cells of a map stand: behind a margin with the labels of rows.

    - `columns`: those of the map that are shown; `widths`: how wide the cells of each are.
    - `digits`: of numbers, that have no room, one digit is shown.
    """

    margin: int
    widths: list[int]
    columns: list[int]
    digits: bool = False

    def column_at(self, x: int) -> int | None:
        """The column of the map that is drawn at x; None where there is none."""
        end = self.margin
        for column, wide in zip(self.columns, self.widths, strict=True):
            if end <= x < end + wide:
                return column
            end += wide
        return None


def heat_lines(
    heat: HeatMap, width: int, theme: Theme, *, cursor: Cell | None = None, widened: bool = False
) -> list[Line]:
    """The map in lines of at most `width` characters.

    Numbers stand in their cells; where they have no room, a digit from 0 to 9 for where each lies on the scale; where
    there is no room for that either, every n-th column is left out. Of texts there are as many columns beside each
    other as have room, and below them the next. A cell's style is `pixel.<text>.<ground>`.

    - `cursor`: a cell that is marked. `widened`: cells take the width that there is.
    """
    labels = row_labels(heat)
    lines: list[Line] = [[(shorten(plain(heat.title), width), "title")]] if heat.title else []
    if heat.texts is not None:
        texts, room = heat.cell_texts, max(1, width - _margin(heat, labels))
        wide = min(_widest(texts), _MOST_TEXT + 1, room)
        beside, columns = max(1, room // wide), list(range(len(heat.columns)))
        for begin in range(0, len(columns), beside):
            block = columns[begin : begin + beside]
            places = CellPlaces(_margin(heat, labels), [wide] * len(block), block)
            lines += [*([[]] if begin else []), *_rows(heat, places, labels, texts, theme, cursor)]
        return [*lines, *legend(heat, width, theme, digits=False, hidden=0)]
    places = cell_places(heat, width, widened=widened)
    texts = [[_digit(heat.share(value)) for value in row] for row in heat.values.tolist()]
    lines += _rows(heat, places, labels, texts if places.digits else heat.cell_texts, theme, cursor)
    hidden = len(heat.columns) - len(places.columns)
    return [*lines, *legend(heat, width, theme, digits=places.digits, hidden=hidden)]


def half_block_lines(heat: HeatMap, width: int, theme: Theme, *, cursor: Cell | None = None) -> list[Line]:
    """The same in colours alone, two rows of the map a line: for many rows, in a terminal that has colours."""
    labels, places = row_labels(heat), cell_places(heat, width, blocks=True)
    lines = [_column_labels(heat, places)]
    for upper in range(0, len(heat.rows), 2):
        pair = range(upper, min(upper + 2, len(heat.rows)))
        marked = cursor is not None and cursor[0] in pair
        label = labels[cursor[0] if marked and cursor is not None else upper]
        line: Line = [(padded(label, places.margin), "title" if marked else "axis")]
        for at, wide in zip(places.columns, places.widths, strict=True):
            inks = [_pixel(heat, row, at, theme, cursor) for row in pair]
            line.append(("▀" * wide, f"pixel.{inks[0][1:]}.{(inks[1] if len(inks) > 1 else theme.ground)[1:]}"))
        lines.append(line)
    return [*lines, *legend(heat, width, theme, digits=False, hidden=len(heat.columns) - len(places.columns))]


def cell_places(heat: HeatMap, width: int, *, widened: bool = False, blocks: bool = False) -> CellPlaces:
    """Where the cells of a map of numbers stand in lines of that width; `blocks`: of half blocks."""
    labels = row_labels(heat)
    margin, columns = _margin(heat, labels), list(range(len(heat.columns)))
    room = max(1, width - margin)
    if blocks:
        columns = columns[:: -math.ceil(max(1, len(columns)) / room)][::-1]
        return CellPlaces(margin, _widened(1, len(columns), room), columns)
    wide = _widest(heat.cell_texts)
    labelled = max([wide, *(cells(plain(column)) + 1 for column in heat.columns)])
    wide = labelled if len(columns) * labelled <= room else wide  # with room for every label
    digits = len(columns) * wide > room
    if digits:
        wide = 1 if len(columns) > room // 2 else 2
        columns = columns[:: -math.ceil(len(columns) * wide / room)][::-1]  # the last column is always there
    widths = _widened(wide, len(columns), room) if widened else [wide] * len(columns)
    return CellPlaces(margin, widths, columns, digits)


def _widened(least: int, count: int, room: int) -> list[int]:
    """Widths of so many cells that fill the room, as evenly as whole columns of a terminal allow."""
    room = min(room, count * max(least, _WIDEST))
    return [(at + 1) * room // count - at * room // count for at in range(count)]


def row_labels(heat: HeatMap) -> list[str]:
    """The labels of the rows, as they are shown."""
    return [shorten(plain(row), _MOST_LABEL) for row in heat.rows]


def _margin(heat: HeatMap, labels: Sequence[str]) -> int:
    return max(map(cells, (*labels, heat.row_label[: _MOST_LABEL // 2])), default=0) + 1


def _widest(texts: list[list[str]]) -> int:
    return max([1, *(cells(text) for row in texts for text in row)]) + 1


def _rows(
    heat: HeatMap,
    places: CellPlaces,
    labels: Sequence[str],
    texts: list[list[str]],
    theme: Theme,
    cursor: Cell | None,
) -> list[Line]:
    """Some columns of all rows, below their labels."""
    lines = [_column_labels(heat, places)]
    for at_row, (label, row, values) in enumerate(zip(labels, texts, heat.values.tolist(), strict=True)):
        marked = cursor is not None and cursor[0] == at_row
        line: Line = [(padded(label, places.margin), "title" if marked else "axis")]
        for at, wide in zip(places.columns, places.widths, strict=True):
            style = _CURSOR if cursor == (at_row, at) else _style(heat, values[at], theme)
            line.append((_cell(row[at], wide, of_text=heat.texts is not None), style))
        lines.append(line)
    return lines


def _cell(text: str, wide: int, *, of_text: bool) -> str:
    if of_text:
        return padded(shorten(text, wide - 1), wide)
    return f"{text:>{wide - 1}} " if wide > 2 else text.ljust(wide)


def _digit(share: float) -> str:
    return _NONE if math.isnan(share) else _DIGITS[min(9, int(share * 10))]


def _style(heat: HeatMap, value: float, theme: Theme) -> str:
    share = heat.share(value)
    if math.isnan(share):
        return "dim"
    return f"pixel.{heat.ink(share, theme)[1:]}.{heat.colour(share, theme)[1:]}"


def _pixel(heat: HeatMap, row: int, column: int, theme: Theme, cursor: Cell | None) -> str:
    """The colour of a cell that is nothing but its colour."""
    if cursor == (row, column):
        return theme.lines[_CURSOR_COLOUR]
    share = heat.share(float(heat.values[row, column]))
    return theme.ground if math.isnan(share) else heat.colour(share, theme)


def _column_labels(heat: HeatMap, places: CellPlaces) -> Line:
    """Labels above the columns, as many as have room; before them what the rows are."""
    margin, left = places.margin, places.margin
    end = margin + sum(places.widths)
    text, free = padded(shorten(plain(heat.row_label), margin - 1), margin), margin
    for at, wide in zip(places.columns, places.widths, strict=True):
        label = shorten(plain(heat.columns[at]), wide - 1 if heat.texts is not None else max(wide * 3, 8))
        begin, left = left, left + wide
        if heat.texts is None and wide > 2:
            begin += max(0, wide - 1 - cells(label))
        begin = max(margin, min(begin, end - cells(label)))
        if begin >= free:
            text += " " * (begin - cells(text)) + label
            free = begin + cells(label) + 1
    return [(text, "axis")]


def legend(heat: HeatMap, width: int, theme: Theme, *, digits: bool, hidden: int) -> list[Line]:
    """What the colours, or the digits, say; `hidden`: columns that are left out."""
    begin, end = heat.ends
    unit = " in %" if heat.percent else ""
    line: Line = []
    for count in _RAMPS[:1] if digits else _RAMPS:
        line = [(f"{heat.quantity}{unit} ", "dim")]
        for step in range(count):
            value = heat.value_at((step + 0.5) / count if digits else step / (count - 1))
            text = _digit(heat.share(value)) if digits else heat.text(value)
            line.append((f"{text:>{3 if len(text) < 3 else len(text)}} ", _style(heat, value, theme)))
        if sum(cells(text) for text, _ in line) <= width:
            break
    if digits:
        line.append((f" 0 is {heat.text(begin)}, 9 is {heat.text(end)}", "axis"))
    across = f"{heat.column_label} across" if heat.column_label else ""
    if hidden:
        across += f"{', ' if across else ''}{hidden} of {len(heat.columns)} left out"
    used = sum(cells(text) for text, _ in line)
    across = plain(across)
    if used + cells(across) + 2 <= width:
        return [[*line, (f"  {across}" if across else "", "dim")]]
    return [line, [(shorten(across, width), "dim")]]
