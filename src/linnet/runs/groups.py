"""`RunGroup`: runs that agree in some settings, and what of them is the mean and the spread: seeds of one recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from linnet.runs.columns import Term
from linnet.runs.selection import RunRecord, Selection, sort_key


class Spread(msgspec.Struct):
    """Numbers of several runs: `mean`, and `deviation`, the sample standard deviation, of two or more.

    `missing`: runs that have none, or NaN or an infinity; they are in neither.
    """

    count: int
    missing: int
    mean: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of(records: Sequence[RunRecord], term: Term) -> Spread:
        """Of one column of some runs."""
        numbers = [number for record in records if (number := record.number(term)) is not None]
        spread = Spread(len(numbers), len(records) - len(numbers))
        if numbers:
            spread.mean, spread.low, spread.high = _mean(numbers), min(numbers), max(numbers)
        if spread.mean is not None and len(numbers) > 1:
            scale = max(map(abs, numbers)) or 1.0  # so that no square is too large for a float
            squares = math.fsum((number / scale - spread.mean / scale) ** 2 for number in numbers)
            spread.deviation = math.sqrt(squares / (len(numbers) - 1)) * scale
        return spread


def _mean(numbers: Sequence[float]) -> float:
    return (
        math.fsum(number / len(numbers) for number in numbers)
        if max(map(abs, numbers)) > 1e300
        else (math.fsum(numbers) / len(numbers))
    )


class RunGroup:
    """The runs with the same values of some columns."""

    def __init__(self, values: list[object], records: list[RunRecord]) -> None:
        self.values = values
        self.records = records

    def spread(self, term: Term) -> Spread:
        """Mean and spread of a column."""
        return Spread.of(self.records, term)


def group_by(selection: Selection, terms: Sequence[Term]) -> list[RunGroup]:
    """Runs by the values of columns, in ascending order of those; what a run does not have comes last."""
    selection.read(terms)
    groups: dict[str, RunGroup] = {}
    for record in selection:
        values = [record.value(term) for term in terms]
        groups.setdefault(repr(values), RunGroup(values, [])).records.append(record)
    return sorted(groups.values(), key=lambda group: [_ascending(value) for value in group.values])


def sort_groups(groups: list[RunGroup], term: Term, *, descending: bool) -> list[RunGroup]:
    """Groups by the mean of a column; those without one come last, whichever way."""
    means = [(group.spread(term).mean, group) for group in groups]
    known = sorted((pair for pair in means if pair[0] is not None), key=lambda pair: pair[0] or 0.0, reverse=descending)
    return [group for _, group in known] + [group for mean, group in means if mean is None]


def _ascending(value: object) -> tuple[bool, tuple[int, float, str]]:
    key = sort_key(value)
    return key is None, key or (0, 0.0, "")
