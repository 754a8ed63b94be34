"""A `LineChart` as a scene: panels, axes, lines, and beside each line's end what it is."""

from __future__ import annotations

import numpy as np

from linnet.board.figure.axes import draw_frame, left_margin, reserve_bottom, reserve_top
from linnet.board.figure.chart import ChartLine, LineChart, Panel
from linnet.board.figure.colours import DASHES, Theme, mixed
from linnet.board.figure.end_labels import EndLabel, draw_labels, label_room
from linnet.board.figure.scales import Scale
from linnet.board.figure.scene import Area, Box, Marker, Path, Points, Scene
from linnet.board.figure.tracing import Trace, trace

LINE_WIDTH = 1.7
_PANEL_GAP = 30.0
_FAINT = 0.34  # of a colour, in what lies below a line
_EXTENT_EDGE = 0.5  # so that a spike of one pixel is seen


def draw_lines(chart: LineChart, width: float, height: float, theme: Theme) -> Scene:
    """The chart as a picture of that many pixels."""
    scene = Scene(width, height, theme.ground, chart.title or _what(chart), _description(chart))
    labelled = _needs_labels(chart)
    texts = {line.label for panel in chart.panels for line in panel.lines}
    top = reserve_top(scene, chart.title, _dash_legend(chart), theme, not _is_in_legend(chart))
    bottom = height - reserve_bottom(chart.x_label)
    count = len(chart.panels)
    tall = (bottom - top - _PANEL_GAP * (count - 1)) / count
    y_scales = [chart.y_scale(panel) for panel in chart.panels]
    left = max(left_margin(scale, tall) for scale in y_scales)
    right = width - (label_room(texts, width) if labelled else 18)
    for at, (panel, y_scale) in enumerate(zip(chart.panels, y_scales, strict=True)):
        begin = top + at * (tall + _PANEL_GAP)
        box = Box(left, begin, right, begin + tall)
        x_label = chart.x_label if at == count - 1 else None
        draw_frame(scene, box, chart.x_scale, y_scale, theme, x_label, "" if _is_in_legend(chart) else panel.label)
        ends = _draw_panel(scene, box, chart, panel, y_scale, theme)
        if labelled:
            draw_labels(scene, box, ends, theme)
    return scene


def _draw_panel(scene: Scene, box: Box, chart: LineChart, panel: Panel, y_scale: Scale, theme: Theme) -> list[EndLabel]:
    """The lines of a panel; returns where they end, each label once."""
    columns = max(2, round(box.width))
    traces = [
        (line, traced)
        for line in panel.lines
        if (traced := trace(line.curve, chart.x_scale, y_scale, columns, chart.options.alpha)) is not None
    ]
    order = sorted(range(len(traces)), key=lambda at: (-len(traces[at][0].curve), -at))
    dense_first = [traces[at] for at in order]  # a few points would be hidden below
    for line, traced in dense_first:
        _draw_below(scene, box, line, traced, theme)
    for line, traced in dense_first:
        _draw_line(scene, box, line, traced, theme)
    named: dict[str, EndLabel] = {}
    for line, traced in traces:
        if traced.end is not None and line.label not in named:
            x, y = _pixels(box, np.array([traced.end]))[0].tolist()
            dash = () if chart.metric_dashes else DASHES[line.dash]
            y = min(max(y, box.top), box.bottom)
            named[line.label] = EndLabel(x, y, line.label, theme.lines[line.colour], dash)
    return list(named.values())


def _draw_below(scene: Scene, box: Box, line: ChartLine, traced: Trace, theme: Theme) -> None:
    """What lies below a mean or a smoothed line: how far the rows go, or the rows themselves."""
    colour = theme.lines[line.colour]
    faint = mixed(colour, theme.ground, _FAINT)
    if traced.extent:
        outlines = [_pixels(box, piece) for piece in traced.extent]
        scene.shapes.append(Area(outlines, colour, 0.22, clip=box))
        edge = mixed(colour, theme.ground, _EXTENT_EDGE)
        scene.shapes.append(Path([np.vstack([o, o[:1]]) for o in outlines], edge, 0.7, clip=box))
    if traced.rows:
        scene.shapes.append(Path([_pixels(box, piece) for piece in traced.rows], faint, 1.0, clip=box))


def _draw_line(scene: Scene, box: Box, line: ChartLine, traced: Trace, theme: Theme) -> None:
    colour, dash = theme.lines[line.colour], DASHES[line.dash]
    pieces = [_pixels(box, piece) for piece in traced.line]
    strokes = [piece for piece in pieces if len(piece) > 1]
    dots = [piece for piece in pieces if len(piece) == 1]
    title = f"{line.run}: {line.metric}"
    if strokes:
        scene.shapes.append(Path(strokes, colour, LINE_WIDTH, dash, clip=box, title=title))
    if dots:  # rows alone between two that have no value
        scene.shapes.append(Path(dots, colour, LINE_WIDTH * 1.8, clip=box, title=title))
    for x, y in _pixels(box, traced.points):
        if box.top - 1 <= y <= box.bottom + 1:
            scene.shapes.append(Marker(float(x), float(y), 2.6, colour, edge=theme.ground))


def _pixels(box: Box, shares: Points) -> Points:
    """Shares of the axes as pixels; what is far outside is brought near, where it is clipped."""
    x = box.left + np.clip(shares[:, 0], -1, 2) * box.width
    y = box.bottom - np.clip(shares[:, 1], -1, 2) * box.height
    return np.column_stack([x, y])


def _needs_labels(chart: LineChart) -> bool:
    """Not where every panel has one line of the same run: what it shows stands above it."""
    runs = {line.run for panel in chart.panels for line in panel.lines}
    return len(runs) > 1 or any(len({line.label for line in panel.lines}) > 1 for panel in chart.panels)


def _is_in_legend(chart: LineChart) -> bool:
    """Is what the y axis shows said by the legend of dashes already?"""
    return len(chart.panels) == 1 and bool(chart.metric_dashes)


def _dash_legend(chart: LineChart) -> list[tuple[str, tuple[float, ...]]]:
    return [(metric, DASHES[dash]) for metric, dash in chart.metric_dashes]


def _what(chart: LineChart) -> str:
    return ", ".join(dict.fromkeys(panel.label for panel in chart.panels))


def _description(chart: LineChart) -> str:
    """For readers who cannot see it: what is on the axes, and how many lines there are."""
    lines = [line for panel in chart.panels for line in panel.lines]
    runs = len({line.run for line in lines})
    return f"{_what(chart)} by {chart.x_label}: {len(lines)} lines of {runs} {'run' if runs == 1 else 'runs'}"
