"""The series of a run as a report holds them: every row of a short one, a grid and the last rows of a long one.

They are made by the functions that answer `api/series`, so before the reduction the numbers are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.board.curve import Floats
from linnet.board.report.column_pool import ColumnPool
from linnet.board.web.answer_json import Figure
from linnet.board.web.answers import Mark
from linnet.board.web.board import WebBoard
from linnet.board.web.detail import axes_of
from linnet.board.web.open_runs import OpenRun
from linnet.board.web.reduction import Grid, reduced
from linnet.board.web.series import (
    Line,
    SeriesQuestion,
    entry_of,
    grid_of,
    inherited_lines,
    lines_of,
    places_of_rows,
)

Integers = NDArray[np.int64]
TAIL = 128  # last rows that a long series has besides its grid
_WALL_TIME = "wall time"  # relative time and when the run was made: the page adds them


class AxisFacts(msgspec.Struct):
    """What stands somewhere on an axis, as in `SeriesEntry`; `span`: from the first row to the last."""

    span: tuple[float, float]
    last: tuple[float, Figure] | None
    best: tuple[float, float] | None
    resumes: list[float]
    marks: list[Mark]


class HeldRows(msgspec.Struct):
    """Rows as they were logged: the columns of their steps and values, and of their places on other axes."""

    first: int  # number of the first of them within the series
    step: int
    value: int
    x: dict[str, int]


class HeldGrid(msgspec.Struct, rename={"begin": "from", "end": "to"}):
    """All rows by columns of equal width on the axis of steps; `x`: where a column's middle is on other axes."""

    begin: float
    end: float
    points: int
    low: int
    high: int
    mean: int
    count: int
    x: dict[str, int]


class HeldSeries(msgspec.Struct):
    """One metric of a run. `total`: rows of the whole series; `inherited`: the ancestor whose rows a fork has here."""

    key: str
    goal: str | None
    superseded: bool
    inherited: str | None
    total: int
    axes: dict[str, AxisFacts]
    rows: HeldRows | None
    grid: HeldGrid | None


def inherited_series(
    pool: ColumnPool, board: WebBoard, run_id: str, keys: Sequence[str], points: int
) -> list[HeldSeries]:
    """What a fork has from the runs it came from, which need not be in the report."""
    question = SeriesQuestion.of_whole([run_id], list(keys), points)
    held = []
    for line in inherited_lines(board, board.row(run_id), question):
        grid = grid_of([line], question)
        entry, _ = entry_of(line, Grid(grid.begin, grid.end, 2), question)
        facts = AxisFacts(_span(line), entry.last, entry.best, entry.resumes, entry.marks)
        held.append(_held(pool, line, grid, {}, {question.axis: facts}))
    return held


def held_series(pool: ColumnPool, run: OpenRun, run_id: str, keys: Sequence[str], points: int) -> list[HeldSeries]:
    """The series of a run, for an open run that was read. `points`: columns of a grid; a shorter series is whole."""
    facts: dict[tuple[str, bool], dict[str, AxisFacts]] = {}
    places: dict[tuple[str, bool], dict[str, Floats]] = {}
    lines: dict[tuple[str, bool], Line] = {}
    grid = Grid(0.0, 1.0, points)
    for axis in axes_of(run):
        if axis == _WALL_TIME:
            continue
        question = SeriesQuestion([run_id], list(keys), None, None, points, axis, 1.0, superseded=True)
        on_axis = lines_of(run, run_id, question)
        axis_grid = grid_of(on_axis, question)
        for line in on_axis:
            name = line.curve.name, line.superseded
            entry, _ = entry_of(line, Grid(axis_grid.begin, axis_grid.end, 2), question)
            facts.setdefault(name, {})[axis] = AxisFacts(
                _span(line), entry.last, entry.best, entry.resumes, entry.marks
            )
            if axis == "step":
                lines[name], grid = line, axis_grid
            else:
                places.setdefault(name, {})[axis] = places_of_rows(line)
    return [_held(pool, line, grid, places.get(name, {}), facts[name]) for name, line in lines.items()]


