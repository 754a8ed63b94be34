"""A heat map with a cursor in any room: rows scroll, many of them are colours alone, columns are put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from linnet.board.figure.colours import THEMES
from linnet.board.figure.heat_map import HeatMap
from linnet.board.figure.text_heat_map import Cell, cell_places, half_block_lines, heat_lines
from linnet.board.map_columns import MapColumns, map_columns
from linnet.board.terminal.spans import Line
from linnet.board.terminal.state import Board
from linnet.runs import figure_tables

_AROUND = 3  # lines of a map that are not its rows: labels and a legend, which may take two

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
    reduced = None if heat.texts is not None else _reduced(heat, width)
    low, high = heat.ends
    part = replace(
        heat,
        values=(heat.values if reduced is None else reduced.values)[first : first + shown],
        rows=heat.rows[first : first + shown],
        columns=heat.columns if reduced is None else [heat.columns[end] for end in reduced.ends],
        texts=None if heat.texts is None else heat.texts[first : first + shown],
        low=low,
        high=high,
    )
    marked = cursor
    if cursor is not None:
        column = cursor[1] if reduced is None else int(np.searchsorted(reduced.ends, cursor[1]))
        marked = cursor[0] - first, column
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
        return first + row, column if reduced is None else int(reduced.ends[column])

    rows = f"{first + 1} … {first + shown} of {count} rows" if shown < count else ""
    return lines, cell_at, rows


def _reduced(heat: HeatMap, width: int) -> MapColumns | None:
    """As many columns as have room, no spike lost; None where all have."""
    count, most = len(heat.columns), max(1, width - cell_places(heat, width, blocks=True).margin)
    if count <= most:
        return None
    places = np.arange(count, dtype=np.int64)
    return map_columns(figure_tables.HeatMap(heat.quantity, [], places, heat.values), most)
