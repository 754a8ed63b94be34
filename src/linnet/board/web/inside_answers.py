"""The page of what a training told of its inside: heat maps, histograms, times and likeness, each of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linnet.board.gram_similarity import cka_of_grams
from linnet.board.map_columns import map_columns
from linnet.board.web.answer_json import Figure, figure
from linnet.board.web.answers import RequestError
from linnet.board.web.board import WebBoard
from linnet.board.web.inside_answer_types import (
    GramInfo,
    InsideHistogram,
    InsideHistograms,
    InsideInfo,
    InsideMap,
    InsideRegions,
    InsideSimilarity,
    InsideTokens,
    LoggedFigures,
    LooksInfo,
    MapRow,
    RegionInfo,
)
from linnet.board.web.parameters import Parameters
from linnet.errors import LinnetError
from linnet.runs.figure_tables import FigureTable, HeatMap, Histograms, Row
from linnet.runs.inspection import Inspection
from linnet.runs.region_tree import RegionNode

TABLES = ("taps", "grads", "drift")
MOST_COLUMNS, MOST_RIDGES = 1_000, 400
_COLUMNS, _RIDGES = 240, 60  # where nothing is asked for
_MOST_ROWS, _MOST_CELLS = 800, 120_000
_MOST_ALIKE = 64  # steps that are compared with each other
_MOST_NAMES, _MOST_STEPS = 2_000, 10_000
_FARTHEST = (1 << 53) - 1
_DEEPEST = 32  # regions within each other


@contextmanager
def _inspection(board: WebBoard, run_id: str) -> Iterator[Inspection]:
    with board.open(run_id) as run:
        inside = run.inside
    with inside.reading() as inspection:
        try:
            yield inspection
        except RequestError:
            raise
        except LinnetError as error:  # a name, a figure or a step that was not told
            raise RequestError(404, str(error)) from None


def contents(board: WebBoard, run_id: str) -> InsideInfo:
    """Which figures there are, of what, and at how many steps."""
    with _inspection(board, run_id) as inspection:
        histograms = {row.name for row in inspection.taps.histogram_rows}
        tables = {"taps": inspection.taps, "grads": inspection.grads, "drift": inspection.drift}
        grams: dict[str, list[int]] = {}
        for row in inspection.gram_rows:
            grams.setdefault(row.name, []).extend(() if row.layer is None else (row.layer,))
        return InsideInfo(
            looks={name: LooksInfo(len(steps), min(steps), max(steps)) for name, steps in inspection.looks.items()},
            tables={name: _logged_figures(table, histograms) for name, table in tables.items() if len(table)},
            grams=[GramInfo(name, layers) for name, layers in grams.items()],
        )


def _logged_figures(table: FigureTable, histograms: set[str]) -> list[LoggedFigures]:
    return [
        LoggedFigures(
            name=part.name,
            layers=part.layers,
            figures=part.figures,
            head_figures=part.head_figures,
            histogram=table.kind == "tap" and part.name in histograms,
        )
        for part in table.contents[:_MOST_NAMES]
    ]


def heat_map(board: WebBoard, run_id: str, parameters: Parameters) -> InsideMap:
    """A figure by layer (or tensor, or head) and step, in so many columns that no spike is lost."""
    table = parameters.choice("table", TABLES)
    name, chosen = parameters.text("name") or None, parameters.text("figure")
    layer = parameters.integer("layer", -1, 0, _FARTHEST)
    columns = parameters.integer("columns", _COLUMNS, 2, MOST_COLUMNS)
    heads = parameters.flag("heads")
    with _inspection(board, run_id) as inspection:
        of_table: FigureTable = {"taps": inspection.taps, "grads": inspection.grads, "drift": inspection.drift}[table]
        heat = of_table.heat_map(chosen, name, layer=None if layer < 0 else layer, heads=heads)
    rows = heat.rows[:_MOST_ROWS]
    shown = HeatMap(heat.figure, rows, heat.steps, heat.values[:_MOST_ROWS])
    reduced = map_columns(shown, min(columns, max(2, _MOST_CELLS // max(1, len(rows)))))
    several = len(reduced.begins) < len(heat.steps)
    return InsideMap(
        figure=heat.figure,
        rows=[MapRow(*row, label) for row, label in zip(rows, shown.labels, strict=True)],
        begins=reduced.begins.tolist(),
        ends=reduced.ends.tolist(),
        values=_figures(reduced.values),
        low=_figures(reduced.low) if several else None,
        high=_figures(reduced.high) if several else None,
        looks=len(heat.steps),
        left_out=len(heat.rows) - len(rows),
    )


def histograms(board: WebBoard, run_id: str, parameters: Parameters) -> InsideHistograms:
    """How the numbers of a region were spread: over the steps, or at one."""
    name = parameters.text("name")
    layer = parameters.integer("layer", -1, 0, _FARTHEST)
    step = parameters.integer("step", -1, 0, _FARTHEST)
    most = parameters.integer("rows", _RIDGES, 1, MOST_RIDGES)
    with _inspection(board, run_id) as inspection:
        spread = inspection.taps.histograms(name, None if layer < 0 else layer)
    if step >= 0:
        chosen = np.flatnonzero(spread.steps == step)
        if not len(chosen):
            raise RequestError(404, f"no histogram of {spread.row} was told at step {step}")
    else:
        chosen = _widest(spread, most)
    label = str(spread.row)
    return InsideHistograms(
        row=MapRow(*spread.row, label),
        histograms=[_histogram(spread, int(at)) for at in chosen],
        looks=len(spread.steps),
    )


def _widest(spread: Histograms, most: int) -> NDArray[np.int64]:
    """As many looks as are asked for: of each stretch the one whose numbers reach farthest, and the last of all."""
    count = len(spread.steps)
    if count <= most:
        return np.arange(count)
    reach = np.nan_to_num(spread.edges[:, -1] - spread.edges[:, 0], nan=-1.0)
    bounds = np.linspace(0, count - 1, most).astype(int) if most > 1 else np.array([0])
    chosen = [begin + int(reach[begin:end].argmax()) for begin, end in pairwise(bounds)]
    return np.array([*chosen, count - 1], np.int64)


def _histogram(spread: Histograms, at: int) -> InsideHistogram:
    low, high = float(spread.edges[at, 0]), float(spread.edges[at, -1])
    return InsideHistogram(int(spread.steps[at]), figure(low), figure(high), spread.counts[at].tolist())


def regions(board: WebBoard, run_id: str, parameters: Parameters) -> InsideRegions:
    """Where the time of a step went; of the newest that is known."""
    step = parameters.integer("step", -1, 0, _FARTHEST)
    with _inspection(board, run_id) as inspection:
        steps = inspection.region_steps
        tree = inspection.regions(None if step < 0 else step)
        return InsideRegions(steps[-_MOST_STEPS:], steps[-1] if step < 0 else step, _region(tree))


def _region(node: RegionNode, depth: int = 0) -> RegionInfo:
    children = [_region(child, depth + 1) for child in node.children] if depth < _DEEPEST else []
    return RegionInfo(node.name, node.path, _number(node.begin_us), _number(node.us), _number(node.own_us), children)


def tokens(board: WebBoard, run_id: str, parameters: Parameters) -> InsideTokens:
    """How far tokens of the embedding have drifted; at the newest step that is known."""
    step = parameters.integer("step", -1, 0, _FARTHEST)
    with _inspection(board, run_id) as inspection:
        drift, steps = inspection.tokens(None if step < 0 else step), inspection.token_steps
    return InsideTokens(
        steps=steps[-_MOST_STEPS:],
        step=drift.step,
        token_id=drift.token_id.tolist(),
        freq=drift.freq.tolist(),
        cos_to_init=[figure(value) for value in drift.cos_to_init.tolist()],
        l2_to_init=[figure(value) for value in drift.l2_to_init.tolist()],
    )


def similarity(board: WebBoard, run_id: str, parameters: Parameters) -> InsideSimilarity:
    """CKA by the Gram matrices of a region: of the layers at a step, or of one layer between the steps."""
    name = parameters.text("name")
    layer = parameters.integer("layer", -1, 0, _FARTHEST)
    step = parameters.integer("step", -1, 0, _FARTHEST)
    with _inspection(board, run_id) as inspection:
        if layer >= 0:
            grams = inspection.grams(name, layer)
            at = _spaced(len(grams.steps), _MOST_ALIKE)
            steps = grams.steps[at].tolist()
            labels = [f"{one:,}" for one in steps]
            return _similarity(name, layer, None, steps, labels, grams.values[at])
        rows = [row for row in inspection.gram_rows if row.name == name] or [Row(name)]
        by_layer = [inspection.grams(row.name, row.layer) for row in rows]
    steps = sorted(set.intersection(*(set(grams.steps.tolist()) for grams in by_layer)))
    if not steps or (step >= 0 and step not in steps):
        raise RequestError(404, f"no Gram matrices of {name} were told at step {step}")
    step = steps[-1] if step < 0 else step
    if len({grams.values.shape[1:] for grams in by_layer}) > 1:
        raise RequestError(404, f"the Gram matrices of {name} are of other samples in each layer")
    values = np.stack([grams.values[int(np.searchsorted(grams.steps, step))] for grams in by_layer])
    labels = [str(name if grams.row.layer is None else grams.row.layer) for grams in by_layer]
    return _similarity(name, None, step, steps, labels, values)


def _similarity(
    name: str,
    layer: int | None,
    step: int | None,
    steps: list[int],
    labels: list[str],
    grams_KTT: NDArray[np.float64],
) -> InsideSimilarity:
    values = _figures(cka_of_grams(grams_KTT))
    return InsideSimilarity(name, layer, step, steps[-_MOST_STEPS:], labels, grams_KTT.shape[1], values)


def _spaced(count: int, most: int) -> NDArray[np.int64]:
    """So many of a row of looks, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _figures(values: NDArray[np.float64]) -> list[list[Figure]]:
    rows: Sequence[Sequence[Any]] = values.tolist()
    return [[figure(value) for value in row] for row in rows]


def _number(value: float) -> float:
    return value if np.isfinite(value) else 0.0
