"""Everything about one run but its curves: `GET api/runs/{id}`."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from linnet.board.analysis_results import has_results
from linnet.board.attention_answer import can_attend
from linnet.board.curve import AXES
from linnet.board.web.answer_json import figure, plain_json
from linnet.board.web.answers import AncestorInfo, FamilyInfo, HasInfo, MetricInfo, RunDetail, RunMetrics
from linnet.board.web.board import WebBoard
from linnet.board.web.open_runs import OpenRun
from linnet.board.web.parameters import MOST_RUNS, Parameters
from linnet.board.web.table import run_row
from linnet.board.words import plain
from linnet.files import is_file
from linnet.runs import Series
from linnet.runs.events import decode
from linnet.runs.family import ancestors
from linnet.runs.folder import FLOW
from linnet.runs.lines import first_line
from linnet.runs.manifest import read_json
from linnet.runs.metric_names import is_held_out, quantity_of
from linnet.runs.settings import settings
from linnet.runs.usage import bytes_of

_MOST_METRICS = 5_000
_LEAST_ROWS = 3  # of a metric that is said to be constant


def detail(board: WebBoard, run_id: str) -> RunDetail:
    """A run as it stands."""
    board.scan()  # a child of it may be new
    row = board.row(run_id)
    board.scan_folders([row.path])
    with board.open_whole(run_id) as open_run:
        watched, history = open_run.watched, open_run.history
        watched.summary = row.summary
        manifest, names = row.summary.manifest, history.names()
        with board.lock:
            others = [*board.table.rows, *board.table.archived]
            children = [board.id_of(other) for other in others if other.summary.manifest.parent == row.summary.run_id]
        above = [AncestorInfo(ancestor.run.path.name, ancestor.until) for ancestor in ancestors(open_run.run)]
        return RunDetail(
            row=run_row(board, row, time.time()),
            manifest=plain_json(read_json(open_run.run.path) or {}),
            settings=plain_json(settings(manifest)),
            defaults=plain_json(board.defaults(manifest.recipe)),
            chosen=plain_json(_chosen(open_run)),
            plan=plain_json(manifest.plan),
            end=plain_json(row.summary.end),
            metrics=metric_infos(open_run),
            axes=axes_of(open_run),
            elapsed=_finite(watched.elapsed()) or 0.0,
            remaining=_finite(watched.remaining()),
            tokens_per_second=_finite(watched.tokens_per_second()),
            family=FamilyInfo(above, children),
            path=plain(open_run.run.path),
            damaged=history.damaged,
            has=_has(open_run, names),
        )


def metrics(board: WebBoard, parameters: Parameters) -> list[RunMetrics]:
    """`GET api/metrics`: what charts of some runs there are."""
    infos = []
    for row in board.known(parameters.texts("runs", MOST_RUNS)):
        with board.open_runs.use(row.path) as run:
            run.read_numbers()
            flat_settings = plain_json(settings(row.summary.manifest))
            infos.append(RunMetrics(board.id_of(row), metric_infos(run), axes_of(run), flat_settings))
    return infos


def sizes(board: WebBoard, parameters: Parameters) -> dict[str, int]:
    """`GET api/sizes`: bytes on the disk."""
    rows = board.known(parameters.texts("runs", MOST_RUNS))
    return {board.id_of(row): sum(bytes_of(Path(row.path)).values()) for row in rows}


def metric_infos(open_run: OpenRun) -> list[MetricInfo]:
    """Every metric in numbers; of very many the first."""
    names = open_run.history.names()[:_MOST_METRICS]
    trained = {quantity_of(name): name for name in reversed(names) if not is_held_out(name)}
    infos = []
    for name in names:
        series = open_run.history.series(name)
        if series is not None:
            held_out_of = trained.get(quantity_of(name)) if is_held_out(name) else None
            infos.append(_metric_info(series, held_out_of))
    return infos


def _metric_info(series: Series, held_out_of: str | None) -> MetricInfo:
    last, best = series.latest or (None, None), series.best or (None, None)
    low, high = (series.best_by("min") or (None, None))[1], (series.best_by("max") or (None, None))[1]
    return MetricInfo(
        key=series.name,
        goal=series.goal,
        rows=len(series),
        last=figure(last[1]),
        last_step=last[0],
        best=figure(best[1]),
        best_step=best[0],
        low=figure(low),
        high=figure(high),
        constant=len(series) >= _LEAST_ROWS and series.goal is None and low is not None and low == high == last[1],
        held_out_of=held_out_of,
    )


def axes_of(open_run: OpenRun) -> list[str]:
    """What may stand on the x axis of its charts."""
    history = open_run.history
    unknown = {"tokens"} if "tokens" not in history.names() else set()
    unknown |= {"epoch"} if history.last_epoch is None else set()
    return [axis for axis in AXES if axis not in unknown]


def _chosen(open_run: OpenRun) -> dict[str, Any]:
    """What `auto` became, at the start and wherever it was chosen anew."""
    start = decode(first_line(open_run.run.events_path))
    events = [*([] if start is None else [start]), *(e for e in open_run.turns() if e.kind == "resume")]
    chosen: dict[str, Any] = {}
    for event in events:
        choices = event.data.get("chosen")
        chosen |= choices if isinstance(choices, dict) else {}
    return chosen


def _has(open_run: OpenRun, names: list[str]) -> HasInfo:
    """Which of its pages have something to show."""
    folder, journal = open_run.run.path, open_run.journal
    attends = can_attend(open_run.run)
    return HasInfo(
        samples=bool(journal.samples()),
        checkpoints=bool(open_run.run.checkpoints()),
        artifacts=bool(journal.artifacts()),
        flow=is_file(folder / FLOW),
        system=any(name.startswith("sys/") for name in names),
        profile=bool(journal.op_timings()),
        classes=any(
            evaluation.per_class is not None or evaluation.confusion is not None for evaluation in journal.evaluations()
        ),
        inside=bool(journal.looks) or has_results(journal) or attends,
        attention=attends,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
