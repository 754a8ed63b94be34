"""A `HeatMap` in text: each cell its number, on a ground that is the stronger the larger it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from linnet.board.figure.colours import Theme
from linnet.board.figure.heat_map import HeatMap
from linnet.board.plot import Line
from linnet.board.words import cells, padded, plain, shorten

_MOST_LABEL = 18  # characters of a row's label
_MOST_TEXT = 13  # of the text in a cell
_RAMP = 10  # cells of the legend
_DIGITS, _NONE = "0123456789", "·"


def heat_lines(heat: HeatMap, width: int, theme: Theme) -> list[Line]:
    """The map in lines of at most `width` characters.

    Numbers stand in their cells; where they have no room, a digit from 0 to 9 for where each lies on the scale; where
    there is no room for that either, every n-th column is left out. Of texts there are as many columns beside each
    other as have room, and below them the next. A cell's style is `pixel.<text>.<ground>`.
    """
    labels = [shorten(plain(row), _MOST_LABEL) for row in heat.rows]
    margin = max(map(cells, (*labels, heat.row_label[: _MOST_LABEL // 2])), default=0) + 1
    texts, room = heat.cell_texts, max(1, width - margin)
    wide = max([1, *(cells(text) for row in texts for text in row)]) + 1
    columns = list(range(len(heat.columns)))
    lines: list[Line] = [[(shorten(plain(heat.title), width), "title")]] if heat.title else []
    if heat.texts is not None:
        wide = min(wide, _MOST_TEXT + 1, room)
        beside = max(1, room // wide)
        for begin in range(0, len(columns), beside):
            lines += [
                *([[]] if begin else []),
                *_rows(heat, columns[begin : begin + beside], labels, texts, wide, theme),
            ]
        return [*lines, *_legend(heat, width, theme, digits=False, hidden=0)]
    labelled = max([wide, *(cells(plain(column)) + 1 for column in heat.columns)])
    wide = labelled if len(columns) * labelled <= room else wide  # with room for every label
    digits = len(columns) * wide > room
    if digits:
        wide = 1 if len(columns) > room // 2 else 2
        every = math.ceil(len(columns) * wide / room)
        columns = columns[::-every][::-1]  # the last column is always there
        texts = [[_digit(heat.share(value)) for value in row] for row in heat.values.tolist()]
    lines += _rows(heat, columns, labels, texts, wide, theme)
    return [*lines, *_legend(heat, width, theme, digits=digits, hidden=len(heat.columns) - len(columns))]


def _rows(
    heat: HeatMap, columns: Sequence[int], labels: Sequence[str], texts: list[list[str]], wide: int, theme: Theme
) -> list[Line]:
    """Some columns of all rows, below their labels."""
    margin = max(map(cells, (*labels, heat.row_label[: _MOST_LABEL // 2])), default=0) + 1
    lines = [_column_labels(heat, columns, margin, wide)]
    for label, row, values in zip(labels, texts, heat.values.tolist(), strict=True):
        line: Line = [(padded(label, margin), "axis")]
        line += [
            (_cell(row[at], wide, of_text=heat.texts is not None), _style(heat, values[at], theme)) for at in columns
        ]
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


def _column_labels(heat: HeatMap, columns: Sequence[int], margin: int, wide: int) -> Line:
    """Labels above the columns, as many as have room; before them what the rows are."""
    end = margin + len(columns) * wide
    text, free = padded(shorten(plain(heat.row_label), margin - 1), margin), margin
    for place, at in enumerate(columns):
        label = shorten(plain(heat.columns[at]), wide - 1 if heat.texts is not None else max(wide * 3, 8))
        begin = margin + place * wide
        if heat.texts is None and wide > 2:
            begin += max(0, wide - 1 - cells(label))
        begin = max(margin, min(begin, end - cells(label)))
        if begin >= free:
            text += " " * (begin - cells(text)) + label
            free = begin + cells(label) + 1
    return [(text, "axis")]


def _legend(heat: HeatMap, width: int, theme: Theme, *, digits: bool, hidden: int) -> list[Line]:
    """What the colours, or the digits, say."""
    begin, end = heat.ends
    ramp: Line = []
    for step in range(_RAMP):
        value = begin + (end - begin) * ((step + 0.5) / _RAMP if digits else step / (_RAMP - 1))
        text = _digit(heat.share(value)) if digits else heat.text(value)
        ramp.append((f"{text:>{3 if len(text) < 3 else len(text)}} ", _style(heat, value, theme)))
    unit = " in %" if heat.percent else ""
    line: Line = [(f"{heat.quantity}{unit} ", "dim"), *ramp]
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
