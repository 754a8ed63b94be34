"""A `LineChart` as a scene: panels, axes, lines, and beside each line's end what it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linnet.board.figure.axes import draw_frame, left_margin, reserve_bottom, reserve_top
from linnet.board.figure.chart import ChartLine, LineChart, Panel
from linnet.board.figure.colours import DASHES, Theme, mixed
from linnet.board.figure.scales import Scale
from linnet.board.figure.scene import Area, Box, Marker, Path, Points, Scene, Text
from linnet.board.figure.tracing import Trace, trace
from linnet.board.figure.typography import shortened, text_width

LINE_WIDTH = 1.7
_LABEL_SIZE = 11.5
_LABEL_LINE = 15.0  # from one label to the next
_SWATCH = 18.0  # the piece of line before a label
_GAP = 8.0
_EDGE = 14.0
_WIDEST_LABELS = 0.32  # of the picture
_PANEL_GAP = 30.0
_FAINT = 0.34  # of a colour, in what lies below a line
_EXTENT_EDGE = 0.5  # so that a spike of one pixel is seen


@dataclass(frozen=True)
class _End:
    """Where a line ends, and what is written there."""

    y: float
    x: float
    line: ChartLine


def draw_lines(chart: LineChart, width: float, height: float, theme: Theme) -> Scene:
    """The chart as a picture of that many pixels."""
    scene = Scene(width, height, theme.ground, chart.title or _what(chart), _description(chart))
    labels = _label_width(chart, width)
    top = reserve_top(scene, chart.title, _dash_legend(chart), theme, not _is_in_legend(chart))
    bottom = height - reserve_bottom(chart.x_label)
    count = len(chart.panels)
    tall = (bottom - top - _PANEL_GAP * (count - 1)) / count
    y_scales = [chart.y_scale(panel) for panel in chart.panels]
    left = max(left_margin(scale, tall) for scale in y_scales)
    right = width - (labels + _SWATCH + _GAP + _EDGE if labels else 18)
    for at, (panel, y_scale) in enumerate(zip(chart.panels, y_scales, strict=True)):
        begin = top + at * (tall + _PANEL_GAP)
        box = Box(left, begin, right, begin + tall)
        x_label = chart.x_label if at == count - 1 else None
        draw_frame(scene, box, chart.x_scale, y_scale, theme, x_label, "" if _is_in_legend(chart) else panel.label)
        _draw_panel(scene, box, chart, panel, y_scale, labels, theme)
    return scene


def _draw_panel(
    scene: Scene, box: Box, chart: LineChart, panel: Panel, y_scale: Scale, labels: float, theme: Theme
) -> None:
    columns = max(2, round(box.width))
    traces = [
        (line, traced)
        for line in panel.lines
        if (traced := trace(line.curve, chart.x_scale, y_scale, columns, chart.look.alpha)) is not None
    ]
    order = sorted(range(len(traces)), key=lambda at: (-len(traces[at][0].curve), -at))
    dense_first = [traces[at] for at in order]  # a few points would be hidden below
    for line, traced in dense_first:
        _draw_below(scene, box, line, traced, theme)
    for line, traced in dense_first:
        _draw_line(scene, box, line, traced, theme)
    if labels:
        named: dict[str, _End] = {}
        for line, traced in traces:
            if traced.end is not None:
                x, y = _pixels(box, np.array([traced.end]))[0]
                named.setdefault(line.label, _End(min(max(y, box.top), box.bottom), x, line))
        _draw_labels(scene, box, list(named.values()), labels, theme)


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
    whole = [piece for piece in pieces if len(piece) > 1]
    dots = [piece for piece in pieces if len(piece) == 1]
    title = line.run if line.run == line.label else f"{line.run}: {line.label}"
    if whole:
        scene.shapes.append(Path(whole, colour, LINE_WIDTH, dash, clip=box, title=title))
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


def _draw_labels(scene: Scene, box: Box, ends: list[_End], width: float, theme: Theme) -> None:
    """Labels beside the ends of the lines, moved apart where they would lie over each other."""
    ends = sorted(ends, key=lambda end: (end.y, end.line.label))
    room = max(1, int((box.height + _LABEL_LINE) // _LABEL_LINE))
    hidden = len(ends) - room if len(ends) > room else 0
    shown = ends[: room - 1] if hidden else ends
    places = apart([end.y for end in shown], _LABEL_LINE, box.top, box.bottom)
    text_at = box.right + _GAP + _SWATCH + 5
    for end, y in zip(shown, places, strict=True):
        colour = theme.lines[end.line.colour]
        faint = mixed(colour, theme.ground, _FAINT)
        begin = box.right + _GAP
        if end.x < box.right - 3 or abs(end.y - y) > 3:
            lead = np.array([[end.x, end.y], [max(end.x, box.right - 2), end.y], [begin, y]])
            scene.shapes.append(Path([lead], faint, 0.8))
        dash = () if _tells_metrics(end) else DASHES[end.line.dash]
        scene.shapes.append(Path([np.array([[begin, y], [begin + _SWATCH, y]])], colour, LINE_WIDTH + 0.5, dash))
        text = shortened(end.line.label, width, _LABEL_SIZE)
        title = end.line.label if text != end.line.label else ""
        scene.shapes.append(Text(text_at, y + _LABEL_SIZE * 0.36, text, _LABEL_SIZE, theme.text, title=title))
    if hidden:
        more = f"and {len(ends) - len(shown)} more"
        y = min(box.bottom, (places[-1] if places else box.top) + _LABEL_LINE)
        scene.shapes.append(Text(text_at, y + _LABEL_SIZE * 0.36, more, _LABEL_SIZE, theme.dim))


def _tells_metrics(end: _End) -> bool:
    return end.line.label == end.line.run and end.line.metric != end.line.label and end.line.dash == 0


def apart(wanted: list[float], least: float, top: float, bottom: float) -> list[float]:
    """Rising positions moved as little as makes them `least` apart, between `top` and `bottom`.

    Positions less the room that those before them need must not fall: pooled where they do, each pool at its mean.
    """
    pools: list[list[float]] = []  # sum, count
    for at, y in enumerate(wanted):
        pools.append([y - at * least, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    settled = [total / count for total, count in pools for _ in range(int(count))]
    lowest = bottom - (len(wanted) - 1) * least
    return [max(top, min(y, lowest)) + at * least for at, y in enumerate(settled)]


def _label_width(chart: LineChart, width: float) -> float:
    """The width of the labels beside the lines; 0 where a single line needs none."""
    labels = {line.label for panel in chart.panels for line in panel.lines}
    runs = {line.run for panel in chart.panels for line in panel.lines}
    if len(runs) == 1 and all(len({line.label for line in panel.lines}) == 1 for panel in chart.panels):
        return 0.0  # what each panel shows stands above it
    return min(width * _WIDEST_LABELS, max(text_width(label, _LABEL_SIZE) for label in labels))


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
