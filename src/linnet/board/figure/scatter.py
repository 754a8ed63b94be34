"""`Scatter`: a metric of many runs against one of their settings; runs that differ only in their seed are one group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from linnet.board.figure.scales import Scale, Tick, with_room
from linnet.board.plot import Range, span
from linnet.board.words import number, plain, shorten
from linnet.runs.columns import Column, Term
from linnet.runs.selection import RunRecord, Selection

_SPREAD_OVER = 10.0  # times from the least to the greatest from which on an axis is logarithmic
_MOST_TICKS = 8  # settings that are each labelled
_MOST_JOINED = 24  # groups that a line leads through
_LONGEST = 60


@dataclass(frozen=True)
class Group:
    """Runs of one setting, alike in all others but the seed: their values, the mean and the standard deviation.

    `x`: as the axis counts; `text`: what the setting is.
    """

    x: float
    text: str
    values: tuple[float, ...]
    runs: tuple[str, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def spread(self) -> float | None:
        """The sample's standard deviation; None of a single run."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


@dataclass(frozen=True)
class ScatterSeries:
    """Groups that belong together: one metric, of the runs that have one value of `by`.

    `joined`: there is one group at each of a few x, so a line may lead from one to the next; through the many points of
    a random search it would only tangle them.
    """

    label: str
    groups: list[Group]
    colour: int
    marker: int

    @property
    def joined(self) -> bool:
        return len({group.x for group in self.groups}) == len(self.groups) and 1 < len(self.groups) <= _MOST_JOINED


@dataclass(frozen=True)
class Scatter:
    """What is drawn, and what could not be.

    - `diverged`: x and name of runs whose metric is not finite.
    - `without`: of how many runs something is missing, by what it is.
    - `of`: what a point stands for, in words.
    """

    series: list[ScatterSeries]
    x_scale: Scale
    x_label: str
    y_label: str
    title: str
    log: bool = False
    y_range: tuple[float | None, float | None] = (None, None)
    diverged: list[tuple[float, str]] = field(default_factory=list)
    without: dict[str, int] = field(default_factory=dict)
    of: str = "runs"

    def counted(self, count: int) -> str:
        """`1 run`, `8 runs`."""
        return f"{count} {self.of if count != 1 else self.of.removesuffix('s')}"

    @property
    def groups(self) -> list[Group]:
        return [group for series in self.series for group in series.groups]

    def y_scale(self) -> Scale:
        """Over all values, and as far as means and deviations go."""
        ends = [value for group in self.groups for value in group.values]
        ends += [group.mean + sign * (group.spread or 0.0) for group in self.groups for sign in (-1, 1)]
        values = np.array([value for value in ends if not self.log or value > 0])
        low, high = span(np.log10(values) if self.log else values)
        chosen = [None if end is None else math.log10(end) if self.log else end for end in self.y_range]
        low, high = with_room((low, high), 0.08)
        return Scale(low if chosen[0] is None else chosen[0], high if chosen[1] is None else chosen[1], self.log)

    def ticks(self) -> Sequence[Tick]:
        """The settings themselves, where they are few; else none, for round numbers."""
        by_x = {group.x: group.text for group in self.groups}
        return sorted(by_x.items()) if len(by_x) <= _MOST_TICKS or self.x_scale.kind == "category" else ()


