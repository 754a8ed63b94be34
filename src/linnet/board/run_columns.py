"""The columns of a table of runs: which there are, what stands in them, and which of them fit.

The same for `linnet runs`, `linnet compare` and the board's list: what a run is called, its metrics, and the settings
in which the runs differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from linnet.board import words
from linnet.runs.columns import Term
from linnet.runs.query import UNREAD
from linnet.runs.selection import RunRecord, Selection
from linnet.runs.settings import ABSENT

ABOUT = Term("field", "about")  # name, recipe, experiment, group, tags: in one column
ARCHIVED = Term("field", "archived")
MAIN = (Term("field", "metric"), Term("field", "last"))  # the main metric of each run, where those differ
_LEFT = frozenset(("run", "name", "status", "archived", "recipe", "experiment", "group", "parent", "tags", "writer"))
_LEFT_OUT = frozenset(("recipe", "experiment", "total_steps"))  # settings that other columns tell
_LAST = ("seed", "git")  # of the settings that differ
_FIRST_SETTINGS = 3  # that are more important than the step
_GAP = 2


@dataclass(eq=False)
class Cells:
    """One column as it is shown: its head, the text of each row, and whether it is set to the right."""

    term: Term
    label: str
    texts: list[str]
    right: bool

    @property
    def width(self) -> int:
        """Columns of a terminal that it takes."""
        return max(map(words.cells, (self.label, *self.texts)))


def default_terms(selection: Selection, beside: Sequence[Term] = ()) -> list[Term]:
    """What a table shows when nobody chose: how each run stands, its main metric, the settings that differ.

    Whether it is archived, where one of them is. `beside`: what it is sorted by; an order that one does not see is a
    riddle.
    """
    names = [Term("field", name) for name in ("run", "status", "step")]
    if any(record.summary.manifest.archived for record in selection):
        names.insert(2, ARCHIVED)
    ends = [Term("field", name) for name in ("time", "age")]
    terms = [*names, *main_terms(selection), *beside, *differing_terms(selection), *ends, ABOUT]
    return list(dict.fromkeys(terms))


def chosen_terms(selection: Selection, chosen: Sequence[Term]) -> list[Term]:
    """The run and the columns somebody chose. The settings that differ come along, unless settings are among them."""
    beside = [] if any(term.kind == "setting" for term in chosen) else differing_terms(selection)
    return list(dict.fromkeys([Term("field", "run"), *chosen, *beside]))


def main_terms(selection: Selection) -> list[Term]:
    """The column of the main metric; two, with its name, where the runs have different ones."""
    metrics = {record.summary.metric for record in selection if record.summary.metric is not None}
    return [Term("metric", metrics.pop())] if len(metrics) == 1 else list(MAIN)


def differing_terms(records: Sequence[RunRecord]) -> list[Term]:
    """The settings in which runs differ: those of most runs first, then seeds, then what only follows another one.

    Last those that some runs do not have at all and the others agree in: a loop of one's own has none of a training's.
    """
    first = records[0].summary.manifest if records else None
    if first is None or all(
        record.summary.manifest.config == first.config and record.summary.manifest.model == first.model
        for record in records
    ):
        return []  # the usual case of thousands of runs, told without taking their settings apart
    count: dict[str, int] = {}
    values: dict[str, object] = {}  # of the first run that has it
    varied: set[str] = set()
    for record in records:
        for name, value in record.settings.items():
            if name not in count:
                count[name], values[name] = 1, value
                continue
            count[name] += 1
            if value is not values[name] and name not in varied and repr(value) != repr(values[name]):
                varied.add(name)
    names = [name for name in values if name not in _LEFT_OUT and (name in varied or count[name] < len(records))]
    following = {name for name in names if any(_follows(name, other, records) for other in names)}
    names.sort(key=lambda name: (name not in varied, name in following, name.rpartition(".")[2] in _LAST, -count[name]))
    return [Term("setting", name) for name in names]


def _follows(name: str, leading: str, records: Sequence[RunRecord]) -> bool:
    """Is a setting named after another one, and the same wherever that is? `lr_embedding` is, where `lr` decides it."""
    if not name.startswith(f"{leading}_"):
        return False
    values: dict[str, str] = {}
    for record in records:
        value = repr(record.settings.get(name))
        if values.setdefault(repr(record.settings.get(leading)), value) != value:
            return False
    return True


def text_of(record: RunRecord, term: Term) -> str:
    """What stands in a cell, whole."""
    summary = record.summary
    if term == ABOUT:
        return _about(record)
    if term == MAIN[0]:
        return summary.metric or ABSENT
    if term == MAIN[1]:
        return words.number(summary.value)
    if term == ARCHIVED:
        return "yes" if summary.manifest.archived else ABSENT
    if term == Term("field", "step"):
        step, total = words.number(summary.step), summary.manifest.total_steps
        return f"{step}/{words.number(total)}" if total else step
    return value_text(record.value(term), term)


def value_text(value: object, term: Term) -> str:
    """A value of a column for people."""
    if value is None or value is UNREAD or value == []:
        return ABSENT
    if term.kind == "field":
        if term.name in ("time", "age") and isinstance(value, int | float):
            return words.duration(value)
        if term.name == "created" and isinstance(value, int | float):
            return words.moment(value, "%Y-%m-%d %H:%M")
        if isinstance(value, list):
            return " ".join(f"#{tag}" for tag in value)
    if isinstance(value, float) and term.kind == "setting":
        return f"{value:.6g}"
    if isinstance(value, bool) or (isinstance(value, int | float) and term.kind != "setting"):
        return words.number(value)
    return str(value)


def _about(record: RunRecord) -> str:
    manifest, folder = record.summary.manifest, PurePath(record.path).name
    moved = f"in {folder}" if folder not in ("", record.summary.run_id) else None  # copied: the id alone misleads
    labels = [manifest.name, manifest.recipe, manifest.experiment, manifest.group]
    return " · ".join(word for word in (*labels, *(f"#{tag}" for tag in manifest.tags), moved) if word)


def labels_of(terms: Sequence[Term]) -> dict[Term, str]:
    """What stands above each column; where two would be called alike, each by how it is typed in full."""
    short = [term.label for term in terms]
    return {term: term.label if short.count(term.label) == 1 else term.column for term in terms}


def cells_of(records: Sequence[RunRecord], terms: Sequence[Term], *, longest: int | None = None) -> list[Cells]:
    """The columns with the text of every run; `longest`: characters of one that are shown."""
    labels = labels_of(terms)
    columns = []
    for term in terms:
        texts = [words.plain(text_of(record, term)) for record in records]
        if longest is not None and term not in (ABOUT, Term("field", "run")):
            texts = [words.shorten(text, longest) for text in texts]
        columns.append(Cells(term, words.plain(labels[term]), texts, is_right(term, records)))
    return columns


def is_right(term: Term, records: Sequence[RunRecord]) -> bool:
    """Is a column set to the right, as numbers are?"""
    if term.kind == "setting":
        return all(isinstance(record.settings.get(term.name, 0), int | float) for record in records)
    return term.name not in _LEFT and term not in (ABOUT, MAIN[0])


def fit(columns: Sequence[Cells], room: int, *, required: Sequence[Term] = ()) -> tuple[list[Cells], list[Cells]]:
    """The columns that fit into so many characters, in their order, and those that do not.

    The run, then what was chosen (`required`), then by what tells most. Its id, and what it is about, may be cut.
    """
    by_importance = sorted(columns, key=lambda column: _importance(column, columns, required))
    room_left, shown = room, list[Cells]()
    for column in by_importance:
        least = column.width
        if column.term == Term("field", "run"):
            least = min(column.width, max(12, room * 2 // 5))
        elif column.term == ABOUT:
            least = min(column.width, 12)
        if least + (_GAP if shown else 0) > room_left:
            continue
        room_left -= least + (_GAP if shown else 0)
        shown.append(column)
    for column in shown:
        least = min(column.width, max(12, room * 2 // 5)) if column.term == Term("field", "run") else 12
        if column.term in (ABOUT, Term("field", "run")) and column.width > least:
            wide = min(column.width, least + room_left)
            room_left -= wide - least
            column.texts = [words.shorten(text, wide) for text in column.texts]
    return [column for column in columns if column in shown], [column for column in columns if column not in shown]


def _importance(column: Cells, columns: Sequence[Cells], required: Sequence[Term]) -> tuple[int, int]:
    at = next(index for index, other in enumerate(columns) if other is column)
    if column.term == Term("field", "run"):
        return 0, at
    if column.term in required:
        return 1, at
    if column.term in (Term("field", "status"), ARCHIVED):
        return 2, at
    if column.term.kind == "metric" or column.term in MAIN:
        return 3, at
    if column.term.kind == "setting":
        before = sum(other.term.kind == "setting" for other in columns[:at])
        return (4 if before < _FIRST_SETTINGS else 6), at
    order: Mapping[str, int] = {"step": 5, "age": 7, "time": 8}
    return order.get(column.term.name, 9), at