def _held(
    pool: ColumnPool, line: Line, grid: Grid, places: dict[str, Floats], facts: dict[str, AxisFacts]
) -> HeldSeries:
    order = np.arange(len(line.placed.x)) if line.placed.order is None else line.placed.order
    in_order = {axis: np.asarray(x[order]) for axis, x in places.items()}
    total = len(order)
    is_long = total > grid.points
    if is_long:
        bounds = _bounds(line, grid)
        for axis, facts_on_axis in facts.items():
            x, middles = line.placed.x, (grid.edges()[:-1] + grid.edges()[1:]) / 2
            if axis != "step":
                x, middles = in_order[axis], _middles(in_order[axis], bounds)
            facts_on_axis.marks = [
                _at_its_column(mark, x[: total - TAIL], bounds, middles) for mark in facts_on_axis.marks
            ]
    return HeldSeries(
        key=line.curve.name,
        goal=line.curve.goal,
        superseded=line.superseded,
        inherited=line.inherited,
        total=total,
        axes=facts,
        rows=_rows(pool, line, in_order, max(0, total - TAIL) if is_long else 0),
        grid=_grid(pool, line, grid, in_order) if is_long else None,
    )


def _span(line: Line) -> tuple[float, float]:
    x = line.placed.x
    return (float(x[0]), float(x[-1])) if len(x) else (0.0, 0.0)


def _rows(pool: ColumnPool, line: Line, places: dict[str, Floats], first: int) -> HeldRows:
    end = len(line.placed.x)
    return HeldRows(
        first=first,
        step=pool.add(line.placed.x[first:]),
        value=pool.add(line.placed.pick(line.values, first, end)),
        x={axis: pool.add(x[first:]) for axis, x in places.items()},
    )


def _grid(pool: ColumnPool, line: Line, grid: Grid, places: dict[str, Floats]) -> HeldGrid:
    placed = line.placed
    buckets = reduced(placed, line.curve.mean, grid, blocks=line.blocks())
    bounds = _bounds(line, grid)
    finite = np.isfinite(placed.pick(line.curve.mean, 0, len(placed.x)))
    counted = np.concatenate([[0], np.cumsum(finite)])
    return HeldGrid(
        begin=grid.begin,
        end=grid.end,
        points=grid.points,
        low=pool.add(buckets.low),
        high=pool.add(buckets.high),
        mean=pool.add(buckets.mean),
        count=pool.add((counted[bounds[1:]] - counted[bounds[:-1]]).astype(np.float64)),
        x={axis: pool.add_places(_middles(x, bounds)) for axis, x in places.items()},
    )


def _bounds(line: Line, grid: Grid) -> Integers:
    """The row with which each column begins, and the end of the last."""
    bounds = np.searchsorted(line.placed.x, grid.edges(), "left")
    bounds[-1] = len(line.placed.x)
    return np.asarray(bounds)


def _at_its_column(mark: Mark, x: Floats, bounds: Integers, middles: Floats) -> Mark:
    """A mark of one of these rows in the middle of its column: beside it there would be no such value on the line."""
    row = int(np.searchsorted(x, mark.x))
    if row >= len(x) or x[row] != mark.x:
        return mark
    column = int(np.searchsorted(bounds, row, "right")) - 1
    return Mark(float(middles[min(column, len(middles) - 1)]), mark.kind, mark.text)


def _middles(x: Floats, bounds: Integers) -> Floats:
    """Between the first row of each column and its last; of an empty one, where the next row is."""
    first = np.minimum(bounds[:-1], len(x) - 1)
    last = np.clip(bounds[1:] - 1, first, len(x) - 1)
    return np.asarray((x[first] + x[last]) / 2)
