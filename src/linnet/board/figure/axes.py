"""What stands around the lines of every chart: title, legend of dashes, grid, ticks and labels of the axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet.board.figure.colours import Theme
from linnet.board.figure.scales import Scale, Tick
from linnet.board.figure.scene import Box, Path, Scene, Text
from linnet.board.figure.typography import shortened, text_width
from linnet.board.words import plain

AXIS_SIZE = 11.0  # of the texts at ticks
_LABEL_SIZE = 12.0
_TITLE_SIZE = 14.5
_EDGE = 16.0
_SWATCH = 26.0
_X_ROOM = 64.0  # pixels for each tick of the x axis
_Y_ROOM = 36.0

LegendEntry = tuple[str, tuple[float, ...]]  # a metric and its dash


def reserve_top(scene: Scene, title: str, legend: Sequence[LegendEntry], theme: Theme, labelled: bool) -> float:
    """Write the title and the legend of dashes; returns where charts begin. `labelled`: below a label of the y axis."""
    y = _EDGE
    if title:
        y += _TITLE_SIZE * 0.8
        text = shortened(plain(title), scene.width - 2 * _EDGE, _TITLE_SIZE, bold=True)
        cut = plain(title) if text != plain(title) else ""
        scene.shapes.append(Text(_EDGE, y, text, _TITLE_SIZE, theme.text, bold=True, title=cut))
        y += 10.0
    if legend:
        y = _write_legend(scene, legend, y, theme)
    return y + (20.0 if labelled else 6.0)


def _write_legend(scene: Scene, legend: Sequence[LegendEntry], y: float, theme: Theme) -> float:
    """Dashes with their metrics, in as many rows as they need."""
    x = _EDGE
    y += 8.0
    for metric, dash in legend:
        text = shortened(plain(metric), scene.width / 2 - _SWATCH - _EDGE, AXIS_SIZE)
        wide = _SWATCH + 6 + text_width(text, AXIS_SIZE) + 18
        if x > _EDGE and x + wide > scene.width - _EDGE:
            x, y = _EDGE, y + 16.0
        swatch = np.array([[x, y], [x + _SWATCH, y]])
        scene.shapes.append(Path([swatch], theme.text, 1.7, dash))
        scene.shapes.append(Text(x + _SWATCH + 6, y + AXIS_SIZE * 0.36, text, AXIS_SIZE, theme.text))
        x += wide
    return y + 10.0


def reserve_bottom(x_label: str) -> float:
    """Pixels below the charts: ticks and what the axis counts."""
    return 46.0 if x_label else 30.0


def y_ticks(scale: Scale, height: float) -> list[Tick]:
    return scale.ticks(max(2, min(8, int(height // _Y_ROOM))))


def left_margin(scale: Scale, height: float) -> float:
    """Pixels that the texts of the y axis need."""
    return _EDGE + 6 + max((text_width(text, AXIS_SIZE) for _, text in y_ticks(scale, height)), default=0.0)


def draw_frame(
    scene: Scene,
    box: Box,
    x_scale: Scale,
    y_scale: Scale,
    theme: Theme,
    x_label: str | None,
    y_label: str,
    x_ticks: Sequence[Tick] = (),
) -> None:
    """Grid, ticks and labels. `x_label`: None where another panel below has them; `x_ticks`: instead of round ones."""
    for position, text in y_ticks(y_scale, box.height):
        y = box.bottom - float(y_scale.share(np.array([position]))[0]) * box.height
        if box.top - 0.5 <= y <= box.bottom + 0.5:
            scene.line(box.left, y, box.right, y, theme.grid)
            scene.shapes.append(Text(box.left - 7, y + AXIS_SIZE * 0.36, text, AXIS_SIZE, theme.dim, "end"))
    scene.line(box.left, box.bottom, box.right, box.bottom, theme.dim)
    if y_label:
        text = shortened(plain(y_label), scene.width - 2 * _EDGE, _LABEL_SIZE)
        scene.shapes.append(Text(_EDGE, box.top - 11, text, _LABEL_SIZE, theme.text))
    _draw_x_axis(scene, box, x_scale, theme, x_label, x_ticks)


def _draw_x_axis(scene: Scene, box: Box, scale: Scale, theme: Theme, label: str | None, chosen: Sequence[Tick]) -> None:
    free = -np.inf  # right of the last text
    shown = chosen or scale.ticks(max(2, int(box.width // _X_ROOM)))
    room = box.width / max(1, len(shown)) - 6 if scale.kind == "category" else box.width
    for position, text in shown:
        x = box.left + float(scale.share(np.array([position]))[0]) * box.width
        if not box.left - 0.5 <= x <= box.right + 0.5:
            continue
        scene.line(x, box.bottom, x, box.bottom + 4, theme.dim)
        if label is None:
            continue
        text = shortened(plain(text), max(24.0, room), AXIS_SIZE)
        half = text_width(text, AXIS_SIZE) / 2
        if x - half < free:
            continue
        scene.shapes.append(Text(x, box.bottom + 17, text, AXIS_SIZE, theme.dim, "middle"))
        free = x + half + 6
    if label:
        scene.shapes.append(
            Text(
                (box.left + box.right) / 2,
                box.bottom + 36,
                shortened(plain(label), box.width, _LABEL_SIZE),
                _LABEL_SIZE,
                theme.text,
                "middle",
            )
        )
