"""A table of runs on the screen: a row a run or a group, columns that fit, and what was left out; also as CSV."""

from __future__ import annotations

import csv
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from linnet.board import words
from linnet.board.run_columns import ABOUT, MAIN, Cells, cells_of, differing_terms, fit, labels_of, value_text
from linnet.cli.printing import paint, paint_status, width
from linnet.runs.columns import Term
from linnet.runs.groups import RunGroup, Spread
from linnet.runs.selection import RunRecord, Selection

_LONGEST = 24  # characters of a value in a terminal
_GAP = "  "
_STATUS = Term("field", "status")
_RUN = Term("field", "run")


def print_runs(
    selection: Selection, terms: Sequence[Term], *, chosen: Sequence[Term] = (), names: Sequence[str] = ()
) -> None:
    """A row a run. In a terminal the columns that fit, those that were `chosen` first; in a pipe all of them.

    `names`: what stands for each run in its first column, where that is not its id.
    """
    terminal = sys.stdout.isatty()
    columns = cells_of(selection.records, terms, longest=_LONGEST if terminal else None)
    if names:
        columns = [replace(column, texts=list(names)) if column.term == _RUN else column for column in columns]
    shown, cut = fit(columns, width(), required=chosen) if terminal else (columns, [])
    print_columns(shown, status=[record.summary.status for record in selection])
    print_cut(cut)
    for record in selection:
        if record.summary.warning is not None:
            print(paint(f"! {words.bounded(record.summary.run_id)}: {record.summary.warning}", "yellow"))


def print_columns(columns: Sequence[Cells], status: Sequence[str] = ()) -> None:
    """Columns that line up; Rich's table takes 0.4 s for 500 runs."""
    heads = [words.padded(column.label, column.width, column.right) for column in columns]
    padded = []
    for column in columns:
        wide = column.width
        texts = [words.padded(text, wide, column.right) for text in column.texts]
        if column.term == _STATUS and sys.stdout.isatty():
            texts = [paint_status(word) + " " * (wide - len(word)) for word in status]
        padded.append(texts)
    print(paint(_GAP.join(heads).rstrip(), "dim"))
    print("\n".join(_GAP.join(row).rstrip() for row in zip(*padded, strict=True)))


def print_cut(cut: Sequence[Cells], how: str = "") -> None:
    """Which columns were left out, and how to see them; by default the flags by which `runs` has some, or all."""
    if not cut:
        return
    labels = [column.label for column in cut]
    shown = ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
    examples = shlex.quote(",".join([name for column in cut for name in _typed(column)][:3]))
    text = f"no room for {shown} ({how or f'--columns {examples} shows them; --csv all'})"
    print("\n".join(paint(line, "dim") for line in textwrap.wrap(text, width(), break_on_hyphens=False)))


def _typed(column: Cells) -> tuple[str, ...]:
    """How a column is asked for."""
    if column.term == ABOUT:
        return "experiment", "group", "tags"
    if column.term in MAIN:
        return ()
    return (column.term.column if column.term.kind == "metric" else column.label,)


def print_csv(selection: Selection, terms: Sequence[Term]) -> None:
    """A row a run with all columns and all digits, for other programs."""
    fields: dict[str, Callable[[RunRecord], object]] = {
        "run": lambda record: record.summary.run_id,
        "status": lambda record: record.summary.status,
        "step": lambda record: record.summary.step,
        "total_steps": lambda record: record.summary.manifest.total_steps,
        "metric": lambda record: record.summary.metric,
        "last": lambda record: record.summary.value,
        "seconds": lambda record: record.summary.t,
        "created_at": lambda record: record.summary.manifest.created_at,
        "name": lambda record: record.summary.manifest.name,
        "experiment": lambda record: record.summary.manifest.experiment,
        "group": lambda record: record.summary.manifest.group,
        "recipe": lambda record: record.summary.manifest.recipe,
        "tags": lambda record: record.summary.manifest.tags,
    }
    extra = [
        term for term in terms if term not in (ABOUT, *MAIN) and not (term.kind == "field" and _is_in(term, fields))
    ]
    labels = labels_of(extra)
    rows = ([get(record) for get in fields.values()] + [record.value(term) for term in extra] for record in selection)
    write_csv([*fields, *(labels[term] for term in extra)], rows)


