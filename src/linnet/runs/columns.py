"""`Column`: one value of every run, by the words a person types for it, and what those words mean.

- what every run has: `run`, `name`, `status`, `archived`, `step`, `time`, `age` …
- a setting, by its dotted name or the last part of it: `config.lr`, `lr`
- a metric: `loss` (its last value), `best(validation/loss)`, `loss@200`
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

import msgspec

from linnet.errors import UsageError, suggestion
from linnet.runs.metric_names import goal_of
from linnet.runs.summary import RunSummary

Statistic = Literal["last", "best", "first", "min", "max"]
Kind = Literal["field", "setting", "metric"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
_CALL = re.compile(r"(?s)\s*([A-Za-z_]+)\s*\(\s*(.*?)\s*\)\s*")
_AT = re.compile(r"(?s)(.+)@([0-9]{1,18})")
_PREFERRED = ("config.", "model.")  # where a setting is meant of which only the last part is named


class Column(msgspec.Struct, frozen=True):
    """A column as it was typed. `statistic`, `step`: of a metric, where they were said; `quoted`: a plain name."""

    name: str
    statistic: Statistic | None = None
    step: int | None = None

    @staticmethod
    def parse(text: str) -> Column:
        """From `lr`, `best(validation/loss)`, `loss@200`; a name in quotes is taken to the letter."""
        text = text.strip()
        if (quoted := unquoted(text)) is not None:
            return Column(quoted)
        if (call := _CALL.fullmatch(text)) is not None:
            if call[1] not in STATISTICS:
                raise UsageError(f"{call[1]}() of a metric does not exist{suggestion(call[1], STATISTICS)}")
            name = unquoted(call[2])
            name = call[2] if name is None else name
            if not name:
                raise UsageError(f"{call[1]}() needs the name of a metric, as in {call[1]}(loss)")
            return Column(name, next(word for word in STATISTICS if word == call[1]))
        if (at := _AT.fullmatch(text)) is not None:
            name = unquoted(at[1])
            return Column(at[1] if name is None else name, step=int(at[2]))
        if not text:
            raise UsageError("the name of a column is empty")
        return Column(text)

    @property
    def text(self) -> str:
        """How it is written."""
        name = self.name if _is_plain(self.name) else f'"{self.name}"'
        if self.step is not None:
            return f"{name}@{self.step}"
        return name if self.statistic is None else f"{self.statistic}({name})"

    @property
    def is_metric(self) -> bool:
        """It can be nothing else."""
        return self.statistic is not None or self.step is not None


def unquoted(text: str) -> str | None:
    """What stands between quotes; None where there are none round all of it."""
    if len(text) >= 2 and text[0] in "\"'`" and text.find(text[0], 1) == len(text) - 1:
        return text[1:-1]
    return None


def split_columns(text: str) -> list[Column]:
    """A list with commas: `loss,best(validation/loss),lr`."""
    return [Column.parse(part) for part in split_words(text)]


def split_words(text: str) -> list[str]:
    """What stands between commas; those in quotes or parentheses belong to a name."""
    parts = re.findall(r"""(?:"[^"]*"|'[^']*'|`[^`]*`|\((?:"[^"]*"|'[^']*'|[^)])*\)|[^,])+""", text)
    return [part.strip() for part in parts if part.strip()]


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[\w./:+-]+", name) is not None


class Term(msgspec.Struct, frozen=True):
    """A column whose meaning is known: `name` is a field's, a setting's full dotted name, or a metric's."""

    kind: Kind
    name: str
    statistic: Statistic = "last"
    step: int | None = None

    @property
    def label(self) -> str:
        """What stands above it: of a setting the last part of its name."""
        if self.kind == "setting":
            return self.name.rpartition(".")[2] or self.name
        if self.step is not None:
            return f"{self.name}@{self.step}"
        return self.name if self.kind == "field" or self.statistic == "last" else f"{self.statistic}({self.name})"

    @property
    def column(self) -> str:
        """How it is typed, so that nothing else is meant."""
        if self.kind == "metric":
            return Column(self.name, None if self.step is not None else self.statistic, self.step).text
        return Column(self.name).text


def resolve(column: Column, settings: Iterable[str], is_metric: Callable[[str], bool]) -> Term:
    """What a column means: what every run has, else a setting, else a metric.

    Of a setting and a metric with one name, the metric counts where it is a result (`loss`, `accuracy`: one way is
    better), and the setting where it is not (`lr`). `settings`: the full names there are; `is_metric`: is there a
    metric of this name? Asked only where it decides.
    """
    if column.is_metric:
        return Term("metric", column.name, column.statistic or "last", column.step)
    if column.name in FIELDS:
        return Term("field", ALIASES.get(column.name, column.name))
    setting = find_setting(column.name, settings)
    if setting is None or (setting != column.name and goal_of(column.name, {}) and is_metric(column.name)):
        return Term("metric", column.name)
    return Term("setting", setting)


def find_setting(name: str, settings: Iterable[str]) -> str | None:
    """The full name of a setting: `lr` is `config.lr`. None where there is none; an error where there are several."""
    known = list(dict.fromkeys(settings))
    spelled = name.replace("-", "_")
    for spelling in dict.fromkeys((name, spelled)):
        if spelling in known:
            return spelling
        for prefix in _PREFERRED:
            if f"{prefix}{spelling}" in known:
                return f"{prefix}{spelling}"
        ends = [key for key in known if key.endswith(f".{spelling}")]
        if len(ends) > 1:
            raise UsageError(f"{name!r} could be any of {', '.join(ends[:5])}; say which")
        if ends:
            return ends[0]
    return None


def _age(summary: RunSummary) -> float:
    return max(0.0, time.time() - summary.last_event)


FIELDS: Mapping[str, Callable[[RunSummary], object]] = {
    "run": lambda summary: summary.run_id,
    "id": lambda summary: summary.run_id,
    "name": lambda summary: summary.manifest.name,
    "status": lambda summary: summary.status,
    "recipe": lambda summary: summary.manifest.recipe,
    "experiment": lambda summary: summary.manifest.experiment,
    "group": lambda summary: summary.manifest.group,
    "parent": lambda summary: summary.manifest.parent,
    "tag": lambda summary: summary.manifest.tags,
    "tags": lambda summary: summary.manifest.tags,
    "archived": lambda summary: summary.manifest.archived,
    "step": lambda summary: summary.step,
    "time": lambda summary: summary.t,
    "seconds": lambda summary: summary.t,
    "age": _age,
    "created": lambda summary: summary.manifest.created_at,
    "writer": lambda summary: summary.manifest.dialect,
}
ALIASES = {"id": "run", "tag": "tags", "seconds": "time"}
DURATIONS = ("time", "seconds", "age")
