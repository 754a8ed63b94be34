"""`Selection`: the runs that somebody means, with the values of theirs that a table shows, sorts or filters by.

Names and patterns, labels (`experiment`, `group`, `tag` …) and a query are one question here, whoever asks it: the
commands, the board, a program. Streams are read only of runs that everything else leaves over, and only for the metrics
that were asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from pathlib import Path

from linnet.errors import UsageError, near_words
from linnet.runs.columns import FIELDS, Column, Term, resolve
from linnet.runs.figure_index import FigureIndex, stamp_of
from linnet.runs.figure_reader import read_figures
from linnet.runs.figures import FigureRequest, MetricFigures, Point
from linnet.runs.metric_names import goal_of
from linnet.runs.processes import in_processes
from linnet.runs.query import ARCHIVED, UNREAD, Comparison, Query
from linnet.runs.run import Run
from linnet.runs.settings import settings
from linnet.runs.store import RunStore
from linnet.runs.summary import STATUSES, RunSummary

_LOOKED_INTO = 20  # runs whose metrics are named in an error


@dataclass(frozen=True)
class Filters:
    """Which runs of a folder are meant; each that is given must fit. `where`: as a `Query` reads it.

    `archived`: also runs that were taken out of the lists; those that are named, or asked for by `where`, are meant in
    any case.
    """

    where: str | None = None
    experiment: str | None = None
    group: str | None = None
    tag: str | None = None
    status: str | None = None
    recipe: str | None = None
    archived: bool | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def check(self) -> None:
        """Refuse a status that does not exist."""
        if self.status is not None and self.status not in STATUSES:
            raise UsageError(f"status {self.status!r} does not exist; choose from {', '.join(STATUSES)}")

    def fit_labels(self, summary: RunSummary) -> bool:
        """All but `where`."""
        manifest = summary.manifest
        return (
            (self.experiment is None or manifest.experiment == self.experiment)
            and (self.group is None or manifest.group == self.group)
            and (self.tag is None or self.tag in manifest.tags)
            and (self.status is None or summary.status == self.status)
            and (self.recipe is None or manifest.recipe == self.recipe)
        )


class RunRecord:
    """A run of a selection. `figures`: those of its metrics that were read; None for one that it does not have."""

    def __init__(self, summary: RunSummary) -> None:
        self.summary = summary
        self.figures: dict[str, MetricFigures | None] = {}
        self._settings: dict[str, object] | None = None

    @property
    def path(self) -> str:
        """Its folder."""
        return self.summary.path

    @property
    def settings(self) -> dict[str, object]:
        """What was set before it began, by dotted name."""
        if self._settings is None:
            self._settings = settings(self.summary.manifest)
        return self._settings

    def value(self, term: Term) -> object:
        """Its value in a column; None where it has none, `UNREAD` where its stream must be read for it."""
        if term.kind == "field":
            return FIELDS[term.name](self.summary)
        if term.kind == "setting":
            return self.settings.get(term.name)
        if term.statistic == "last" and term.step is None and term.name in self.summary.latest:
            return self.summary.latest[term.name]
        if term.name not in self.figures:
            return UNREAD
        figures = self.figures[term.name]
        if figures is None:
            return None
        point = figures.last
        if term.step is not None:
            if term.step not in figures.at:
                return UNREAD
            reached = self.summary.step is not None and self.summary.step >= term.step
            point = figures.at[term.step] if reached else None
        elif term.statistic == "best":
            point = self.best_point(term.name)
        elif term.statistic == "first":
            point = figures.first
        elif term.statistic != "last":
            point = figures.low if term.statistic == "min" else figures.high
        return None if point is None else point[1]

    def best_point(self, metric: str) -> Point | None:
        """Step and value of a metric's best point; None where it was not read, or nobody says which way is better."""
        figures, goal = self.figures.get(metric), self.goal(Term("metric", metric))
        return None if figures is None or goal is None else figures.low if goal == "min" else figures.high

    def take_figures(self, request: FigureRequest, figures: dict[str, MetricFigures]) -> None:
        """Remember what was read; what was wanted and is not there, the run does not have."""
        for name in request:
            read, known = figures.get(name), self.figures.get(name)
            if read is not None and known is not None:
                read.at = {**known.at, **read.at}
            self.figures[name] = read

    def has_metric(self, name: str) -> bool:
        """It is known to have logged it."""
        return self.figures.get(name) is not None or name in self.summary.latest

    def number(self, term: Term) -> float | None:
        """Its value as a finite number; None where it has none."""
        value = self.value(term)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def goal(self, term: Term) -> str | None:
        """Which way is better for a metric, as far as this run says it."""
        figures, declared = self.figures.get(term.name), self.summary.manifest.goals
        in_stream = None if figures is None or term.name in declared else figures.goal
        return in_stream or goal_of(term.name, declared)

    def open(self) -> Run:
        """The run itself."""
        return Run.load(self.path)


