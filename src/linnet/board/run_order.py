"""The order of the runs in a table, and which of them are in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from linnet.board.run_table import RunRow
from linnet.runs import STATUSES

SORTS = ("age", "run", "status", "recipe", "experiment", "tags", "step", "last", "best")


def arranged(rows: list[RunRow], sort: str, reverse: bool = False, wanted: str = "") -> list[RunRow]:
    """The rows that fit a filter, in order; what a run does not have comes last, whichever way."""
    fitting = [row for row in rows if fits(row, wanted)] if wanted.strip() else rows
    key = _KEYS[sort]
    keyed = [(key(row), row) for row in fitting]
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[1].summary.run_id)
    known.sort(key=lambda pair: pair[0], reverse=reverse)
    return [row for _, row in known] + [row for value, row in keyed if value is None]


def fits(row: RunRow, wanted: str) -> bool:
    """Every word of the filter is in the run's own; `status:live`, `tag:wide` look in one place only."""
    summary, manifest = row.summary, row.summary.manifest
    places = {
        "run": [summary.run_id, manifest.name or ""],
        "status": [summary.status],
        "recipe": [manifest.recipe or ""],
        "experiment": [manifest.experiment or ""],
        "tag": manifest.tags,
    }
    for word in wanted.lower().split():
        place, colon, text = word.partition(":")
        where = places[place] if colon and place in places else [t for texts in places.values() for t in texts]
        text = text if colon and place in places else word
        if not any(text in each.lower() for each in where):
            return False
    return True


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


_KEYS: dict[str, Callable[[RunRow], Any]] = {
    "age": lambda row: -row.summary.last_event,
    "run": lambda row: row.summary.run_id,
    "status": lambda row: STATUSES.index(row.summary.status),
    "recipe": lambda row: row.summary.manifest.recipe,
    "experiment": lambda row: row.summary.manifest.experiment,
    "tags": lambda row: " ".join(row.summary.manifest.tags) or None,
    "step": lambda row: row.summary.step,
    "last": lambda row: _number(row.summary.value),
    "best": lambda row: None if row.best is None else _number(row.best[1]),
}
