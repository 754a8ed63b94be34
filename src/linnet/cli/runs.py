"""`linnet runs` and `note`: the runs of a folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from linnet.board import words
from linnet.board.run_columns import chosen_terms, default_terms, labels_of, main_terms
from linnet.cli.completion import complete_run
from linnet.cli.options import (
    EVERY_RUN,
    AsJson,
    RunFilters,
    RunNames,
    RunsFolder,
    choose_named_runs,
    open_store,
)
from linnet.cli.printing import print_json
from linnet.cli.run_table import group_json, is_measured, print_csv, print_groups, print_groups_csv, print_runs
from linnet.cli.streams import lasting_output
from linnet.errors import UsageError
from linnet.runs import Run, RunError, RunStore, RunSummary, add_note
from linnet.runs.columns import Column, Term, split_columns, split_words
from linnet.runs.family import FamilyMember, family_tree
from linnet.runs.groups import group_by, sort_groups
from linnet.runs.metric_names import goal_of
from linnet.runs.selection import RunRecord, Selection, select

_LABELS = ("name", "experiment", "group", "parent", "parent_step", "recipe", "tags", "archived")


def runs(
    *run: RunNames,
    filters: RunFilters = EVERY_RUN,
    columns: str | None = None,
    sort: Annotated[str, Parameter(show_default=True, allow_leading_hyphen=True)] = "time",
    reverse: bool = False,
    by: str | None = None,
    limit: int | None = None,
    tree: bool = False,
    csv: bool = False,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """List runs, a row each: how they stand, the settings that differ, the metrics you choose.

    Args:
        columns: Metrics, settings, labels to show: 'loss,best(acc),loss@200,lr'. Without settings, those that differ.
        sort: time (newest last), name, loss (best first), or any column: metrics best first, settings ascending.
        reverse: The other way round; so is a minus before the column, as in --sort -lr.
        by: Group runs by a column, or several with commas: how many, and mean ± standard deviation of the metrics.
        limit: Only the first so many rows.
        tree: Each run below the one it was forked from (linnet train --from RUN).
        csv: Every column with all digits, as CSV.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be 1 or more, found {limit}")
    if csv and json:
        raise UsageError("--csv and --json are two forms of the same; give one of them")
    if tree and by is not None:
        raise UsageError("--tree and --by order the same rows in two ways; give one of them")
    store = open_store(runs)
    selection = select(store, run, filters, beside=_named(columns, sort, by))
    chosen = [] if columns is None else _terms("columns", columns, selection)
    orders = _orders(sort, reverse, selection)
    if by is not None:
        return _print_groups(selection, by, chosen, orders, limit, csv=csv, json=json)
    sorted_by = [order.term for order in orders if order.term is not None]
    terms = chosen_terms(selection, chosen) if chosen else default_terms(selection, sorted_by)
    selection = _sorted(selection, orders, limit)
    if json:
        print_json([_record_json(record, chosen) for record in selection])
    elif csv:
        print_csv(selection, terms)
    elif not selection:
        folder = f"the folder {words.plain(store.root)}"
        print(f"No run in {folder} fits these filters." if any(store.folders()) else f"There are no runs in {folder}.")
    elif tree:
        _print_tree(selection, terms, chosen=chosen or sorted_by)
    else:
        print_runs(selection, terms, chosen=chosen or sorted_by)
    return 0


def _print_tree(selection: Selection, terms: Sequence[Term], *, chosen: Sequence[Term] = ()) -> None:
    """A row a run, families together; children say at which step of their parent they began."""
    members = family_tree(record.summary for record in selection)
    by_path = {record.path: record for record in selection}
    ordered = Selection(selection.root, (by_path[member.summary.path] for member in members))
    print_runs(ordered, terms, chosen=chosen, names=[_branch_name(member) for member in members])


def _branch_name(member: FamilyMember) -> str:
    step = member.summary.manifest.parent_step
    at = f" @{step}" if step is not None and member.gone is None else ""
    gone = f" (from {words.plain(member.gone)}, which is gone)" if member.gone is not None else ""
    return f"{member.lines}{words.plain(member.summary.run_id)}{at}{gone}"


@dataclass(frozen=True)
class _Order:
    """One column of `--sort`; without a term one of the orders that are no column: time, name, loss."""

    name: str
    term: Term | None
    reverse: bool


def _named(*texts: str | None) -> list[Column]:
    """The columns that flags name, as far as they can be understood."""
    named: list[Column] = []
    for word in (word for text in texts for word in split_words(text or "")):
        with suppress(UsageError):
            named.append(Column.parse(word.removeprefix("-")))
    return named


def _terms(flag: str, text: str, selection: Selection) -> list[Term]:
    """What the columns that a flag names mean, read; an error where no run has one of them."""
    try:
        terms = [selection.term(column) for column in split_columns(text)]
        selection.read(terms)
    except UsageError as error:
        raise UsageError(f"`{flag}` {text!r}: {error}") from None
    if not terms:
        raise UsageError(f"`{flag}` names no column; name some, as in loss,lr")
    return terms