class Selection(Sequence[RunRecord]):
    """Runs of a root, and what a column means among them."""

    def __init__(self, root: Path, records: Iterable[RunRecord]) -> None:
        self.root = root
        self.records = list(records)
        self._settings: dict[str, None] | None = None

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        return self.records[at]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self.records)

    def setting_names(self) -> list[str]:
        """Every setting that one of the runs has, in order of appearance."""
        if self._settings is None:
            self._settings = dict.fromkeys(name for record in self.records for name in record.settings)
        return list(self._settings)

    def term(self, column: Column | str) -> Term:
        """What a column means here."""
        column = Column.parse(column) if isinstance(column, str) else column
        return resolve(column, self.setting_names(), self._is_logged)

    def _is_logged(self, metric: str) -> bool:
        return any(metric in record.summary.latest for record in self.records)

    def read(self, terms: Iterable[Term], *, required: bool = True) -> None:
        """Have the values of these columns at hand. `required`: refuse a metric that none of the runs has."""
        terms = [term for term in terms if term.kind == "metric"]
        read_values(self.root, self.records, terms)
        for term in terms if required and self.records else ():
            if problem := self._problem(term):
                raise UsageError(problem)

    def _problem(self, term: Term) -> str | None:
        """Why a metric cannot be shown of any of the runs that were read; None where it can."""
        if not any(record.has_metric(term.name) for record in self.records):
            return f"no run here has a setting or metric {term.name!r}{self.suggestion(term.name)}"
        if term.statistic == "best" and not any(record.goal(term) for record in self.records):
            return f"which way is better for {term.name!r} is not known: say min({term.name}) or max({term.name})"
        return None

    def suggestion(self, name: str) -> str:
        """The end of an error about a name that no run has: what may have been meant, or some of what there is."""
        metrics = self.metric_names(_LOOKED_INTO)
        short = {setting.rpartition(".")[2]: setting for setting in self.setting_names()}
        known = [*metrics, *short, *self.setting_names(), *FIELDS]
        if close := near_words(name, known):
            return f"; did you mean {close[0]}?"
        shown = [metric for metric in metrics if not metric.startswith("sys/")][:8]
        return f"; there is {', '.join(shown)} …" if shown else ""

    def metric_names(self, most: int | None = None) -> list[str]:
        """The metrics of the runs, of the first `most` of them."""
        names: dict[str, None] = {}
        for record in islice(self.records, most):
            names |= dict.fromkeys(record.open().metrics().names())
        return list(names)

    def filter(self, query: Query, beside: Sequence[Column] = ()) -> Selection:
        """The runs that a query means; streams are read of those about which the rest of it does not decide.

        `beside`: columns that will be asked for next, so that a stream is read once for both.
        """
        if not self.records:
            return self
        terms = {comparison.column: self._term_of(query, comparison) for comparison in query.comparisons()}

        def value_of(record: RunRecord) -> Callable[[Column], object]:
            return lambda column: record.value(terms[column] if column in terms else Term("field", column.name))

        undecided = [record for record in self.records if query.fits(value_of(record)) is None]
        read_values(self.root, undecided, [*terms.values(), *self._metrics_of(beside)])
        for comparison in query.comparisons():
            self._require_compared(query, comparison, terms[comparison.column])
        return Selection(self.root, [record for record in self.records if query.fits(value_of(record))])

    def _metrics_of(self, columns: Sequence[Column]) -> list[Term]:
        """What of columns is a metric; one that means nothing is told of by whoever asks for it."""
        terms = []
        for column in columns:
            with suppress(UsageError):
                terms.append(self.term(column))
        return [term for term in terms if term.kind == "metric"]

    def _term_of(self, query: Query, comparison: Comparison) -> Term:
        try:
            return self.term(comparison.column)
        except UsageError as error:
            raise query.fail(comparison, str(error)) from None

    def _require_compared(self, query: Query, comparison: Comparison, term: Term) -> None:
        """Refuse a comparison with what no run has, so that a mistyped name is not simply an empty list."""
        if term.kind == "metric" and (problem := self._problem(term)):
            unread = [record for record in self.records if term.name not in record.figures][:_LOOKED_INTO]
            read_values(self.root, unread, [term])
            if unread and not self._problem(term):
                return
            raise query.fail(comparison, problem)

    def sorted_by(self, term: Term, *, reverse: bool = False) -> Selection:
        """In the order of a column, each in its own direction: metrics best first, all else ascending.

        What a run does not have comes last, whichever way.
        """
        self.read([term])
        descending = term.kind == "metric" and term.statistic != "first" and self.goal(term) == "max"
        known = [(key, record) for record in self.records if (key := sort_key(record.value(term))) is not None]
        missing = [record for record in self.records if sort_key(record.value(term)) is None]
        known.sort(key=lambda pair: pair[0], reverse=descending != reverse)
        return Selection(self.root, [record for _, record in known] + missing)

    def goal(self, term: Term) -> str | None:
        """Which way is better for a metric; None where no run says it, or they contradict each other."""
        goals = {goal for record in self.records if (goal := record.goal(term)) is not None}
        return next(iter(goals)) if len(goals) == 1 else None


