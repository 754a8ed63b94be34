"""`linnet compare`: runs beside each other: what was set differently, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.board.run_columns import Cells, cells_of, differing_terms, fit, labels_of
from linnet.cli.completion import complete_run
from linnet.cli.metrics import series_summary
from linnet.cli.options import EVERY_RUN, AsJson, RunFilters, RunNames, RunsFolder, choose_runs, require_metrics
from linnet.cli.pictures import print_chart
from linnet.cli.printing import paint, print_json, print_table, theme_of_terminal, width, wrapped
from linnet.cli.run_table import print_columns, print_cut
from linnet.errors import UsageError
from linnet.runs import Run, RunStore
from linnet.runs.columns import Term
from linnet.runs.selection import RunRecord
from linnet.runs.settings import ABSENT
from linnet.runs.settings import differing as differing_of
from linnet.runs.settings import settings as settings_of
from linnet.runs.store import is_pattern

if TYPE_CHECKING:
    from linnet.runs import Metrics, Series
    from linnet.runs.metric_names import Goal

_MOST_COLUMNS = 4  # runs beside each other; more stand below each other
_LONGEST = 24  # characters of a value in a terminal
_LEAST_ROOM = 16  # characters of a column: `0.0002112* (0.01861)`
_GAP = "  "
_CHART = (100, 16)  # columns and lines of a chart at most


def compare(
    *run: RunNames,
    filters: RunFilters = EVERY_RUN,
    key: list[str] | None = None,
    baseline: Annotated[str | None, Parameter(completer=complete_run)] = None,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Compare runs: what was set differently, and what came of it.

    Args:
        key: Only these metrics, and their curves over each other.
        baseline: Hold each run against this one instead: its loss after as many tokens, and the verdict. Without runs:
            all that were trained beside it.
    """
    if baseline is not None:
        from linnet.cli.standings import print_standings

        if key:
            raise UsageError("--key goes with runs beside each other: leave out --baseline, or --key")
        print_standings(RunStore(runs), baseline, run, filters, json=json)
        return 0
    compared = _to_compare(RunStore(runs), run, filters)
    metrics = [one.metrics() for one in compared]
    settings = [settings_of(one.manifest) for one in compared]
    differing = differing_of(settings)
    known = list(dict.fromkeys(name for measured in metrics for name in measured.names()))
    require_metrics(key or (), known, "these runs have")
    names = [name for name in known if (name in key if key else not name.startswith("sys/"))]
    goals = {name: _goals(name, metrics) for name in names}
    common = {name: next(iter(goals[name])) if len(goals[name]) == 1 else None for name in names}
    of_tokens = _of_other_tokens(settings)
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
    room = _column_room([*differing, *names], len(compared))
    if len(compared) > _MOST_COLUMNS or (room is not None and room < _LEAST_ROOM):
        _print_rows(compared, metrics, common, of_tokens, last=bool(key))
    else:
        _print_beside(compared, metrics, common, of_tokens, settings, differing, room)
    if of_tokens.intersection(names):
        warning = "the vocabularies differ, and with them what a token is: compare bits_per_byte, not loss or ppl"
        print(paint(wrapped(warning, width(), ""), "yellow"))
    if key:
        _print_chart(compared, metrics, key)
    if conflicting := [name for name in names if len(goals[name]) > 1]:
        shown = words.plain(", ".join(conflicting))
        print(paint(f"no best of {shown}: its goal is min in one run and max in another", "yellow"))
    return 0


def _column_room(names: list[str], runs: int) -> int | None:
    """Characters for the column of each run beside the names of settings and metrics; None: as many as it likes."""
    return (width() - max(map(len, ("best (last)", *names)))) // runs - len(_GAP) if sys.stdout.isatty() else None


def _print_beside(
    compared: list[Run],
    metrics: list[Metrics],
    goals: dict[str, Goal | None],
    unmarked: set[str],
    settings: list[dict[str, object]],
    differing: list[str],
    room: int | None,
) -> None:
    """A column a run, of at most `room` characters."""
    ids = [run.id for run in compared]
    rows = [("status", *(run.status for run in compared))]
    rows += [(name, *(str(setting.get(name, ABSENT)) for setting in settings)) for name in differing]
    if room is not None:
        rows = [(name, *words.shorten_apart([words.plain(value) for value in values], room)) for name, *values in rows]
        ids = words.shorten_apart([words.plain(name) for name in ids], room)
    print_table(("setting", *ids), rows)
    if not differing:
        print(paint("the settings are the same", "dim"))
    if goals:
        print()
        body = [
            (name, *_best_cells(goal, [m.get(name) for m in metrics], marks=name not in unmarked))
            for name, goal in goals.items()
        ]
        print_table(("best (last)", *ids), body, right=range(1, len(ids) + 1))


