"""`linnet metrics`: the numbers of runs, for other programs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from linnet.board import words
from linnet.cli.options import (
    EVERY_RUN,
    RunFilters,
    RunNames,
    RunsFolder,
    choose_runs,
    require_metrics,
)
from linnet.cli.printing import json_line, print_json
from linnet.errors import UsageError
from linnet.runs import Run, RunStore
from linnet.runs.encode import jsonable_record

if TYPE_CHECKING:
    from linnet.runs import Metrics, Series
    from linnet.runs.inspection import Inspection
    from linnet.runs.metric_names import Goal

Row = dict[str, object]


def metrics(
    *run: RunNames,
    filters: RunFilters = EVERY_RUN,
    key: list[str] | None = None,
    wide: bool = False,
    inspect: Literal["taps", "grads", "drift", "tokens", "regions", "ops"] | None = None,
    format: Literal["tsv", "csv", "json", "jsonl"] | None = None,
    superseded: bool = False,
    runs: RunsFolder = None,
    json: bool = False,
) -> int:
    """Print the metrics of runs, with all digits, for other programs.

    Args:
        key: The metric whose rows are wanted; may be given several times.
        wide: A row a step and a column a metric, of all metrics or those of --key.
        inspect: What a training with --inspect told of its inside: figures of activations, of gradients and updates, of
            the distance from the first weights; of tokens; times by part of the model; by operation.
        format: tsv (by default), csv, json or jsonl.
        superseded: Show also the steps that a resumed run trained again.
        json: The same as --format json.
    """
    store = RunStore(runs)
    chosen = choose_runs(store, run, filters) if run or filters else [store.find("latest")]
    if inspect is not None:
        if key or wide:
            raise UsageError("--inspect has columns of its own: leave out --key and --wide")
        looks = [(chosen_run, chosen_run.inspection(superseded=superseded)) for chosen_run in chosen]
        if not any(inspect in inspection.looks for _, inspection in looks):
            runs_named = f"run {chosen[0].id} says" if len(chosen) == 1 else "these runs say"
            group = "drift" if inspect == "tokens" else inspect
            raise UsageError(f"{runs_named} nothing of {inspect}: that is told by a training with `inspect={group}`")
        records = (
            row
            for chosen_run, inspection in looks
            for row in _inspection_rows(chosen_run, inspection, inspect, len(chosen) > 1)
        )
        _write(records, "json" if json else format or "tsv")
        return 0
    measured = [(chosen_run, chosen_run.metrics(superseded=superseded)) for chosen_run in chosen]
    known = list(dict.fromkeys(name for _, of_run in measured for name in of_run.names()))
    require_metrics(key or (), known, f"run {chosen[0].id} has" if len(chosen) == 1 else "these runs have")
    several = len(chosen) > 1
    rows: Iterator[Row]
    if wide:
        keys = key or [name for name in known if not name.startswith("sys/")]
        rows = (row for chosen_run, of_run in measured for row in _steps(chosen_run, of_run, keys, several))
    elif key:
        rows = (row for chosen_run, of_run in measured for row in _points(chosen_run, of_run, key, several))
    else:
        rows = (row for chosen_run, of_run in measured for row in _summaries(chosen_run, of_run, several))
    _write(rows, "json" if json else format or "tsv")
    return 0


def _summaries(run: Run, metrics: Metrics, several: bool) -> Iterator[Row]:
    for name in metrics:
        series = metrics[name]
        yield {**_name(run, several), "metric": name, **series_summary(series, series.goal)}


def _inspection_rows(run: Run, inspection: Inspection, group: str, several: bool) -> Iterator[Row]:
    """What a run told of its inside, a row for each region, tensor, token or operation at each step."""
    name = _name(run, several)
    tables = {"taps": inspection.taps, "grads": inspection.grads, "drift": inspection.drift}
    if group in tables:
        figures = tables[group].figures
        for record in tables[group].records():
            labels = {column: record[column] for column in ("step", "name", "layer", "head")}
            yield {**name, **labels, **{figure: record.get(figure) for figure in figures}}
    elif group == "tokens":
        for step in inspection.token_steps:
            drift = inspection.tokens(step)
            columns = (drift.token_id, drift.freq, drift.cos_to_init, drift.l2_to_init)
            for token, freq, cosine, distance in zip(*(column.tolist() for column in columns), strict=True):
                figures_of = {"token_id": token, "freq": freq, "cos_to_init": cosine, "l2_to_init": distance}
                yield {**name, "step": step, **figures_of}
    elif group == "regions":
        for step in inspection.region_steps:
            for depth, node in inspection.regions(step).walk():
                times = {"begin_us": node.begin_us, "us": node.us, "own_us": node.own_us}
                yield {**name, "step": step, "region": node.path, "depth": depth, **times}
    else:
        for timing in inspection.op_timings:
            for operation, us in timing.buckets.items():
                yield {**name, "step": timing.step, "operation": operation, "us": us}


def _name(run: Run, several: bool) -> Row:
    """The column that says whose row it is, where there are several runs."""
    return {"run": run.id} if several else {}


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


def _points(run: Run, metrics: Metrics, keys: list[str], several: bool) -> Iterator[Row]:
    """A row a value."""
    for name in keys:
        if name not in metrics:
            continue
        series = metrics[name]
        columns = (series.step, series.t, series.value, series.epoch)
        for step, t, value, epoch in zip(*(column.tolist() for column in columns), strict=True):
            row: Row = {**_name(run, several), **({"metric": name} if len(keys) > 1 else {})}
            yield row | {"step": step, "t": t, "value": value, "epoch": None if epoch != epoch else epoch}


def _steps(run: Run, metrics: Metrics, keys: list[str], several: bool) -> Iterator[Row]:
    """A row a step with the last value that each metric has for it."""
    columns = {
        name: dict(zip(metrics[name].step.tolist(), metrics[name].value.tolist(), strict=True))
        for name in keys
        if name in metrics
    }
    for step in sorted({step for column in columns.values() for step in column}):
        values = {name: columns[name].get(step) if name in columns else None for name in keys}
        yield {**_name(run, several), "step": step, **values}


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
