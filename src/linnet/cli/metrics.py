"""`linnet metrics` and `compare`: the numbers of one run, and of several beside each other."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from linnet.board import words
from linnet.cli.options import (
    EVERY_RUN,
    AsJson,
    RunFilters,
    RunName,
    RunNames,
    RunsFolder,
    choose_runs,
    require_metrics,
)
from linnet.cli.printing import json_line, paint, print_json, print_table
from linnet.errors import UsageError
from linnet.runs import Run, RunStore
from linnet.runs.encode import jsonable_record
from linnet.runs.settings import ABSENT
from linnet.runs.settings import differing as differing_of
from linnet.runs.settings import settings as settings_of
from linnet.runs.store import is_pattern

if TYPE_CHECKING:
    from linnet.runs import Metrics, Series
    from linnet.runs.metric_names import Goal

Row = dict[str, object]


def metrics(
    run: RunName = "latest",
    /,
    *,
    key: list[str] | None = None,
    format: Literal["tsv", "csv", "json", "jsonl"] | None = None,
    superseded: bool = False,
    runs: RunsFolder = None,
    json: bool = False,
) -> int:
    """Print a run's metrics, with all digits, for other programs.

    Args:
        key: The metric whose rows are wanted; may be given several times.
        format: tsv (by default), csv, json or jsonl.
        superseded: Show also the steps that a resumed run trained again.
        json: The same as --format json.
    """
    read = RunStore(runs).find(run)
    measured = read.metrics(superseded=superseded)
    require_metrics(key or (), measured.names(), f"run {read.id} has")
    summaries = ({"metric": name, **series_summary(measured[name], measured[name].goal)} for name in measured)
    _write(_points(measured, key) if key else summaries, "json" if json else format or "tsv")
    return 0


def series_summary(series: Series, goal: Goal | None) -> Row:
    """A metric in four numbers, and which way is better; `best` is None where that is not known."""
    latest, best = series.latest, series.best_by(goal) if goal is not None else None
    return {
        "last": latest[1] if latest else None,
        "last_step": latest[0] if latest else None,
        "best": best[1] if best else None,
        "best_step": best[0] if best else None,
        "points": len(series),
        "goal": goal,
    }


def _points(metrics: Metrics, keys: list[str]) -> Iterator[Row]:
    for name in keys:
        series = metrics[name]
        columns = (series.step, series.t, series.value, series.epoch)
        for step, t, value, epoch in zip(*(column.tolist() for column in columns), strict=True):
            row: Row = {"metric": name} if len(keys) > 1 else {}
            yield row | {"step": step, "t": t, "value": value, "epoch": None if epoch != epoch else epoch}


def _write(rows: Iterator[Row], form: str) -> None:
    if form == "json":
        print_json([jsonable_record(row) for row in rows])
    elif form == "jsonl":
        for row in rows:
            print(json_line(row))
    else:
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            if writer is None:
                delimiter = "," if form == "csv" else "\t"
                writer = csv.DictWriter(sys.stdout, list(row), delimiter=delimiter, lineterminator="\n")
                writer.writeheader()
            writer.writerow({name: _digits(value) for name, value in row.items()})


def _digits(value: object) -> object:
    """All digits of a float: the shortest text that reads back as the same number. Names steer no terminal, nor a row.

    A pipe often ends on a screen; whoever needs such a name to the letter takes JSON.
    """
    if isinstance(value, str):
        return words.plain(value)
    return repr(value) if isinstance(value, float) else "" if value is None else value


def compare(
    *run: RunNames,
    filters: RunFilters = EVERY_RUN,
    key: list[str] | None = None,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Compare runs: what was set differently, and what came of it.

    Args:
        key: Only these metrics.
    """
    compared = _to_compare(RunStore(runs), run, filters)
    metrics = [one.metrics() for one in compared]
    settings = [settings_of(one.manifest) for one in compared]
    differing = differing_of(settings)
    known = list(dict.fromkeys(name for measured in metrics for name in measured.names()))
    require_metrics(key or (), known, "these runs have")
    names = [name for name in known if (name in key if key else not name.startswith("sys/"))]
    goals = {name: _goals(name, metrics) for name in names}
    common = {name: next(iter(goals[name])) if len(goals[name]) == 1 else None for name in names}
    if json:
        print_json(
            [
                {
                    "run_id": one.id,
                    "path": str(one.path),
                    "status": one.status,
                    "differs": {name: setting.get(name) for name in differing},
                    "metrics": {name: series_summary(m[name], common[name]) for name in names if name in m},
                }
                for one, setting, m in zip(compared, settings, metrics, strict=True)
            ]
        )
        return 0
    ids = [one.id for one in compared]
    rows = [("status", *(one.status for one in compared))]
    rows += [(name, *(str(setting.get(name, ABSENT)) for setting in settings)) for name in differing]
    print_table(("setting", *ids), rows)
    if not differing:
        print(paint("the settings are the same", "dim"))
    if names:
        print()
        body = [(name, *_best_cells(common[name], [m.get(name) for m in metrics])) for name in names]
        print_table(("best (last)", *ids), body, right=range(1, len(ids) + 1))
    if conflicting := [name for name in names if len(goals[name]) > 1]:
        shown = words.plain(", ".join(conflicting))
        print(paint(f"no best of {shown}: its goal is min in one run and max in another", "yellow"))
    return 0


def _to_compare(store: RunStore, references: Sequence[str], filters: RunFilters) -> list[Run]:
    """The runs named; one that is named twice stands twice, so that each name has its column."""
    if filters or any(map(is_pattern, references)):
        compared = choose_runs(store, references, filters)
    else:
        compared = [store.find(reference) for reference in references] if len(references) > 1 else []
    if len(compared) < 2:
        found = len(compared) or len(references)
        raise UsageError(f"compare needs two runs or more, found {found}; `{words.listing(store.root)}` lists them")
    return compared


def _goals(name: str, metrics: list[Metrics]) -> set[Goal]:
    """Which way is better, as the runs say it; one that says nothing agrees with all."""
    return {goal for measured in metrics if name in measured and (goal := measured[name].goal) is not None}


def _best_cells(goal: Goal | None, columns: list[Series | None]) -> list[str]:
    """Best and last value in each run, the best of all marked; no best where no way is known to be better."""
    best = [None if s is None or goal is None or (b := s.best_by(goal)) is None else b[1] for s in columns]
    known = [value for value in best if value is not None]
    top = (min(known) if goal == "min" else max(known)) if known else None
    cells = []
    for series, value in zip(columns, best, strict=True):
        if series is None:
            cells.append(ABSENT)
            continue
        mark = "*" if value is not None and value == top and len(known) > 1 else " "
        last = words.number(series.latest[1] if series.latest else None)
        cells.append(f"{words.number(value)}{mark} ({last})")
    return cells
