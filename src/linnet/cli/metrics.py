"""`linnet metrics`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import Literal

from linnet.board import words
from linnet.cli.options import RunName, RunsFolder, require_metrics
from linnet.cli.show import series_summary
from linnet.cli.terminal import json_line, print_json
from linnet.runs import Metrics, RunStore
from linnet.runs.encode import spell_record

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

    Parameters
    ----------
    key
        The metric whose rows are wanted; may be given several times.
    format
        tsv (by default), csv, json or jsonl.
    superseded
        Show also the steps that a resumed run trained again.
    json
        The same as --format json.
    """
    found = RunStore(runs).find(run)
    read = found.metrics(superseded=superseded)
    require_metrics(key or (), read.names(), f"run {found.id} has")
    rows = (
        _points(read, key)
        if key
        else ({"metric": name, **series_summary(read[name], read[name].goal)} for name in read)
    )
    _write(rows, "json" if json else format or "tsv")
    return 0


def _points(metrics: Metrics, keys: list[str]) -> Iterator[Row]:
    for name in keys:
        series = metrics[name]
        columns = zip(
            series.step.tolist(), series.t.tolist(), series.value.tolist(), series.epoch.tolist(), strict=True
        )
        for step, t, value, epoch in columns:
            row: Row = {"metric": name} if len(keys) > 1 else {}
            row |= {"step": step, "t": t, "value": value}
            row["epoch"] = None if epoch != epoch else epoch
            yield row


def _write(rows: Iterator[Row], form: str) -> None:
    if form == "json":
        print_json([spell_record(row) for row in rows])
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