def build_scatter(
    selection: Selection,
    metrics: Sequence[Column],
    against: Column,
    by: Column | None = None,
    *,
    log: bool = False,
    log_x: bool | None = None,
    y_range: tuple[float | None, float | None] = (None, None),
    title: str | None = None,
) -> Scatter:
    """Read what is needed of the runs, and group it. `log_x`: None for a log axis where settings span decades."""
    y_terms = [Term("metric", column.name, column.statistic or "last", column.step) for column in metrics]
    x_term, by_term = selection.term(against), None if by is None else selection.term(by)
    selection.read([*y_terms, x_term, *([by_term] if by_term else [])])
    values = {record.path: record.value(x_term) for record in selection}
    positions, x_scale = _x_axis([value for value in values.values() if value is not None], log_x)
    without: dict[str, int] = {}
    diverged: list[tuple[float, str]] = []
    points: dict[tuple[str, int], dict[object, list[tuple[float, RunRecord]]]] = {}
    branches = _branches(selection, by_term)
    for record in selection:
        x = _position(values[record.path], positions, x_scale)
        for order, term in enumerate(y_terms):
            value = record.value(term)
            if x is None or not isinstance(value, int | float):
                missing = x_term.label if x is None else term.label
                without[missing] = without.get(missing, 0) + 1
            elif not math.isfinite(value) or (log and value <= 0):
                diverged.append((x, _title_of(record)))
            else:
                branch = points.setdefault((branches.get(record.path, ""), order), {})
                branch.setdefault((x, _kin(record, x_term)), []).append((float(value), record))
    several = len(metrics) > 1
    texts = {record.path: setting_text(values[record.path]) for record in selection}
    names = list(dict.fromkeys(branches.values())) or [""]
    series = [
        ScatterSeries(
            label=_label(name, y_terms[order].label if several or not name else "", by_term),
            groups=sorted((_group(x_kin, members, texts) for x_kin, members in groups.items()), key=lambda g: g.x),
            colour=(names.index(name) if by_term else order) % 8,
            marker=(order if by_term else 0) if len(names) <= 8 else names.index(name) // 8,
        )
        for (name, order), groups in sorted(points.items(), key=lambda item: (names.index(item[0][0]), item[0][1]))
    ]
    y_label = ", ".join(term.label for term in y_terms)
    heading = _shared_experiment(selection) if title is None else title
    return Scatter(series, x_scale, x_term.label, y_label, heading, log, y_range, diverged, without)


def setting_text(value: object) -> str:
    """A setting as it stands at an axis."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = "yes" if value is True else "no" if value is False else plain(value)
        return shorten(" ".join(map(str, value)) if isinstance(value, list) else text, _LONGEST)
    return f"{value:.4g}" if isinstance(value, float) and 0 < abs(value) < 1e-3 else number(value)


def _x_axis(values: list[object], log_x: bool | None) -> tuple[dict[str, float], Scale]:
    """The axis, and where texts stand on it; numbers stand where they are."""
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    if len(numbers) < len(values) or not numbers:
        texts = list(dict.fromkeys(setting_text(value) for value in sorted(values, key=_category_key)))
        return {text: float(at) for at, text in enumerate(texts)}, Scale(
            -0.5, max(0.5, len(texts) - 0.5), kind="category", categories=tuple(texts)
        )
    low, high = min(numbers), max(numbers)
    log = (low > 0 and high / low >= _SPREAD_OVER) if log_x is None else log_x and low > 0
    ends: Range = (math.log10(low), math.log10(high)) if log else (low, high)
    low, high = with_room(span(np.array(ends)), 0.06)
    return {}, Scale(low, high, log)


def _category_key(value: object) -> tuple[int, float, str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if is_number and isinstance(value, int | float) else (1, 0.0, setting_text(value))


def _position(value: object, positions: dict[str, float], scale: Scale) -> float | None:
    if value is None:
        return None
    if scale.kind == "category":
        return positions.get(setting_text(value))
    if not isinstance(value, int | float) or not math.isfinite(value) or (scale.log and value <= 0):
        return None
    return math.log10(value) if scale.log else float(value)


def _kin(record: RunRecord, x_term: Term) -> str:
    """Equal of runs that differ in nothing but their seed, and what is drawn against."""
    own = {
        name: value
        for name, value in record.settings.items()
        if name not in ("git", x_term.name) and not name.rpartition(".")[2].endswith("seed")
    }
    return repr(sorted(own.items()))


def _group(x_kin: object, members: list[tuple[float, RunRecord]], texts: dict[str, str]) -> Group:
    assert isinstance(x_kin, tuple)
    values = tuple(value for value, _ in members)
    runs = tuple(_title_of(record) for _, record in members)
    return Group(float(x_kin[0]), texts[members[0][1].path], values, runs)


def _branches(selection: Selection, by: Term | None) -> dict[str, str]:
    """Which series each run belongs to, in the order of the values."""
    if by is None:
        return {}
    values = {record.path: record.value(by) for record in selection}
    ordered = sorted(values, key=lambda path: _category_key(values[path]))
    return {path: setting_text("–" if values[path] is None else values[path]) for path in ordered}


def _label(branch: str, metric: str, by: Term | None) -> str:
    name = f"{by.label} {branch}" if by is not None else ""
    return plain("  ".join(filter(None, (name, metric))))


def _title_of(record: RunRecord) -> str:
    return plain(record.summary.manifest.name or record.summary.run_id)


def _shared_experiment(selection: Selection) -> str:
    experiments = {record.summary.manifest.experiment for record in selection}
    return plain(experiments.pop() or "") if len(experiments) == 1 else ""
