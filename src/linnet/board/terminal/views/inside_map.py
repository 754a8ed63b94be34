"""The inside tab: a figure as a map of rows and steps, with the curve of a row; histograms, and how they changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Curve
from linnet.board.figure.heat_map import HeatMap
from linnet.board.plot import BLOCKS, chart
from linnet.board.terminal.artifact_lines import histogram_lines
from linnet.board.terminal.inside_page import BESIDES, WHOLE_LAYER
from linnet.board.terminal.spans import Line, fill, justify, pad, safe
from linnet.board.terminal.state import Board
from linnet.board.terminal.views.heat import map_lines
from linnet.board.words import number
from linnet.runs import figure_tables
from linnet.runs.figure_tables import FigureTable, Histograms, Row
from linnet.runs.inspection import Inspection
from linnet.runs.media.histograms import Histogram

_LEAST_CURVE, _MOST_CURVE = 6, 12  # lines of the curve below a map
_BESIDE = 100  # columns from which the histograms over the steps stand beside that of one
_MOST_BARS = 9  # lines


def draw_map(board: Board, inspection: Inspection, width: int, height: int) -> list[Line]:
    page, tables = board.inside, tables_of(inspection)
    page.figures = [(group, figure) for group, table in tables.items() for figure in table.figures]
    page.names = [name for table in tables.values() for name in table.names]
    chosen = page.chosen_figure()
    if chosen is None:
        return []
    group, figure = chosen
    table = tables[group]
    page.regions = regions_of(table, figure, heads=page.heads)
    if page.heads and not page.regions:  # nothing is told of heads here
        page.heads = False
        page.regions = regions_of(table, figure, heads=False)
    region = page.chosen_region() or ""
    shown = figure_map(table, figure, region, page.of_layer, heads=page.heads)
    page.rows, page.steps = len(shown.rows), shown.steps.tolist()
    page.layers = [row.layer for row in shown.rows]
    row, step = page.row, page.nearest_step(page.steps)
    if step is None or not page.rows:
        return []
    at = page.steps.index(step)
    value = float(shown.values[row, at])
    of_layer = "" if page.of_layer is None or not (page.heads or region == WHOLE_LAYER) else f" {page.of_layer}"
    kind = "head" if page.heads else "layer" if None not in page.layers and region != WHOLE_LAYER else "region"
    heat = HeatMap(
        shown.values,
        shown.labels if region != WHOLE_LAYER else [entry.name for entry in shown.rows],
        [number(entry) for entry in page.steps],
        figure,
        row_label=kind,
        column_label="steps",
        percent=False,
        log=page.log,
    )
    curve = min(_MOST_CURVE, height - 1 - page.rows - 3)
    tall = height - 1 - (curve if curve >= _LEAST_CURVE else 0)
    lines, cell_at, rows = map_lines(board, heat, width - 1, tall, (row, at))
    page.cell_at = lambda x, y: cell_at(x - 1, y - 1)
    cursor_facts: Line = [
        (f"{_place(shown.rows[row], region)}  step {number(step)}  ", "dim"),
        (f"{number(value)} ", "title"),
    ]
    title: Line = [(f" {group} ", "dim"), (figure, "title"), (f" of {safe(region)}{of_layer}", "")]
    title += [("  heads", "dim")] if page.heads else []
    title += [("  log scale", "dim")] if page.log else []
    title += [(f"  {rows}", "dim")] if rows else []
    body = fill([[(" ", ""), *line] for line in lines], width, min(tall, len(lines)))
    if curve >= _LEAST_CURVE:
        body += curve_lines(shown.steps, shown.values[row], (step, value), width - 2, curve)
    return [justify(title, cursor_facts, width), *body]


def _place(row: Row, region: str) -> str:
    """Where the cursor is, as far as the rest of the line does not say it."""
    if region in (BESIDES, WHOLE_LAYER) or row.layer is None:
        return safe(row.name)
    return f"layer {row.layer}{'' if row.head is None else f' head {row.head}'}"


def tables_of(inspection: Inspection) -> Mapping[str, FigureTable]:
    """The groups of figures that were told, by name."""
    tables = {"taps": inspection.taps, "grads": inspection.grads, "drift": inspection.drift}
    return {name: table for name, table in tables.items() if len(table)}


def regions_of(table: FigureTable, figure: str, *, heads: bool) -> list[str]:
    """Regions or tensors of layers that tell a figure; then what is no part of a layer, and all of one layer."""
    rows = table.rows_with(figure, heads=heads)
    names = list(dict.fromkeys(row.name for row in rows if row.layer is not None))
    beside = [BESIDES] if any(row.layer is None for row in rows) else []
    return [*names, *beside, *([WHOLE_LAYER] if len(names) > 1 and not heads else [])]


def figure_map(
    table: FigureTable, figure: str, region: str, of_layer: int | None, *, heads: bool
) -> figure_tables.HeatMap:
    """A figure of a region in all layers, of its heads in one, of all regions of a layer, or of what is in none."""
    if region == BESIDES:
        shown = table.heat_map(figure, heads=heads)
        in_no_layer = [at for at, row in enumerate(shown.rows) if row.layer is None]
        return figure_tables.HeatMap(
            figure, [shown.rows[at] for at in in_no_layer], shown.steps, shown.values[in_no_layer]
        )
    if region == WHOLE_LAYER:
        return table.heat_map(figure, layer=of_layer or 0)
    return table.heat_map(figure, region, layer=of_layer or 0, heads=True) if heads else table.heat_map(figure, region)


def curve_lines(
    steps: NDArray[np.int64], values: NDArray[np.float64], mark: tuple[float, float], width: int, height: int
) -> list[Line]:
    """The curve of one row over the steps, with the cursor's point."""
    curve = Curve.through(steps.astype(np.float64), values)
    drawn = chart(curve, width, height, mark=mark if np.isfinite(mark[1]) else None)
    return fill([[(f" {line}", "graph")] for line in drawn], width + 2, height)


