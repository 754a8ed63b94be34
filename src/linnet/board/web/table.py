"""The table of runs: filtered, sorted, grouped, with the columns that were asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from linnet.board.run_columns import differing_terms, is_right, labels_of, value_text
from linnet.board.run_list import RunList
from linnet.board.run_table import RunRow
from linnet.board.web import answers
from linnet.board.web.answer_json import Figure, figure
from linnet.board.web.answers import Cell, ColumnInfo, GroupInfo, RowCurve, TableAnswer
from linnet.board.web.board import WebBoard
from linnet.board.web.colours import colour_of
from linnet.board.web.parameters import MOST_RUNS, Parameters
from linnet.errors import LinnetError
from linnet.runs.columns import Term, split_columns
from linnet.runs.query import UNREAD
from linnet.runs.selection import RunRecord, Selection, read_values, sort_key

_USUAL_COLUMNS = 8  # settings that are shown when nobody chose
_MOST_COLUMNS = 64
_MOST_NAMES = 2_000  # settings and metrics that are named
_LONGEST = 2_000  # characters of a cell
_MOST_SECONDS = 30.0  # of reading for a table; of how many runs nothing was read by then is said
_GROWN_SECONDS, _BYTES_A_SECOND = 5.0, 2e6  # after which a stream that grows is read again for its figures
_SECONDS = 2.0  # of reading curves; those that are not read by then are to be asked for again
_FACTS_PAUSE = 20.0  # times as long as it took to look through all runs, before that is done again
_REMEMBERED = 16  # lists whose meaning is kept


class TableFacts:
    """What settings and metrics the runs of a table have, and in which settings they differ."""

    def __init__(self, board: WebBoard, rows: list[RunRow]) -> None:
        self.rows, self.version, began = rows, board.version, time.monotonic()
        self.selection = Selection(board.store.root, [row.record for row in rows])
        self.differing = differing_terms(self.selection)[:_USUAL_COLUMNS]
        self.settings = self.selection.setting_names()[:_MOST_NAMES]
        self.metrics = list(dict.fromkeys(name for row in rows for name in row.summary.latest))[:_MOST_NAMES]
        self._made = time.monotonic()
        self._took = self._made - began

    def is_old(self) -> bool:
        """Was it made so long ago that making it again is no burden?"""
        return time.monotonic() - self._made > _FACTS_PAUSE * self._took


class Tables:
    """Makes tables of the runs of a board, and remembers what filters and columns mean in them."""

    def __init__(self, board: WebBoard) -> None:
        self._board = board
        self._lists: dict[tuple[str, str, bool, bool], RunList] = {}
        self._known_facts: dict[int, TableFacts] = {}
        self._all: tuple[list[RunRow], list[RunRow], list[RunRow]] | None = None

    def table(self, parameters: Parameters) -> TableAnswer:
        """`GET api/runs`."""
        board, hidden = self._board, parameters.flag("hidden")
        where, sort = parameters.text("where"), parameters.text("sort") or "age"
        seconds = parameters.number("seconds")
        until = time.monotonic() + (_MOST_SECONDS if seconds is None else min(_MOST_SECONDS, max(0.0, seconds)))
        board.scan()
        with board.lock:
            rows = board.table.rows if not hidden else self._with_hidden()
            total = len(board.table.rows)
            listed = self._list(where, sort, parameters.flag("reverse"), hidden)
        problems = []
        unread = read_metrics(board, rows, listed.compared(rows), until)
        if sort == "best":
            unread = max(unread, self._read_best(rows, until))
        shown = listed.select(rows)
        problems += [listed.problem] if listed.problem else []
        facts = self._facts(rows)
        selection = facts.selection
        terms, problem = columns_of(facts, parameters)
        problems += [problem] if problem else []
        unread = max(unread, read_metrics(board, shown, terms, until))
        groups, shown, problem = self._grouped(shown, selection, parameters.text("group"), until)
        problems += [problem] if problem else []
        now = time.time()
        return TableAnswer(
            position=board.position,
            total=total,
            columns=_described(terms, selection),
            rows=[run_row(board, row, now, terms) for row in shown],
            groups=groups,
            settings=facts.settings,
            metrics=facts.metrics,
            unread=unread,
            problem="; ".join(problems) or None,
        )

    def curves(self, parameters: Parameters) -> list[RowCurve]:
        """`GET api/curves`: of those that were read in time; the others are to be asked for again."""
        until, read = time.monotonic() + _SECONDS, []
        for row in self._board.known(parameters.texts("runs", MOST_RUNS)):
            with self._board.lock:
                if row.summed != row.stamp and time.monotonic() >= until:
                    continue
                self._board.table.sum_up(row)
            step, value = (None, None) if row.best is None else row.best
            spark = [figure(point) for point in row.spark]
            read.append(RowCurve(self._board.id_of(row), figure(value), step, spark))
        return read

    def _read_best(self, rows: Sequence[RunRow], until: float) -> int:
        """Read the best values of all runs, without their curves; of how many they could not be read in time."""
        by_metric: dict[str, list[RunRow]] = {}
        for row in rows:
            if row.summed != row.stamp and row.summary.metric is not None:
                by_metric.setdefault(row.summary.metric, []).append(row)
        unread = 0
        for metric, members in by_metric.items():
            unread += read_metrics(self._board, members, [Term("metric", metric, "best")], until)
            for row in members:
                row.best = row.record.best_point(metric) or row.best
        return unread

    def _with_hidden(self) -> list[RunRow]:
        """All rows; the same list while they are the same, since what it means is remembered by it."""
        parts = self._board.table.rows, self._board.table.archived
        if self._all is None or self._all[0] is not parts[0] or self._all[1] is not parts[1]:
            self._all = (*parts, [*parts[0], *parts[1]])
        return self._all[2]

    def _facts(self, rows: list[RunRow]) -> TableFacts:
        """What can be said of all rows, which takes as long as the rest of the answer; renewed now and then."""
        known, version = self._known_facts.get(id(rows)), self._board.version
        is_stale = known is not None and known.version != version and known.is_old()
        if known is None or known.rows is not rows or is_stale:
            self._known_facts = {key: facts for key, facts in self._known_facts.items() if facts.rows is not rows}
            if len(self._known_facts) > 1:
                self._known_facts.clear()
            known = self._known_facts[id(rows)] = TableFacts(self._board, rows)
        return known

    def _list(self, where: str, sort: str, reverse: bool, hidden: bool) -> RunList:
        """What a filter and an order mean; kept, since it takes as long as the rest of the answer."""
        key = (where, sort, reverse, hidden)
        if key not in self._lists:
            if len(self._lists) >= _REMEMBERED:
                self._lists.pop(next(iter(self._lists)))
            self._lists[key] = RunList(sort=sort, reverse=reverse, filter=where)
        return self._lists[key]

    def _grouped(
        self, rows: list[RunRow], selection: Selection, by: str, until: float
    ) -> tuple[list[GroupInfo], list[RunRow], str | None]:
        """Rows with those that agree in a column side by side, in the order that they came in otherwise."""
        if not by:
            return [], rows, None
        try:
            term = selection.term(by)
        except LinnetError as error:
            return [], rows, f"group: {error}"
        read_metrics(self._board, rows, [term], until)
        members: dict[str, list[RunRow]] = {}
        order: dict[str, tuple[bool, tuple[int, float, str]]] = {}
        for row in rows:
            value = row.record.value(term)
            key, rank = value_text(value, term), sort_key(value)
            members.setdefault(key, []).append(row)
            order[key] = rank is None, rank or (0, 0.0, "")
        groups, ordered = [], list[RunRow]()
        for key in sorted(members, key=order.__getitem__):
            group = members[key]
            live = sum(row.summary.status == "live" for row in group)
            groups.append(GroupInfo(key[:_LONGEST], len(ordered), len(group), live, _best(group, selection)))
            ordered += group
        return groups, ordered, None


def read_metrics(board: WebBoard, rows: Sequence[RunRow], terms: Sequence[Term], until: float | None = None) -> int:
    """Read the figures of metrics that are not at hand; of how many runs they could not be read in time.

    Others are answered meanwhile. The first time, of thousands of runs, it may take seconds; then an index knows them.
    """
    metrics = [term for term in terms if term.kind == "metric"]
    if not metrics:
        return 0
    with board.lock:
        stale = [row for row in rows if _is_unread(row, metrics)]
    if not stale:
        return 0
    stamps, records = [row.stamp for row in stale], [RunRecord(row.summary) for row in stale]
    seconds = _MOST_SECONDS if until is None else until - time.monotonic()
    unread = {id(record) for record in read_values(board.store.root, records, metrics, seconds)}
    with board.lock:
        for row, record, stamp in zip(stale, records, stamps, strict=True):
            if id(record) not in unread:
                row.record.figures = {**row.record.figures, **record.figures}
                row.figures_of, row.figures_at = stamp, time.monotonic()
    return len(unread)


def _is_unread(row: RunRow, terms: Sequence[Term]) -> bool:
    """Are figures missing, or from a stream that has grown since? Of one that grows they are read now and then."""
    if any(row.record.value(term) is UNREAD for term in terms):
        return True
    if row.figures_of == row.stamp or not any(term.name in row.record.figures for term in terms):
        return False
    return time.monotonic() - row.figures_at > max(_GROWN_SECONDS, row.stamp[1] / _BYTES_A_SECOND)


def columns_of(facts: TableFacts, parameters: Parameters) -> tuple[list[Term], str | None]:
    """The columns that were asked for; without, the settings that differ. And what is wrong with them, or None."""
    if not parameters.has("columns"):
        return facts.differing, None
    return columns_of_text(facts.selection, parameters.text("columns"))


def columns_of_text(selection: Selection, text: str) -> tuple[list[Term], str | None]:
    """Columns as they are typed, and what is wrong with them, or None."""
    try:
        columns = split_columns(text)[:_MOST_COLUMNS]
        return list(dict.fromkeys(selection.term(column) for column in columns)), None
    except LinnetError as error:
        return [], f"columns: {error}"


def run_row(board: WebBoard, row: RunRow, now: float, terms: Sequence[Term] = ()) -> answers.RunRow:
    """A run as a row of the table."""
    summary = row.summary
    manifest, run_id = summary.manifest, board.id_of(row)
    return answers.RunRow(
        id=run_id,
        name=(manifest.name or summary.run_id)[:_LONGEST],
        status=summary.status,
        step=summary.step,
        total_steps=manifest.total_steps,
        metric=summary.metric,
        last=figure(summary.value),
        created=manifest.created_at,
        seconds=summary.t if math.isfinite(summary.t) else 0.0,
        age=max(0.0, now - summary.last_event),
        recipe=manifest.recipe,
        experiment=manifest.experiment,
        group=manifest.group,
        parent=manifest.parent,
        compare_to=manifest.compare_to,
        tags=manifest.tags,
        hidden=manifest.archived,
        colour=colour_of(run_id),
        warning=_warning(row),
        values=[_cell(row.record.value(term)) for term in terms],
    )


def _warning(row: RunRow) -> str | None:
    summary = row.summary
    if summary.warning:
        return summary.warning
    if summary.value is not None and not math.isfinite(summary.value):
        return f"{'NaN' if summary.value != summary.value else 'infinite'} at {summary.step}"
    return "stalled" if summary.status == "stalled" else None


def _cell(value: object) -> Cell:
    if value is None or value is UNREAD or value == []:
        return None
    if isinstance(value, bool | int) and abs(value) < 1 << 53:
        return value
    if isinstance(value, float):
        return figure(value)
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value))[:_LONGEST]


def _described(terms: Sequence[Term], selection: Selection) -> list[ColumnInfo]:
    labels = labels_of(terms)
    return [
        ColumnInfo(
            term=term.column,
            label=labels[term],
            kind=term.kind,
            goal=selection.goal(term) if term.kind == "metric" else None,
            numeric=is_right(term, selection.records),
        )
        for term in terms
    ]


def _best(group: Sequence[RunRow], selection: Selection) -> Figure:
    """The best value of the main metric in a group: of each run its best where that is known, else its last."""
    names = {row.summary.metric for row in group if row.summary.metric is not None}
    if len(names) != 1:
        return None
    goal = selection.goal(Term("metric", names.pop()))
    values = [row.best[1] if row.best is not None else row.summary.value for row in group]
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or goal is None:
        return None
    return min(known) if goal == "min" else max(known)