def sort_key(value: object) -> tuple[int, float, str] | None:
    """By which values of a column are put in order: numbers first, then words; None for what is missing or NaN."""
    if value is None or value is UNREAD or value in ("", []):
        return None
    if isinstance(value, int | float):
        return (
            None if value != value else (0, float(value) if abs(value) < 1e300 else math.copysign(math.inf, value), "")
        )
    return 1, 0.0, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def select(
    store: RunStore,
    references: Sequence[str] = (),
    filters: Filters | None = None,
    *,
    beside: Sequence[Column] = (),
) -> Selection:
    """The runs of a store that are meant, oldest first: those named (all, without), as far as they fit the filters.

    `beside`: columns that will be asked of them next.
    """
    filters = filters or Filters()
    filters.check()
    query = None if filters.where is None else Query(filters.where)
    asked_for = query is not None and any(comparison.column == ARCHIVED for comparison in query.comparisons())
    archived = bool(references or filters.archived or asked_for)
    if references:
        runs = {str(run.path): run.path for reference in references for run in store.find_all(reference)}
        folders = list(runs.values())
    else:
        folders = list(store.folders())
    records = [
        RunRecord(summary)
        for summary in store.summarize_all(folders)
        if filters.fit_labels(summary) and (archived or not summary.manifest.archived)
    ]
    if not references:
        records.sort(key=lambda record: (record.summary.manifest.created_at, record.summary.run_id))
    selection = Selection(store.root, records)
    return selection if query is None else selection.filter(query, beside)


def read_values(
    root: Path, records: Sequence[RunRecord], terms: Iterable[Term], seconds: float | None = None
) -> list[RunRecord]:
    """Read the figures of metrics that are not at hand: from the index, else from the streams, by several processes.

    `seconds`: to spend on it, by this process alone. The records of which they could not be read in that time.
    """
    until = None if seconds is None else time.monotonic() + seconds
    metrics = [term for term in terms if term.kind == "metric"]
    needing = [record for record in records if any(record.value(term) is UNREAD for term in metrics)]
    if not needing:
        return []
    request: FigureRequest = {
        term.name: frozenset(other.step for other in metrics if other.name == term.name and other.step is not None)
        for term in metrics
    }
    index, unknown = FigureIndex(root), []
    for record in needing:
        stamp = stamp_of(record.path)
        known = index.get(record.path, stamp, request)
        if known is None:
            unknown.append((record, stamp))
        else:
            record.take_figures(request, known)

    def read(record: RunRecord) -> dict[str, MetricFigures]:
        return read_figures(record.path, request, foreign=record.summary.manifest.dialect not in ("linnet", "toy"))

    if until is None:
        results = in_processes([record for record, _ in unknown], read, dict[str, MetricFigures])
    else:
        # One at least, so that whoever asks again and again has all of them in the end.
        in_time = takewhile(lambda _: time.monotonic() < until, unknown[1:])
        results = [read(record) for record, _ in chain(unknown[:1], in_time)]
    for (record, stamp), figures in zip(unknown, results, strict=False):
        record.take_figures(request, figures or {})
        index.put(record.path, stamp, request, figures or {})
    index.save()
    return [record for record, _ in unknown[len(results) :]]
