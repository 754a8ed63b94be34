"""A `Scatter` as a scene: every run a pale point, each group its mean with the spread around it."""

from __future__ import annotations

import numpy as np

from linnet.board.figure.axes import draw_frame, left_margin, reserve_bottom, reserve_top
from linnet.board.figure.colours import Theme, mixed
from linnet.board.figure.end_labels import EndLabel, draw_labels, label_room
from linnet.board.figure.scales import Scale
from linnet.board.figure.scatter import Scatter, ScatterSeries
from linnet.board.figure.scene import Box, Marker, MarkerShape, Path, Scene
from linnet.board.words import number

MARKERS: tuple[MarkerShape, ...] = ("circle", "square", "triangle", "diamond")
_RADIUS, _SMALL_RADIUS = 4.2, 2.8
_CROWDED = 80  # points of a series from which on they are small
_RUN_RADIUS = 2.6
_CAP = 4.0  # half the width of the ends of a spread


def draw_scatter(scatter: Scatter, width: float, height: float, theme: Theme) -> Scene:
    """The scatter as a picture of that many pixels."""
    count = sum(len(group.values) for group in scatter.groups)
    description = f"{scatter.y_label} against {scatter.x_label}"
    scene = Scene(width, height, theme.ground, scatter.title or description, f"{description}: {scatter.counted(count)}")
    top = reserve_top(scene, scatter.title, (), theme, labelled=True)
    bottom = height - reserve_bottom(scatter.x_label)
    y_scale = scatter.y_scale()
    labelled = len(scatter.series) > 1
    right = width - (label_room({series.label for series in scatter.series}, width) if labelled else 18)
    box = Box(left_margin(y_scale, bottom - top), top, right, bottom)
    draw_frame(scene, box, scatter.x_scale, y_scale, theme, scatter.x_label, scatter.y_label, scatter.ticks())
    ends = [_draw_series(scene, box, series, scatter.x_scale, y_scale, theme) for series in scatter.series]
    for x, run in scatter.diverged:
        at = _pixel(box, scatter.x_scale, y_scale, x, y_scale.high)
        scene.shapes.append(Marker(at[0], box.top + 5, 4.0, theme.dim, "cross", title=f"{run}: no finite value"))
    if labelled:
        draw_labels(scene, box, ends, theme)
    return scene


def _draw_series(
    scene: Scene, box: Box, series: ScatterSeries, x_scale: Scale, y_scale: Scale, theme: Theme
) -> EndLabel:
    colour, marker = theme.lines[series.colour], MARKERS[series.marker % len(MARKERS)]
    pale = mixed(colour, theme.ground, 0.5)
    radius = _SMALL_RADIUS if len(series.groups) > _CROWDED else _RADIUS

    def at(x: float, value: float) -> tuple[float, float]:
        return _pixel(box, x_scale, y_scale, x, float(y_scale.counted(np.array([value]))[0]))

    means = [at(group.x, group.mean) for group in series.groups]
    if series.joined and x_scale.kind != "category":
        scene.shapes.append(Path([np.array(means)], pale, 1.4, clip=box))
    for group, (x, _) in zip(series.groups, means, strict=True):
        if group.spread is None:
            continue
        low, high = group.mean - group.spread, group.mean + group.spread
        upper = at(group.x, high)[1]
        lower = box.bottom if y_scale.log and low <= 0 else at(group.x, low)[1]
        bar = [np.array([[x, upper], [x, lower]])]
        bar += [np.array([[x - _CAP, end], [x + _CAP, end]]) for end in (upper, lower)]
        scene.shapes.append(Path(bar, colour, 1.2, clip=box))
        for run, value in zip(group.runs, group.values, strict=True):
            dot = at(group.x, value)
            title = f"{run}: {number(value)}"
            scene.shapes.append(Marker(*dot, _RUN_RADIUS, pale, marker, opacity=0.7, title=title))
    for group, (x, y) in zip(series.groups, means, strict=True):
        runs = group.runs[0] if len(group.runs) == 1 else f"{len(group.runs)} runs"
        title = f"{runs}: {number(group.mean)}" + (f" ± {number(group.spread)}" if group.spread is not None else "")
        scene.shapes.append(Marker(x, y, radius, colour, marker, edge=theme.ground, title=title))
    x, y = means[-1]
    return EndLabel(x, min(max(y, box.top), box.bottom), series.label, colour, marker=marker)


def _pixel(box: Box, x_scale: Scale, y_scale: Scale, x: float, y: float) -> tuple[float, float]:
    across, up = (float(scale.share(np.array([v]))[0]) for scale, v in ((x_scale, x), (y_scale, y)))
    return box.left + across * box.width, box.bottom - min(max(up, -1), 2) * box.height