def _print_rows(
    compared: list[Run], metrics: list[Metrics], goals: dict[str, Goal | None], unmarked: set[str], *, last: bool
) -> None:
    """A row a run: the settings that differ, then the best of every metric, or its last where none is better.

    `last`: the last of all of them too.
    """
    records = [RunRecord(run.summarize()) for run in compared]
    terminal = sys.stdout.isatty()
    settings = differing_terms(records)
    about = [Term("field", "run"), *settings, Term("field", "status")]
    measures = [Term("metric", name, "best") for name, goal in goals.items() if goal is not None]
    measures += [Term("metric", name) for name, goal in goals.items() if goal is None or last]
    labels = labels_of([*about, *measures])
    *columns, status = cells_of(records, about, longest=_LONGEST if terminal else None)
    for column in columns:
        column.label = words.plain(labels[column.term])
    for term in sorted(measures, key=lambda term: list(goals).index(term.name)):
        series, goal = [of_run.get(term.name) for of_run in metrics], goals[term.name]
        marks = term.name not in unmarked
        texts = _best_of(goal, series, marks) if goal is not None and term.statistic == "best" else _last_of(series)
        columns.append(Cells(term, words.plain(labels[term]), texts, True))
    important = [*settings[:3], *(term for term in measures if term.statistic == "best")]
    columns.append(status)
    shown, cut = fit(columns, width(), required=important) if terminal else (columns, [])
    print_columns(shown, [record.summary.status for record in records])
    print_cut(cut, how="a wider terminal shows more; --json all")


def _print_chart(compared: list[Run], metrics: list[Metrics], keys: list[str]) -> None:
    """The curves of all runs over each other, a chart a metric; each line ends in its run's letter."""
    from linnet.board.figure.chart import ChartOptions, Source, build_chart
    from linnet.board.figure.text_chart import LETTERS, text_lines

    sources = [Source(run, of_run) for run, of_run in zip(compared, metrics, strict=True)][: len(LETTERS)]
    columns = min(width(), _CHART[0])
    for name in keys:
        chart = build_chart(sources, [name], ChartOptions(), title="")
        if chart.panels:
            print()
            legend = min(len(compared), _CHART[1])
            print_chart(text_lines(chart, columns, _CHART[1] + legend), theme_of_terminal())
    if len(compared) > len(sources):
        print(paint(f"the curves of the first {len(sources)} of {len(compared)} runs are drawn", "dim"))


def _last_of(columns: list[Series | None]) -> list[str]:
    return [ABSENT if series is None or series.latest is None else words.number(series.latest[1]) for series in columns]


def _best_of(goal: Goal, columns: list[Series | None], marks: bool) -> list[str]:
    """The best value of each run; `marks`: the best of all is marked."""
    best = [None if series is None or (point := series.best_by(goal)) is None else point[1] for series in columns]
    known = [value for value in best if value is not None]
    top = (min(known) if goal == "min" else max(known)) if marks and len(known) > 1 else None
    return [f"{words.number(value)}{'*' if value is not None and value == top else ' '}" for value in best]


def _to_compare(store: RunStore, references: Sequence[str], filters: RunFilters) -> list[Run]:
    """The runs named; one that is named twice stands twice, so that each name has its column."""
    if filters or any(map(is_pattern, references)):
        compared = choose_runs(store, references, filters)
    else:
        compared = [store.find(reference) for reference in references] if len(references) > 1 else []
    if len(compared) < 2:
        count = len(compared) or len(references)
        raise UsageError(f"compare needs two runs or more, found {count}; `{words.listing(store.root)}` lists them")
    return compared


def _goals(name: str, metrics: list[Metrics]) -> set[Goal]:
    """Which way is better, as the runs say it; one that says nothing agrees with all."""
    return {goal for measured in metrics if name in measured and (goal := measured[name].goal) is not None}


def _of_other_tokens(settings: list[dict[str, object]]) -> set[str]:
    """The metrics that count by the token, of runs with different vocabularies: none of them is better by these."""
    vocabularies = {repr(setting["model.vocab"]) for setting in settings if "model.vocab" in setting}
    return {"loss", "validation/loss", "validation/ppl"} if len(vocabularies) > 1 else set()


def _best_cells(goal: Goal | None, columns: list[Series | None], *, marks: bool = True) -> list[str]:
    """Best and last value in each run; no best where no way is known to be better.

    `marks`: the best of all is marked.
    """
    best = [None if s is None or goal is None or (b := s.best_by(goal)) is None else b[1] for s in columns]
    known = [value for value in best if value is not None]
    top = (min(known) if goal == "min" else max(known)) if known else None
    cells = []
    for series, value in zip(columns, best, strict=True):
        if series is None:
            cells.append(ABSENT)
            continue
        mark = "*" if value is not None and value == top and marks and len(known) > 1 else " "
        last = words.number(series.latest[1] if series.latest else None)
        cells.append(f"{words.number(value)}{mark} ({last})")
    return cells
