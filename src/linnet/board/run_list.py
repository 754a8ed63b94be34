"""`RunList`: which runs of the table a list shows, in which order and with which columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.board.run_columns import differing_terms
from linnet.board.run_table import RunRow
from linnet.errors import LinnetError, near_words
from linnet.runs import STATUSES
from linnet.runs.columns import FIELDS, Column, Term, split_columns
from linnet.runs.query import Query
from linnet.runs.selection import Selection, sort_key


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


_SORT_KEYS: dict[str, Callable[[RunRow], Any]] = {
    "age": lambda row: -row.summary.last_event,
    "run": lambda row: row.summary.run_id,
    "status": lambda row: STATUSES.index(row.summary.status),
    "recipe": lambda row: row.summary.manifest.recipe,
    "experiment": lambda row: row.summary.manifest.experiment,
    "group": lambda row: row.summary.manifest.group,
    "tags": lambda row: " ".join(row.summary.manifest.tags) or None,
    "step": lambda row: row.summary.step,
    "last": lambda row: _finite(row.summary.value),
    "best": lambda row: None if row.best is None else _finite(row.best[1]),
}
SORTS = tuple(_SORT_KEYS)


@dataclass
class RunList:
    """What of the table is shown: order, filter, columns, the row that is chosen, and those that are marked.

    - `filter`: a query, in which a word by itself is looked for in what a run is called.
    - `sort`: one of `SORTS`, or a column as it is typed.
    - `columns`: those somebody chose, with commas; the settings that differ stand beside them unless some are named.
    - `problem`: why the filter or the columns mean nothing; empty where they do.
    """

    sort: str = "age"
    reverse: bool = False
    filter: str = ""
    columns: str = ""
    cursor: str = ""  # path of the run
    marks: list[str] = field(default_factory=list)
    offset: int = 0
    problem: str = ""
    _resolved: tuple[Any, ...] = ()

    def select(self, rows: list[RunRow]) -> list[RunRow]:
        """The rows that match the filter, sorted; what a run does not have comes last, whichever way."""
        meaning = self._meaning(rows)
        unknown = meaning.unknown(rows)
        self.problem = meaning.problem or unknown
        term = meaning.sort
        if term is None:
            key, descending = _SORT_KEYS[self.sort if self.sort in _SORT_KEYS else "age"], False
        else:
            key = lambda row: sort_key(row.record.value(term))  # noqa: E731 - like those of the table
            descending = term.kind == "metric" and meaning.selection.goal(term) == "max"
        keyed = [(key(row), row) for row in rows if unknown or meaning.fits(row)]
        known = [pair for pair in keyed if pair[0] is not None]
        known.sort(key=lambda pair: pair[1].summary.run_id)
        known.sort(key=lambda pair: pair[0], reverse=self.reverse != descending)
        return [row for _, row in known] + [row for value, row in keyed if value is None]

    def window(self, rows: list[RunRow], height: int) -> tuple[int, int]:
        """Where in `rows` the cursor stands, and the first row of a screen of so many lines that shows it."""
        at = next((i for i, row in enumerate(rows) if row.summary.path == self.cursor), 0)
        return at, min(max(self.offset, at - height + 1), at, max(0, len(rows) - height))

    def terms(self, rows: list[RunRow]) -> list[Term]:
        """The columns beside those that every list has: those that were chosen, and the settings that differ."""
        return self._meaning(rows).columns

    def chosen(self, rows: list[RunRow]) -> list[Term]:
        """Those of them that somebody chose."""
        return self._meaning(rows).chosen

    def compared(self, rows: list[RunRow]) -> list[Term]:
        """The columns that must be known of every run: what it is filtered and sorted by."""
        meaning = self._meaning(rows)
        return [*meaning.compared.values(), *([] if meaning.sort is None else [meaning.sort])]

    def _meaning(self, rows: list[RunRow]) -> _ListQuery:
        """What the texts mean among these runs, worked out once for each of them."""
        texts = (self.filter, self.sort, self.columns)
        if not self._resolved or self._resolved[0] is not rows or self._resolved[1] != texts:
            meaning = _ListQuery(rows)
            for take, text in ((meaning.take_filter, self.filter), (meaning.take_columns, self.columns)):
                try:
                    take(text.strip())
                except LinnetError as error:
                    meaning.problem = str(error).replace("`where` ", "filter ")
            if self.sort not in _SORT_KEYS:
                try:
                    meaning.sort = meaning.selection.term(self.sort)
                except LinnetError:
                    self.sort = "age"
            self._resolved, self.problem = (rows, texts, meaning), meaning.problem
        known: _ListQuery = self._resolved[2]
        return known


class _ListQuery:
    """Filter, order and columns of a list, once it is known which settings there are."""

    def __init__(self, rows: Sequence[RunRow]) -> None:
        self.selection = Selection(Path(), [row.record for row in rows])
        self.query: Query | None = None
        self.compared: dict[Column, Term] = {}
        self.sort: Term | None = None
        self.problem = ""
        self.chosen: list[Term] = []  # columns
        self._columns: list[Term] | None = None
        self._unknown: dict[str, str] = {}  # by name, what is said of it

    @property
    def columns(self) -> list[Term]:
        """Those that were chosen; without, the settings that differ, worked out when somebody shows them."""
        if self._columns is None:
            self._columns = differing_terms(self.selection)
        return self._columns

    def take_filter(self, text: str) -> None:
        """Understand a filter; an error where it is none, and then it leaves out nothing."""
        if text:
            query = Query(text, words=True)
            self.compared = {
                comparison.column: self.selection.term(comparison.column) for comparison in query.comparisons()
            }
            self.query = query

    def take_columns(self, text: str) -> None:
        """Understand the columns that were chosen."""
        self.chosen = [self.selection.term(column) for column in split_columns(text)]
        if self.chosen:
            beside = [] if any(term.kind == "setting" for term in self.chosen) else self.columns
            self._columns = list(dict.fromkeys([*self.chosen, *beside]))

    def unknown(self, rows: Sequence[RunRow]) -> str:
        """What is said of a name that the filter compares and that no run has, once all were read; else empty."""
        for name in (term.name for term in self.compared.values() if term.kind == "metric" and rows):
            if any(row.record.has_metric(name) for row in rows):
                continue
            if all(name in row.record.figures for row in rows):
                return self._unknown_message(name, rows)
        return ""

    def _unknown_message(self, name: str, rows: Sequence[RunRow]) -> str:
        if name not in self._unknown:
            metrics = dict.fromkeys(metric for row in rows for metric in row.summary.latest)
            settings = self.selection.setting_names()
            known = [*metrics, *(setting.rpartition(".")[2] for setting in settings), *settings, *FIELDS]
            close = near_words(name, known)
            meant = f"; did you mean {close[0]}?" if close else ""
            self._unknown[name] = f"no run here has a setting or metric {name!r}{meant}"
        return self._unknown[name]

    def fits(self, row: RunRow) -> bool:
        """Does the filter leave this run? One that is not read yet comes when it is."""
        if self.query is None:
            return True
        return bool(self.query.fits(lambda column: row.record.value(self.compared.get(column) or _field(column))))


def _field(column: Column) -> Term:
    """What a word by itself is looked for in."""
    return Term("field", column.name)