# -- histograms -----------------------------------------------------------------------------------------------------


def draw_spread(board: Board, inspection: Inspection, width: int, height: int) -> list[Line]:
    page, taps = board.inside, inspection.taps
    by_region: dict[str, list[Row]] = {}
    for row in taps.histogram_rows:
        by_region.setdefault(row.name if row.layer is not None else BESIDES, []).append(row)
    page.regions = list(by_region)
    region = page.chosen_region()
    if region is None:
        return []
    rows = by_region[region]
    page.rows, page.layers = len(rows), [row.layer for row in rows]
    row = rows[page.row]
    histograms = taps.histograms(row.name, row.layer)
    page.steps = histograms.steps.tolist()
    step = page.nearest_step(page.steps)
    if step is None:
        return []
    at = page.steps.index(step)
    title: Line = [(f" {safe(row)}", "title"), (f"  step {number(step)}", "")]
    facts: Line = [(f"{_facts(inspection, row, step)} ", "dim")]
    head = justify(title, facts, width)
    if width >= _BESIDE:
        half = width // 2 - 1
        bars = fill(_bars(histograms, at, half - 2, height - 1), half, height - 1)
        ridge = fill(ridge_lines(histograms, at, half, height - 1), half, height - 1)
        return [head, *([(" ", ""), *left, (" ", ""), *right] for left, right in zip(bars, ridge, strict=True))]
    tall = min(_MOST_BARS, height // 2)
    bars = [[(" ", ""), *line] for line in _bars(histograms, at, width - 2, tall)]
    page_lines = ridge_lines(histograms, at, width - 2, height - 1 - len(bars))
    return [head, *bars, *([(" ", ""), *line] for line in page_lines)]


def _facts(inspection: Inspection, row: Row, step: int) -> str:
    """Mean, deviation and ends of a row at a step."""
    words = []
    for figure in ("mean", "std", "min", "max"):
        value = inspection.taps.value(figure, row, step)
        words += [f"{figure} {number(value, 3)}"] if value is not None else []
    return "  ".join(words)


def _bars(histograms: Histograms, at: int, width: int, height: int) -> list[Line]:
    edges, counts = histograms.edges[at].tolist(), histograms.counts[at].tolist()
    return histogram_lines(Histogram([float(count) for count in counts], edges), width, height)


def ridge_lines(histograms: Histograms, at: int, width: int, height: int) -> list[Line]:
    """A line a step, all on one axis, each as high as its own greatest bar: how the spread of the numbers changed."""
    low, high = float(np.nanmin(histograms.edges)), float(np.nanmax(histograms.edges))
    if not high > low or height < 3:
        return []
    labels = [number(int(step)) for step in histograms.steps]
    margin = max(map(len, labels)) + 1
    columns = max(8, width - margin)
    picked = _picked(len(labels), at, height - 2)
    lines: list[Line] = []
    for one in picked:
        levels = binned(histograms.edges[one], histograms.counts[one], np.linspace(low, high, columns + 1))
        text = "".join((" " + BLOCKS)[level] for level in levels)
        on = one == at
        lines.append([(pad(labels[one], margin - 1, right=True), "title" if on else "axis"), (" ", "")])
        lines[-1].append((text, "focus" if on else "graph"))
    ends = number(low), number(high)
    axis = f"{'':>{margin}}{ends[0]}{ends[1]:>{max(1, columns - len(ends[0]))}}"
    return [[("step, and the spread of the numbers at it", "dim")], *lines, [(axis, "axis")]]


def binned(edges: NDArray[np.float64], counts: NDArray[np.int64], columns: NDArray[np.float64]) -> list[int]:
    """Heights from 0 to 8 of a histogram on other bins; what there is of has a height of 1 at least."""
    sums = np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])
    bars = np.diff(np.interp(columns, edges, sums))
    most = float(bars.max()) or 1.0
    levels: list[int] = np.where(bars > 0, np.maximum(1, np.rint(bars / most * 8)), 0).astype(int).tolist()
    return levels


def _picked(count: int, at: int, most: int) -> list[int]:
    """Which of so many there is room for: evenly spaced, the first, the last, and the one looked at."""
    if count <= most:
        return list(range(count))
    picked = sorted({*np.linspace(0, count - 1, max(2, most)).round().astype(int).tolist()})
    nearest = min(picked, key=lambda step: abs(step - at))
    return [at if step == nearest else step for step in picked]