def _orders(sort: str, reverse: bool, selection: Selection) -> list[_Order]:
    """The columns of `--sort`, the one that counts most first."""
    orders = []
    for part in split_words(sort):
        name = part.removeprefix("-")
        term = None if name in _ORDERS else _terms("sort", name, selection)[0]
        orders.append(_Order(name, term, reverse != part.startswith("-")))
    return orders


def _sorted(selection: Selection, orders: Sequence[_Order], limit: int | None) -> Selection:
    """The first so many runs in an order."""
    for order in reversed(orders):
        if order.term is not None:
            selection = selection.sorted_by(order.term, reverse=order.reverse)
        else:
            records = sorted(selection.records, key=_ORDERS[order.name], reverse=order.reverse)
            selection = Selection(selection.root, records)
    return Selection(selection.root, selection.records[:limit])


def _print_groups(
    selection: Selection,
    by: str,
    chosen: Sequence[Term],
    orders: Sequence[_Order],
    limit: int | None,
    *,
    csv: bool,
    json: bool,
) -> int:
    """A row a group of runs that agree in some columns."""
    keys = _terms("by", by, selection)
    sorted_by = [order.term for order in orders if order.term is not None and order.term not in keys]
    means = [*(chosen or main_terms(selection)), *(term for term in sorted_by if term.kind == "metric")]
    means = [term for term in dict.fromkeys(means) if term not in keys and is_measured(term)]
    groups = group_by(selection, keys)
    for order in reversed(orders):
        term = main_terms(selection)[0] if order.name == "loss" and order.term is None else order.term
        if term is not None and term not in keys:
            groups = sort_groups(groups, term, descending=(selection.goal(term) == "max") != order.reverse)
        elif order.reverse:
            groups = groups[::-1]
    groups = groups[:limit]
    if json:
        print_json([group_json(group, keys, means) for group in groups])
    elif csv:
        print_groups_csv(groups, keys, means)
    elif not groups:
        print(f"No run in the folder {words.plain(selection.root)} fits.")
    else:
        print_groups(groups, keys, means)
    return 0


def _record_json(record: RunRecord, chosen: Sequence[Term]) -> dict[str, object]:
    """A run as the listing gives it: with all its settings, and the columns that were chosen."""
    labels = labels_of(chosen)
    columns = {"columns": {labels[term]: record.value(term) for term in chosen}} if chosen else {}
    return {**as_json(record.summary), "settings": record.settings, **columns}


def as_json(summary: RunSummary) -> dict[str, object]:
    """A run as every listing gives it."""
    manifest = summary.manifest
    return {
        "run_id": summary.run_id,
        "path": summary.path,
        "status": summary.status,
        "step": summary.step,
        "total_steps": manifest.total_steps,
        "metric": summary.metric,
        "last": summary.value,
        "seconds": summary.t,
        "created_at": manifest.created_at,
        "modified_at": summary.modified,
        **{name: getattr(manifest, name) for name in _LABELS},
        "writer": manifest.dialect if summary.warning is None else None,
        "warning": summary.warning,
    }


def _best_first(summary: RunSummary) -> tuple[int, float]:
    """By the last value of the metric shown, whichever way is better for it: losses, then scores, then the rest."""
    if summary.value is None or summary.metric is None or summary.value != summary.value:
        return 3, 0.0
    goals = summary.manifest.goals
    if summary.manifest.dialect == "munin":  # which declares its goals in the stream
        goals = Run.load(summary.path).metrics().goals
    goal = goal_of(summary.metric, goals)
    return (0, summary.value) if goal == "min" else (1, -summary.value) if goal == "max" else (2, 0.0)


_ORDERS: dict[str, Callable[[RunRecord], Any]] = {
    "time": lambda record: (record.summary.manifest.created_at, record.summary.run_id),
    "name": lambda record: record.summary.run_id,
    "loss": lambda record: _best_first(record.summary),
}


def note(
    *words_: Annotated[
        str, Parameter(name="RUN… TEXT", help="The runs, then what to say, in quotes.", completer=complete_run)
    ],
    step: int | None = None,
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
) -> int:
    """Add a remark to runs, while they train or long after.

    Args:
        step: The step it is about.
    """
    folder = words.runs_flag(runs)
    if not words_:
        raise UsageError('note needs a run and the text: linnet note latest "what to say"')
    *references, text = words_
    if not references and not filters:
        example = f'linnet note {text} "what to say" {folder}'.rstrip()
        raise UsageError(f"the text of the note is missing: {example}")
    if not text.strip():
        raise UsageError("the note is empty")
    store = RunStore(runs)
    first, *others = references or [""]
    try:
        for reference in others:
            store.find_all(reference)
    except RunError:
        example = f"linnet note {first} {shlex.quote(' '.join([*others, text]))} {folder}".rstrip()
        raise UsageError(f"put the note in quotes: {example}") from None
    chosen = choose_named_runs(store, references, filters, "note")
    with lasting_output():
        for noted in chosen:
            add_note(noted, text, step)
            print(f"noted on {words.bounded(noted.id)}")
    return 0
