"""A `Scatter` in text: braille lines between means, a letter for each mean, a dot for each run; below, the numbers."""

from __future__ import annotations

import numpy as np

from linnet.board.curve import Curve
from linnet.board.figure.scales import Scale
from linnet.board.figure.scatter import Group, Scatter, ScatterSeries
from linnet.board.figure.text_chart import LETTERS, framed, x_axis, y_texts
from linnet.board.plot import Line, Plot
from linnet.board.words import number, plain, shorten

_MOST_LINES = 12  # of numbers below the plot


def scatter_lines(scatter: Scatter, columns: int, rows: int) -> list[Line]:
    """The scatter in lines of at most so many characters; styles as those of `text_lines`."""
    lines: list[Line] = [[(shorten(plain(scatter.title), columns), "title")]] if scatter.title else []
    lines.append([(shorten(plain(f"{scatter.y_label} against {scatter.x_label}"), columns), "dim")])
    table = _table(scatter, columns, rows)
    y_scale, x_scale = scatter.y_scale(), scatter.x_scale
    tall = max(6, rows - len(lines) - len(table) - 2)
    labels = y_texts(y_scale, tall)
    margin = max(map(len, labels.values()))
    plot = Plot(max(8, columns - margin - 2), tall, (x_scale.low, x_scale.high), (y_scale.low, y_scale.high))
    for series in reversed(scatter.series):
        _draw_series(plot, series, _sign(scatter, series), x_scale, y_scale)
    for x, _ in scatter.diverged:
        plot.write(0, plot.column(x), "×", "dim")
    return [*lines, *framed(plot, labels, margin), *x_axis(plot, x_scale, margin, scatter.ticks()), *table]


def _sign(scatter: Scatter, series: ScatterSeries) -> str:
    at = scatter.series.index(series)
    return "●" if len(scatter.series) == 1 else LETTERS[at % len(LETTERS)]


def _draw_series(plot: Plot, series: ScatterSeries, sign: str, x_scale: Scale, y_scale: Scale) -> None:
    style = f"line{series.colour}"
    x = np.array([group.x for group in series.groups])
    means = y_scale.counted(np.array([group.mean for group in series.groups]))
    if series.joined and x_scale.kind != "category":
        plot.draw(Curve.through(x, means), f"{style}.raw")
    for group in series.groups:
        if group.spread is None:
            continue
        ends = y_scale.counted(np.array([max(group.mean - group.spread, 1e-300), group.mean + group.spread]))
        top, bottom = plot.row(float(ends[1])), plot.row(float(ends[0]))
        for row in range(top, bottom + 1):
            plot.write(row, plot.column(group.x), "│", style)
        for value in y_scale.counted(np.array(group.values)):
            plot.write(plot.row(float(value)), plot.column(group.x), "·", style)
    for at, mean in zip(x, means, strict=True):
        plot.write(plot.row(float(mean)), plot.column(float(at)), sign, style)


def _table(scatter: Scatter, columns: int, rows: int) -> list[Line]:
    """The numbers: a line for each setting, where they are few; else for each series how many there are."""
    several = len(scatter.series) > 1
    lines: list[Line] = []
    for series in scatter.series:
        key = f" {_sign(scatter, series)} " if several else " "
        if several:
            lines.append([(key, f"line{series.colour}"), (shorten(series.label, columns - 4), "")])
        wide = max(len(group.text) for group in series.groups)
        for group in series.groups:
            lines.append([(f"{'   ' if several else ' '}{group.text:>{wide}}  ", "axis"), (_values(group), "")])
    most = min(_MOST_LINES, max(0, rows // 2 - 3))
    if len(lines) <= most:
        return lines
    counts = [(series, sum(len(group.values) for group in series.groups)) for series in scatter.series]
    if not several:
        return []
    return [
        [
            (f" {_sign(scatter, series)} ", f"line{series.colour}"),
            (shorten(f"{series.label}  {scatter.counted(count)}", columns), ""),
        ]
        for series, count in counts[:most]
    ]


def _values(group: Group) -> str:
    if group.spread is None:
        return f"{number(group.mean)}  {group.runs[0]}"
    return f"{number(group.mean)} ± {number(group.spread, 2)}  {len(group.values)} runs"
