"""`linnet plot --against KEY`: a metric of many runs against one of their settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from linnet.board import words
from linnet.cli.pictures import remark
from linnet.errors import LinnetError, UsageError
from linnet.runs.columns import STATISTICS, Column, split_columns
from linnet.runs.metric_names import main_metrics
from linnet.runs.selection import Filters, Selection, select

if TYPE_CHECKING:
    from linnet.board.figure.chart import OpenRange
    from linnet.board.figure.scatter import Scatter
    from linnet.runs import RunStore


def choose_scatter(
    store: RunStore,
    metrics: str | None,
    references: Sequence[str],
    filters: Filters,
    against: str,
    by: str | None,
    take: str,
    log: bool,
    log_x: bool | None,
    y_range: OpenRange,
    title: str | None,
) -> Scatter:
    """The runs that are named or fit, all without; an error where nothing of them can be drawn."""
    from linnet.board.figure.scatter import build_scatter

    selection = select(store, references, filters)
    if not len(selection):
        fits = "no run fits these filters" if filters else "there are no runs"
        raise LinnetError(f"{fits} in the folder {store.root}; `{words.listing(store.root)}` lists them")
    columns = [_taken(column, take) for column in _columns(metrics, selection)]
    scatter = build_scatter(
        selection,
        columns,
        Column.parse(against),
        None if by is None else Column.parse(by),
        log=log,
        log_x=log_x,
        y_range=y_range,
        title=title,
    )
    if not scatter.series:
        missing = ", ".join(f"{count} without {words.plain(name)}" for name, count in scatter.without.items())
        diverged = f"{len(scatter.diverged)} without a value that can be drawn" if scatter.diverged else ""
        raise LinnetError(f"nothing to draw of {len(selection)} runs: {', '.join(filter(None, (missing, diverged)))}")
    return scatter


def _columns(metrics: str | None, selection: Selection) -> list[Column]:
    """The metrics that are asked for; without any, the main ones of the newest run."""
    if metrics is not None:
        columns = split_columns(metrics)
        if not columns:
            raise UsageError("no metric is named: `linnet plot validation/loss --against lr`")
        return columns
    newest = max(selection, key=lambda record: record.summary.manifest.created_at)
    names = main_metrics(newest.open().metrics().names())
    if not names:
        raise LinnetError(f"run {newest.summary.run_id} has no metrics yet; name one: `linnet plot loss --against lr`")
    return [Column(name) for name in names]


def _taken(column: Column, take: str) -> Column:
    """A metric with the value that is taken of it, unless it says that itself: best(loss), loss@200."""
    if column.is_metric:
        return column
    if re.fullmatch("[0-9]{1,18}", take):
        return msgspec.structs.replace(column, step=int(take))
    statistic = next((word for word in STATISTICS if word == take), None)
    if statistic is None:
        raise UsageError(f"--take {take!r}: expected {', '.join(STATISTICS)} or a step, as in --take 1000")
    return msgspec.structs.replace(column, statistic=statistic)


def print_left_out(scatter: Scatter) -> None:
    """Runs that are not among the points."""
    for name, count in scatter.without.items():
        remark(f"{count} {'run is' if count == 1 else 'runs are'} left out: without {words.plain(name)}")
    if scatter.diverged:
        count = len(scatter.diverged)
        why = "not finite, or not above 0 on a log scale" if scatter.log else "not finite"
        remark(f"{count} {'value is' if count == 1 else 'values are'} {why}: × at the upper edge")