def _is_in(term: Term, fields: dict[str, Callable[[RunRecord], object]]) -> bool:
    """Is a column among those that every row has? An age is true for a moment only."""
    known = {"time": "seconds", "created": "created_at", "age": "seconds"}
    return term.kind == "field" and known.get(term.name, term.name) in fields


def write_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows with all digits; names steer no terminal, in a pipe neither."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([words.plain(name) for name in head])
    writer.writerows([[cell(value) for value in row] for row in rows])


def cell(value: object) -> object:
    """A value in CSV: the shortest text that reads back as the same number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return words.plain(" ".join(map(str, value)))
    return repr(value) if isinstance(value, float) else "" if value is None else words.plain(value)


# -- groups --------------------------------------------------------------------------------------------------------


def is_measured(term: Term) -> bool:
    """Has a group a mean of this column?"""
    return term.kind != "field" or term.name in ("step", "time", "age")


def print_groups(groups: Sequence[RunGroup], keys: Sequence[Term], terms: Sequence[Term]) -> None:
    """A row a group: the values they agree in, how many runs, mean ± sample standard deviation of each column."""
    labels = labels_of([*keys, *terms])
    columns = [
        Cells(key, words.plain(labels[key]), [_key_text(group.values[at], key) for group in groups], False)
        for at, key in enumerate(keys)
    ]
    columns.append(Cells(Term("field", "n"), "runs", [str(len(group.records)) for group in groups], True))
    columns += [
        Cells(term, words.plain(labels[term]), [spread_text(group.spread(term), term) for group in groups], True)
        for term in terms
    ]
    shown, cut = (
        (columns, []) if not sys.stdout.isatty() else fit(columns, width(), required=[*keys, Term("field", "n")])
    )
    print_columns(shown)
    print_cut(cut)
    if varied := _varied(groups, keys):
        print(paint(words.shorten(f"mean ± standard deviation over {varied}", width()), "dim"))


def _key_text(value: object, key: Term) -> str:
    return words.shorten(words.plain(value_text(value, key)), 10 * _LONGEST)


def spread_text(spread: Spread, term: Term) -> str:
    """`0.512 ± 0.004`; with how many of the runs have a number, where not all do."""
    if spread.mean is None:
        return "–"
    text = value_text(spread.mean, term)
    if spread.deviation is not None:
        is_time = term.kind == "field" and term.name in ("time", "age")
        text += f" ± {words.duration(spread.deviation) if is_time else words.number(spread.deviation, 2)}"
    return f"{text} ({spread.count} of {spread.count + spread.missing})" if spread.missing else text


def _varied(groups: Sequence[RunGroup], keys: Sequence[Term]) -> str:
    """The settings in which runs of one group differ."""
    names = dict.fromkeys(term for group in groups for term in differing_terms(group.records) if term not in keys)
    labels = [words.plain(term.label) for term in names]
    return ", ".join(labels[:6]) + (f" and {len(labels) - 6} more" if len(labels) > 6 else "")


def print_groups_csv(groups: Sequence[RunGroup], keys: Sequence[Term], terms: Sequence[Term]) -> None:
    """The same with all digits: mean and standard deviation in columns of their own."""
    labels = labels_of([*keys, *terms])
    head = [*(labels[key] for key in keys), "runs"]
    for term in terms:
        head += [labels[term], f"{labels[term]} std", f"{labels[term]} n"]
    rows = []
    for group in groups:
        row: list[object] = [*group.values, len(group.records)]
        for term in terms:
            spread = group.spread(term)
            row += [spread.mean, spread.deviation, spread.count]
        rows.append(row)
    write_csv(head, rows)


def group_json(group: RunGroup, keys: Sequence[Term], terms: Sequence[Term]) -> dict[str, object]:
    """A group as JSON has it."""
    labels = labels_of([*keys, *terms])
    return {
        "by": {labels[key]: value for key, value in zip(keys, group.values, strict=True)},
        "runs": [record.summary.run_id for record in group.records],
        "columns": {labels[term]: group.spread(term) for term in terms},
    }
