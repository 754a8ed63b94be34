"""Charts in text, for a terminal or a pipe: the same charts as the pictures, in braille dots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from linnet.board.curve import Curve, logarithms
from linnet.board.figure.chart import ChartLine, LineChart, Panel
from linnet.board.figure.scales import Scale, Tick
from linnet.board.overlay import draw_curves
from linnet.board.plot import BEST_MARK, Line, Plot
from linnet.board.words import number, plain, shorten

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TEXT_LINES = 3  # of a panel that are not its plot: label, x axis, ticks
_LEAST_ROWS = 4


def text_lines(chart: LineChart, columns: int, rows: int) -> list[Line]:
    """The chart in lines of at most so many characters: panels one below the other, then what each line is.

    Styles are `line0` … `line7`, the same with `.raw`, `title`, `axis` and `dim`.
    """
    lines: list[Line] = [[(shorten(plain(chart.title), columns), "title")]] if chart.title else []
    legend = _legend(chart, columns)
    tall = max(_LEAST_ROWS, (rows - len(lines) - len(legend)) // len(chart.panels) - _TEXT_LINES)
    letters = iter(_letters(chart))
    for panel in chart.panels:
        lines += _panel(chart, panel, [next(letters) for _ in panel.lines], columns, tall)
    return lines + legend


def _letters(chart: LineChart) -> list[str]:
    """A letter for each line of all panels; none for a single one, nor where there are more than the alphabet has."""
    count = sum(len(panel.lines) for panel in chart.panels)
    return list(LETTERS[:count]) + [""] * (count - len(LETTERS)) if count > 1 else [""]


def _panel(chart: LineChart, panel: Panel, letters: list[str], columns: int, rows: int) -> list[Line]:
    x_scale, y_scale = chart.x_scale, chart.y_scale(panel)
    labels = y_texts(y_scale, rows)
    margin = max(len(text) for text in labels.values())
    plot = Plot(max(8, columns - margin - 2), rows, (x_scale.low, x_scale.high), (y_scale.low, y_scale.high))
    strokes = [
        (_on_scales(line.curve, x_scale, y_scale), f"line{line.colour}", letter)
        for line, letter in zip(panel.lines, letters, strict=True)
    ]
    strokes.sort(key=lambda stroke: len(stroke[0]))  # the first is on top, and a few points would be hidden below
    draw_curves(plot, strokes, chart.options.alpha)
    heading: Line = [(shorten(f"{plain(panel.label)} by {chart.x_label}", columns), "dim")]
    return [heading, *framed(plot, labels, margin), *x_axis(plot, x_scale, margin)]


def _on_scales(curve: Curve, x_scale: Scale, y_scale: Scale) -> Curve:
    return replace(logarithms(curve) if y_scale.log else curve, x=x_scale.counted(curve.x))


def y_texts(scale: Scale, rows: int) -> dict[int, str]:
    """What stands at the y axis, by row."""
    texts: dict[int, str] = {}
    for position, text in scale.ticks(max(2, rows // 3)):
        share = float(scale.share(np.array([position]))[0])
        if 0 <= share <= 1:
            texts.setdefault(rows - 1 - round(share * (rows - 1)), text)
    return texts or {0: number(scale.high), rows - 1: number(scale.low)}


def framed(plot: Plot, labels: dict[int, str], margin: int) -> list[Line]:
    """The rows of a plot behind its y axis."""
    lines: list[Line] = []
    for row, spans in enumerate(plot.lines()):
        edge = f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}"
        lines.append([(edge, "axis"), *spans])
    return lines


def x_axis(plot: Plot, scale: Scale, margin: int, chosen: Sequence[Tick] = ()) -> list[Line]:
    """The x axis, and below it what stands at its ticks."""
    rule = ["─"] * plot.width
    text = [" "] * (margin + 2 + plot.width)
    for position, tick in chosen or scale.ticks(max(2, plot.width // 12)):
        if not scale.low <= position <= scale.high:
            continue
        column = plot.column(position)
        rule[column] = "┬"
        tick = shorten(plain(tick), 24)
        at = min(max(0, margin + 2 + column - len(tick) // 2), len(text) - len(tick))
        if at >= 0 and all(c == " " for c in text[max(0, at - 1) : at + len(tick) + 1]):
            text[at : at + len(tick)] = tick
    return [[(f"{'':>{margin}} └{''.join(rule)}", "axis")], [("".join(text).rstrip(), "axis")]]


def _legend(chart: LineChart, columns: int) -> list[Line]:
    """Each line's letter, run and metric, with its last and its best value."""
    lines = [line for panel in chart.panels for line in panel.lines]
    runs = {line.run for line in lines}
    run_width = min(columns // 3, max(map(len, runs))) if len(runs) > 1 else 0
    names = [_name(line, run_width) for line in lines]
    facts = [_facts(line.curve) for line in lines]
    room = max(12, columns - max(map(len, facts), default=0) - 6)
    wide = min(room, max(map(len, names), default=0))
    legend: list[Line] = []
    for letter, line, name, fact in zip(_letters(chart), lines, names, facts, strict=True):
        key = f"{letter} " if letter else ""
        legend.append([(f" {key}", f"line{line.colour}"), (f"{_middle_cut(name, wide):<{wide}}  ", ""), (fact, "dim")])
    return legend


def _name(line: ChartLine, run_width: int) -> str:
    """The metric, behind the run where there are several."""
    metric = plain(line.metric)
    return f"{_middle_cut(line.run, run_width):<{run_width}}  {metric}" if run_width else metric


def _middle_cut(text: str, width: int) -> str:
    """Cut in the middle: names of runs often differ only at their end."""
    end = (width - 1) // 2
    return text if len(text) <= width else f"{text[: width - 1 - end]}…{text[-end:] if end else ''}"


def _facts(curve: Curve) -> str:
    stats = curve.stats
    last = f"last {number(curve.last_value)}"
    if stats.best is None:
        return last
    return f"{last}  {BEST_MARK} best {number(stats.best[1])} @ {number(stats.best[0])}"
