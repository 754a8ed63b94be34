"""A heat map with a cursor in any room: rows scroll, many of them are colours alone, columns are put together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from linnet.board.figure.colours import THEMES
from linnet.board.figure.heat_map import HeatMap
from linnet.board.figure.text_heat_map import Cell, cell_places, half_block_lines, heat_lines
from linnet.board.terminal.spans import Line
from linnet.board.terminal.state import Board

_AROUND = 3  # lines of a map that are not its rows: labels and a legend, which may take two
_LEAST_CELL = 1

CellAt = Callable[[int, int], Cell | None]


def map_lines(
    board: Board, heat: HeatMap, width: int, height: int, cursor: Cell | None = None
) -> tuple[list[Line], CellAt, str]:
    """Lines, which cell of the map is drawn at a place of them, and which rows are shown where not all are."""
    theme, count = THEMES[board.theme], len(heat.rows)
    room = max(1, height - _AROUND)
    blocks = board.color and heat.texts is None and count > room
    shown = min(count, room * 2 if blocks else room)
    first = min(max(0, (cursor[0] if cursor else 0) - shown // 2), count - shown)
    groups = column_groups(len(heat.columns), cell_room(heat, width)) if heat.texts is None else None
    low, high = heat.ends
    part = replace(
        heat,
        values=(heat.values if groups is None else farthest_of_groups(heat.values, groups))[first : first + shown],
        rows=heat.rows[first : first + shown],
        columns=heat.columns if groups is None else [heat.columns[end - 1] for _, end in groups],
        texts=None if heat.texts is None else heat.texts[first : first + shown],
        low=low,
        high=high,
    )
    marked = None if cursor is None else (cursor[0] - first, group_of(cursor[1], groups))
    if blocks:
        lines = half_block_lines(part, width, theme, cursor=marked)
    else:
        lines = heat_lines(part, width, theme, cursor=marked, widened=True)
    places = cell_places(part, width, widened=True, blocks=blocks)
    above = 1 + bool(part.title and not blocks)

    def cell_at(x: int, y: int) -> Cell | None:
        row, column = (y - above) * (2 if blocks else 1), places.column_at(x)
        if column is None or y < above or row >= shown:
            return None
        return first + row, column if groups is None else groups[column][1] - 1

    rows = f"{first + 1} … {first + shown} of {count} rows" if shown < count else ""
    return lines, cell_at, rows


def cell_room(heat: HeatMap, width: int) -> int:
    """How many columns of a map can stand beside each other."""
    return max(1, (width - cell_places(heat, width, blocks=True).margin) // _LEAST_CELL)


def column_groups(count: int, most: int) -> list[tuple[int, int]] | None:
    """Columns that are drawn as one, as first and end; None where each has its own."""
    if count <= most:
        return None
    every = math.ceil(count / most)
    return [(begin, min(begin + every, count)) for begin in range(0, count, every)]


def group_of(column: int, groups: list[tuple[int, int]] | None) -> int:
    """Where a column is drawn."""
    return column if groups is None else next(at for at, (_, end) in enumerate(groups) if column < end)


def farthest_of_groups(values_RC: NDArray[np.float64], groups: list[tuple[int, int]]) -> NDArray[np.float64]:
    """Of columns that are drawn as one, in each row the value farthest from the row's usual one: no spike is lost."""
    shown = np.full((len(values_RC), len(groups)), np.nan)
    for row, values in enumerate(values_RC):
        finite = values[np.isfinite(values)]
        usual = float(np.median(finite)) if len(finite) else 0.0
        for at, (begin, end) in enumerate(groups):
            inside = values[begin:end]
            known = inside[np.isfinite(inside)]
            if len(known):
                shown[row, at] = known[np.argmax(np.abs(known - usual))]
    return shown
