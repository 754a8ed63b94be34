"""A `HeatMap` as a scene: coloured cells with their numbers where they have room, labels, and the scale of colours."""

from __future__ import annotations

import math

import numpy as np

from linnet.board.figure.axes import AXIS_SIZE, reserve_top
from linnet.board.figure.colours import Theme
from linnet.board.figure.heat_map import HeatMap
from linnet.board.figure.scene import Area, Box, Scene, Text
from linnet.board.figure.typography import shortened, text_width
from linnet.board.words import plain

_EDGE = 16.0
_LEGEND = 58.0  # pixels beside the map
_LEAST_NUMBER = (21.0, 13.0)  # pixels of a cell from which on its number is written into it
_CORNERS = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float64)


def draw_heat_map(heat: HeatMap, width: float, height: float, theme: Theme) -> Scene:
    """The map as a picture of that many pixels."""
    texts = heat.cell_texts
    count = int(np.isfinite(heat.values).sum())
    description = f"{heat.quantity} by {heat.row_label or 'row'} and {heat.column_label or 'column'}: {count} numbers"
    scene = Scene(width, height, theme.ground, heat.title or heat.quantity, description)
    top = reserve_top(scene, heat.title, (), theme, labelled=True)
    label_width = max((text_width(plain(row), AXIS_SIZE) for row in heat.rows), default=0.0)
    left = _EDGE + min(label_width, width / 4) + 10 + (18.0 if heat.row_label else 0.0)
    box = Box(left, top, width - _LEGEND - _EDGE - 26, height - (46.0 if heat.column_label else 32.0))
    across, down = box.width / max(1, len(heat.columns)), box.height / max(1, len(heat.rows))
    numbers = across >= _LEAST_NUMBER[0] and down >= _LEAST_NUMBER[1]
    for r, row in enumerate(heat.values.tolist()):
        for c, value in enumerate(row):
            cell = box.left + c * across, box.top + r * down, across, down
            _draw_cell(scene, heat, value, texts[r][c] if numbers else "", cell, theme)
    _write_labels(scene, heat, box, across, down, theme)
    _draw_legend(scene, heat, box, theme)
    return scene


def _draw_cell(
    scene: Scene, heat: HeatMap, value: float, text: str, box: tuple[float, float, float, float], theme: Theme
) -> None:
    x, y, across, down = box
    share = heat.share(value)
    if math.isnan(share):
        return
    # A hair larger than its place, so that no line of the ground shows between two.
    corners = np.array([x, y]) + _CORNERS * np.array([across + 0.3, down + 0.3])
    scene.shapes.append(Area([corners], heat.colour(share, theme), 1.0))
    if text:
        size = min(AXIS_SIZE, down * 0.7)
        if heat.texts is None:
            size = min(size, across / max(2, len(text)) * 1.5)
        shown = shortened(text, across - 4, size)
        middle, cut = (x + across / 2, y + down / 2 + size * 0.36), text if shown != text else ""
        scene.shapes.append(Text(*middle, shown, size, heat.ink(share, theme), "middle", title=cut))


def _write_labels(scene: Scene, heat: HeatMap, box: Box, across: float, down: float, theme: Theme) -> None:
    every = max(1, math.ceil(AXIS_SIZE * 1.15 / down))
    for r, label in enumerate(heat.rows):
        if r % every == 0:
            text = shortened(plain(label), box.left - _EDGE, AXIS_SIZE)
            y = box.top + (r + 0.5) * down + AXIS_SIZE * 0.36
            scene.shapes.append(Text(box.left - 7, y, text, AXIS_SIZE, theme.dim, "end"))
    free = -math.inf
    for c, label in enumerate(heat.columns):
        x, text = box.left + (c + 0.5) * across, plain(label)
        half = text_width(text, AXIS_SIZE) / 2
        if x - half >= free:
            scene.shapes.append(Text(x, box.bottom + 15, text, AXIS_SIZE, theme.dim, "middle"))
            free = x + half + 6
    if heat.column_label:
        middle = (box.left + box.right) / 2
        scene.shapes.append(Text(middle, box.bottom + 34, plain(heat.column_label), 12.0, theme.text, "middle"))
    if heat.row_label:
        middle = (box.top + box.bottom) / 2
        scene.shapes.append(Text(_EDGE + 6, middle, plain(heat.row_label), 12.0, theme.text, "middle", turned=True))


def _draw_legend(scene: Scene, heat: HeatMap, box: Box, theme: Theme) -> None:
    """The scale of colours beside the map, with what stands at its ends."""
    steps = 32
    left, tall = box.right + 22, min(box.height, 200.0)
    low, high = heat.ends
    for step in range(steps):
        share = 1 - (step + 0.5) / steps
        corners = np.array([left, box.top + step * tall / steps]) + _CORNERS * np.array([12.0, tall / steps + 0.3])
        scene.shapes.append(Area([corners], heat.colour(share, theme), 1.0))
    unit = " %" if heat.percent else ""
    for y, value in ((box.top + 4, high), (box.top + tall + 2, low)):
        scene.shapes.append(Text(left + 17, y + 4, heat.text(value) + unit, AXIS_SIZE, theme.dim))
    scene.shapes.append(Text(left, box.top - 11, plain(heat.quantity), AXIS_SIZE, theme.text))
