"""The order of the runs in the table, and which of them are in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from linnet.board.terminal.fleet import Row
from linnet.runs import STATUSES

SORTS = ("age", "run", "status", "recipe", "experiment", "tags", "step", "last", "best")


@dataclass
class Table:
    """How the runs are listed."""

    sort: str = "age"
    reverse: bool = False
    filter: str = ""
    cursor: str = ""  # path of the run
    marks: list[str] = field(default_factory=list)
    offset: int = 0


def arranged(rows: list[Row], table: Table) -> list[Row]:
    """The rows that fit the filter, in order; what a run does not have comes last, whichever way."""
    fitting = [row for row in rows if fits(row, table.filter)]
    key = _KEYS[table.sort]
    known = [row for row in fitting if key(row) is not None]
    unknown = [row for row in fitting if key(row) is None]
    known.sort(key=lambda row: row.glance.run_id)
    known.sort(key=key, reverse=table.reverse)
    return known + unknown


def fits(row: Row, wanted: str) -> bool:
    """Every word of the filter is in the run's own; `status:live`, `tag:wide` look in one place only."""
    glance, manifest = row.glance, row.glance.manifest
    places = {
        "run": [glance.run_id, manifest.name or ""],
        "status": [glance.status],
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


_KEYS: dict[str, Callable[[Row], Any]] = {
    "age": lambda row: -row.glance.modified,
    "run": lambda row: row.glance.run_id,
    "status": lambda row: STATUSES.index(row.glance.status),
    "recipe": lambda row: row.glance.manifest.recipe,
    "experiment": lambda row: row.glance.manifest.experiment,
    "tags": lambda row: " ".join(row.glance.manifest.tags) or None,
    "step": lambda row: row.glance.step,
    "last": lambda row: _number(row.glance.value),
    "best": lambda row: None if row.best is None else _number(row.best[1]),
}
