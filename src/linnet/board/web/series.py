"""Series as they travel: reduced to the width of a chart, in one binary answer."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from linnet.board.curve import AXES, Curve, Floats, is_smoothed
from linnet.board.run_table import RunRow
from linnet.board.web.answer_json import Figure, encoded, figure
from linnet.board.web.answers import Mark, RequestError, SeriesEntry, SeriesHeader
from linnet.board.web.board import WebBoard
from linnet.board.web.open_runs import OpenRun
from linnet.board.web.parameters import MOST_CELLS, MOST_KEYS, MOST_POINTS, MOST_RUNS, MOST_SERIES, Parameters
from linnet.board.web.reduction import Grid, Placed, reduced
from linnet.board.web.row_blocks import RowBlocks
from linnet.board.web.smoothing import SmoothedLine
from linnet.board.whole_history import WholeHistory
from linnet.runs.family import ancestors
from linnet.runs.metric_names import main_metric

MAGIC = b"LNS1"
_FEWEST_POINTS = 2
_USUAL_POINTS = 800


@dataclass(frozen=True)
class SeriesQuestion:
    """What is asked for. `begin`, `end`: None for all of it; `alpha`: 1 for no smoothed line."""

    runs: list[str]
    keys: list[str]
    begin: float | None
    end: float | None
    points: int
    axis: str
    alpha: float
    superseded: bool
    beside: list[str] = field(default_factory=list)  # runs that are drawn on the others' grid
    inherited: bool = False  # of a fork also the lines of the runs it came from, up to where it began

    @classmethod
    def of_whole(cls, runs: list[str], keys: list[str], points: int) -> SeriesQuestion:
        """All rows by step, not smoothed."""
        return cls(runs, keys, None, None, points, "step", 1.0, False)

    @classmethod
    def of(cls, parameters: Parameters) -> SeriesQuestion:
        """From the query of an address."""
        runs, keys = parameters.texts("runs", MOST_RUNS), parameters.texts("keys", MOST_KEYS)
        beside = parameters.texts("beside", MOST_RUNS)
        points = parameters.integer("points", _USUAL_POINTS, _FEWEST_POINTS, MOST_POINTS)
        begin, end, alpha = parameters.number("from"), parameters.number("to"), parameters.number("alpha")
        if not runs or not keys:
            raise RequestError(400, "runs and keys are needed: which series of which runs")
        series = (len(runs) + len(beside)) * len(keys)
        if series > MOST_SERIES or series * points > MOST_CELLS:
            raise RequestError(
                400,
                f"{len(runs) + len(beside)} runs × {len(keys)} keys × {points} points are more than one answer holds",
            )
        if begin is not None and end is not None and begin > end:
            raise RequestError(400, f"from is less than to, found {begin} and {end}")
        if alpha is not None and not 0.0 < alpha <= 1.0:
            raise RequestError(400, f"alpha is above 0 and at most 1, found {alpha}")
        axis = parameters.choice("axis", AXES)
        superseded = parameters.flag("superseded")
        inherited = parameters.flag("inherited")
        return cls(runs, keys, begin, end, points, axis, alpha or 1.0, superseded, beside, inherited)


@dataclass
class Line:
    """One series on the axis that was asked for.

    - `inherited`: the id of the ancestor whose rows these are; `run` is that one then, and `run_id` that of the fork.
    """

    run: OpenRun
    run_id: str
    curve: Curve
    values: Floats  # as they were logged
    placed: Placed
    superseded: bool = False
    inherited: str | None = None

    def blocks(self) -> RowBlocks | None:
        """The blocks of its rows; None where it is short, or not all that its metric has."""
        return None if self.superseded else self.run.blocks.get(self.curve, self.run.history.changes)


def answer(board: WebBoard, question: SeriesQuestion) -> bytes:
    """`GET api/series`. Runs and metrics that are not there are left out; a RequestError when none of the runs is."""
    rows = board.known(question.runs)
    if not rows:
        raise RequestError(404, "none of these runs is there")
    lines = _lines_of_rows(board, rows, question)
    if question.inherited:
        inherited = list[Line]()
        most = min(MOST_SERIES, MOST_CELLS // question.points) - len(lines)
        for row in rows:
            inherited += inherited_lines(board, row, question)[: max(0, most - len(inherited))]
        lines = [*inherited, *lines]
    grid = grid_of(lines, question)
    if question.beside:
        lines = [*_lines_of_rows(board, board.known(question.beside), question), *lines]
    entries, body = list[SeriesEntry](), bytearray()
    for line in lines:
        with line.run.lock:
            entry, columns = entry_of(line, grid, question)
        entry.offset = len(body)
        body += columns
        body += b"\0" * (-len(body) % 8)
        entries.append(entry)
    return packed(SeriesHeader(question.axis, grid.begin, grid.end, grid.points, entries), bytes(body))


def _lines_of_rows(board: WebBoard, rows: Iterable[RunRow], question: SeriesQuestion) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        with board.open_runs.use(row.path) as run:
            run.read_numbers()
            lines += lines_of(run, board.id_of(row), question)
    return lines


def packed(header: SeriesHeader, body: bytes) -> bytes:
    """An answer as it travels."""
    return with_header(MAGIC, encoded(header), body)


def with_header(magic: bytes, header: bytes, body: bytes) -> bytes:
    """Magic, length of the header, the header padded so that columns are aligned, the columns."""
    header += b" " * (-(len(header) + 8) % 8)
    return b"".join((magic, struct.pack("<I", len(header)), header, body))


def lines_of(run: OpenRun, run_id: str, question: SeriesQuestion) -> list[Line]:
    """The series of one run that are asked for; where it was resumed, also what that superseded."""
    lines = []
    for key in question.keys:
        line = line_of(run, run_id, run.history, key, question.axis)
        if line is not None:
            lines.append(line)
    if question.superseded and any(event.kind == "resume" for event in run.turns()):
        history = run.superseded()
        for key in question.keys:
            line = line_of(run, run_id, history, key, question.axis)
            if line is not None and (void := _void_rows(line)) is not None:
                lines.append(void)
    return lines


def inherited_lines(board: WebBoard, row: RunRow, question: SeriesQuestion) -> list[Line]:
    """What a fork has from its ancestors, a line for each of them; the machine's figures are no part of it.

    They are lines of the ancestors without what comes after the fork, so that smoothing, blocks and mapped rows are
    theirs. On other axes than that of steps there are none: there they would not join.
    """
    if question.axis != "step" or row.summary.manifest.parent is None:
        return []
    with board.open_runs.use(row.path) as fork:
        family = ancestors(fork.run)
    lines, run_id = list[Line](), board.id_of(row)
    for ancestor in reversed(family):
        folder = ancestor.run.path
        if not board.store.is_inside(folder):
            continue
        with suppress(RequestError), board.open_runs.use(str(folder)) as run:
            run.read_numbers()
            for key in question.keys:
                line = None if key.startswith("sys/") else line_of(run, run_id, run.history, key, question.axis)
                placed = None if line is None else line.placed.part(ancestor.after, ancestor.until)
                if line is not None and placed is not None and len(placed.x):
                    lines.append(replace(line, placed=placed, inherited=board.id_of_folder(folder)))
    return lines


def line_of(run: OpenRun, run_id: str, history: WholeHistory, key: str, axis: str) -> Line | None:
    """A metric of a run on an axis; None where it has none, or the axis is unknown to it."""
    series, curve = history.series(key), history.curve(key)
    if series is None or curve is None or not len(curve):
        return None
    placed = run.placed.get(series.tables, axis, history)
    if placed is None:
        x = axis_values(run, history, curve, axis)
        if x is None:
            return None
        placed = run.placed.put(series.tables, axis, history, x)
    return Line(run, run_id, curve, series.value, placed)


def axis_values(run: OpenRun, history: WholeHistory, curve: Curve, axis: str) -> Floats | None:
    """Where the rows of a curve stand on an axis, as everywhere on the board; None where the run does not tell."""
    tokens = history.curve("tokens") if axis == "tokens" else None
    main = main_metric(history.names()) if axis == "epoch" else None
    epochs = None if main is None else history.curve(main)
    placed = curve.on_axis(axis, run.run.manifest.created_at, tokens, epochs)
    return None if placed is None else placed.x


def _void_rows(line: Line) -> Line | None:
    """The rows of a line that a resumed run trained again: those after which an earlier or the same step follows."""
    step = line.curve.step
    if len(step) < 2:
        return None
    later = np.minimum.accumulate(step[::-1])[::-1]
    void = np.flatnonzero(np.append(later[1:] <= step[:-1], False))
    if not len(void):
        return None
    x = places_of_rows(line)
    curve = Curve.through(line.curve.step[void], line.curve.mean[void], line.curve.name)
    return Line(line.run, line.run_id, curve, line.values[void], Placed(x[void]), superseded=True)


def places_of_rows(line: Line) -> Floats:
    """x of each row, in the order of the series."""
    if line.placed.order is None:
        return line.placed.x
    x = np.full(len(line.curve), np.nan)
    x[line.placed.order] = line.placed.x
    return x


def grid_of(lines: list[Line], question: SeriesQuestion) -> Grid:
    """The range that was asked for; where an end is open, up to the first or last row of all."""
    held = [line.placed.x for line in lines if len(line.placed.x)]
    begin = question.begin if question.begin is not None else min((float(x[0]) for x in held), default=0.0)
    end = question.end if question.end is not None else max((float(x[-1]) for x in held), default=begin)
    if end <= begin:
        end = math.nextafter(begin, math.inf) if question.end is not None else begin + 1.0
    return Grid(begin, end, question.points)


def entry_of(line: Line, grid: Grid, question: SeriesQuestion) -> tuple[SeriesEntry, bytes]:
    """What an answer says of one series, and its columns."""
    curve, placed = line.curve, line.placed
    begin, end = placed.range(grid.begin, grid.end)
    total = end - begin
    smooth = None
    if is_smoothed(len(curve), question.alpha) and not line.superseded:
        whole = partial(line.run.smoothed.get, curve, question.alpha, line.run.history.changes)
        smooth = SmoothedLine(curve.mean, question.alpha, whole)
    exact = total <= question.points
    blocks = line.blocks()
    if exact:
        begin, end = max(0, begin - 1), min(len(placed.x), end + 1)  # so that a line does not end inside the chart
        columns = {"x": placed.x[begin:end], "value": placed.pick(line.values, begin, end)}
        if smooth is not None:
            in_order = placed.order is None
            columns["smooth"] = smooth.rows(begin, end) if in_order else placed.pick(smooth.whole(), begin, end)
        if question.axis != "step":
            columns["step"] = placed.pick(curve.step, begin, end)
        rows, content = end - begin, {name: np.asarray(column, "<f8").tobytes() for name, column in columns.items()}
    else:
        buckets = reduced(placed, curve.mean, grid, smooth, blocks)
        rows, content = (
            grid.points,
            {
                name: np.asarray(column, "<f4").tobytes()
                for name, column in buckets._asdict().items()
                if column is not None
            },
        )
    grows = not line.superseded and line.inherited is None
    entry = SeriesEntry(
        run=line.run_id,
        key=curve.name,
        goal=curve.goal,
        exact=exact,
        superseded=line.superseded,
        inherited=line.inherited,
        rows=rows,
        total=total,
        offset=0,
        columns=list(content),
        position=len(curve) if line.inherited is None else len(placed.x),
        ema=_ema(curve.mean, smooth, question.alpha, blocks) if grows else None,
        last=_last(line),
        best=_best(line, blocks) if grows else None,
        resumes=_resumes(line, question.axis) if grows else [],
        marks=_marks(line, grid, question.axis) if grows else [],
    )
    return entry, b"".join(content.values())


def _ema(
    value: Floats, smooth: SmoothedLine | None, alpha: float, blocks: RowBlocks | None
) -> tuple[float, float] | None:
    """Numerator and weight of the average at the end, by which a page smooths the rows that come after."""
    all_known = blocks is not None and blocks.finite
    known = None if smooth is None else (len(value), len(value) - 1) if all_known else _known_rows(value)
    if smooth is None or known is None:
        return None
    rows, last = known
    weight = -math.expm1(rows * math.log1p(-alpha))
    return float(smooth.rows(last, last + 1)[0]) * weight, weight


def _known_rows(value: Floats) -> tuple[int, int] | None:
    """How many rows are finite, and the last of them; None where none of the latest is."""
    finite = np.isfinite(value)
    at = np.flatnonzero(finite[-4096:])
    return (int(np.count_nonzero(finite)), max(0, len(value) - 4096) + int(at[-1])) if len(at) else None


def _last(line: Line) -> tuple[float, Figure] | None:
    if not len(line.values):
        return None
    if line.inherited is not None:
        row = len(line.placed.x) - 1
        return float(line.placed.x[row]), figure(float(line.placed.pick(line.values, row, row + 1)[0]))
    x = float(line.placed.x[-1]) if line.placed.order is None else float(places_of_rows(line)[-1])
    return (x if math.isfinite(x) else 0.0), figure(float(line.values[-1]))


def _best(line: Line, blocks: RowBlocks | None) -> tuple[float, float] | None:
    if line.curve.stats.best is None:
        return None
    step, value = line.curve.stats.best
    at = blocks.rows_of(value) if blocks is not None and blocks.finite else np.flatnonzero(line.values == value)
    at = at[line.curve.step[at] == step] if len(at) else at
    if not len(at):
        return None
    x = float(places_of_rows(line)[at[0]])
    return (x, value) if math.isfinite(x) else None


def _resumes(line: Line, axis: str) -> list[float]:
    """Where on the axis the run was resumed."""
    places = [_place_of(line, axis, event.step, event.t) for event in line.run.turns() if event.kind == "resume"]
    return [x for x in places if x is not None][-100:]


def _place_of(line: Line, axis: str, step: int | None, t: float) -> float | None:
    """Where something that happened at a step, or at a time, stands on an axis."""
    if axis == "relative time":
        return t
    if axis == "wall time":
        return t + line.run.run.manifest.created_at
    if step is None:
        row = int(np.searchsorted(line.curve.t, t))
        return float(places_of_rows(line)[min(row, len(line.curve) - 1)])
    if axis == "step":
        return float(step)
    x = places_of_rows(line)
    row = int(np.searchsorted(line.curve.step, step))
    x_of_row = float(x[min(row, len(x) - 1)])
    return x_of_row if math.isfinite(x_of_row) else None


def _marks(line: Line, grid: Grid, axis: str) -> list[Mark]:
    """What went wrong within the grid."""
    x = places_of_rows(line)
    finder = line.run.marks_of(line.curve.name)
    marks = [Mark(float(x[row]), kind, text) for row, kind, text in finder.find(line.curve, line.values)]  # type: ignore[arg-type]
    for event in line.run.turns():
        if event.kind != "note" or event.data.get("metric", line.curve.name) != line.curve.name:
            continue
        position = _place_of(line, axis, event.step, event.t)
        if position is not None:
            text = event.data.get("text")
            marks.append(Mark(position, "warning", text[:500] if isinstance(text, str) else "events were lost"))
    return [mark for mark in marks if grid.begin <= mark.x <= grid.end]
