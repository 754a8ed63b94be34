"""A heat map or a curve as plain values, so that the event of its picture has its numbers too; and back.

A PNG has nothing that could be read out in a terminal, or put on another ground.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import msgspec
import numpy as np

from linnet.board.figure.heat_map import HeatMap
from linnet.board.figure.scales import Scale
from linnet.board.figure.scatter import Group, Scatter, ScatterSeries

Figure: TypeAlias = HeatMap | Scatter
_MOST_CELLS = 20_000  # of a figure that goes into an event


class _Map(msgspec.Struct, tag_field="type", tag="heat_map"):
    values: list[list[float | None]]
    rows: list[str]
    columns: list[str]
    quantity: str
    title: str = ""
    row_label: str = ""
    column_label: str = ""
    low: float | None = None
    high: float | None = None
    percent: bool = True
    texts: list[list[str]] | None = None


class _Points(msgspec.Struct):
    label: str
    x: list[float]
    values: list[float | None]


class _Curves(msgspec.Struct, tag_field="type", tag="curves"):
    series: list[_Points]
    x_label: str
    y_label: str
    title: str = ""
    of: str = "models"


def figure_fields(figure: Figure) -> dict[str, Any] | None:
    """What an event says of a figure; None of one that is too large for an event, or whose points are many runs."""
    fields: _Map | _Curves
    if isinstance(figure, HeatMap):
        values = [[_finite(value) for value in row] for row in figure.values.tolist()]
        if sum(map(len, values)) > _MOST_CELLS:
            return None
        texts = None if figure.texts is None else [list(row) for row in figure.texts]
        labels = (figure.quantity, figure.title, figure.row_label, figure.column_label)
        scale = (figure.low, figure.high, figure.percent)
        fields = _Map(values, list(figure.rows), list(figure.columns), *labels, *scale, texts)
    else:
        if any(len(group.values) > 1 for group in figure.groups) or len(figure.groups) > _MOST_CELLS:
            return None
        series = [
            _Points(one.label, [group.x for group in one.groups], [_finite(group.mean) for group in one.groups])
            for one in figure.series
        ]
        fields = _Curves(series, figure.x_label, figure.y_label, figure.title, figure.of)
    plain: dict[str, Any] = msgspec.to_builtins(fields)
    return plain


def figure_of(fields: object) -> Figure | None:
    """The figure that an event tells of; None where it tells of none, or of one that does not fit together."""
    try:
        decoded = msgspec.convert(fields, _Map | _Curves)
    except (msgspec.ValidationError, RecursionError):
        return None
    return _heat_map(decoded) if isinstance(decoded, _Map) else _scatter(decoded)


def _heat_map(fields: _Map) -> HeatMap | None:
    wide, tables = len(fields.columns), (fields.values, *(() if fields.texts is None else (fields.texts,)))
    if not wide or not fields.rows or any(len(table) != len(fields.rows) for table in tables):
        return None
    if any(len(row) != wide for table in tables for row in table):
        return None
    values = np.array([[math.nan if value is None else value for value in row] for row in fields.values], np.float64)
    labels = (fields.quantity, fields.title, fields.row_label, fields.column_label)
    scale = (fields.low, fields.high, fields.percent)
    return HeatMap(values, fields.rows, fields.columns, *labels, *scale, fields.texts)


def _scatter(fields: _Curves) -> Scatter | None:
    series = []
    for at, points in enumerate(fields.series):
        pairs = [(x, value) for x, value in zip(points.x, points.values, strict=False) if value is not None]
        groups = [Group(x, f"{x:g}", (value,), (points.label,)) for x, value in pairs]
        series += [ScatterSeries(points.label, groups, at % 8, at)] if groups else []
    places = [group.x for one in series for group in one.groups]
    if not places:
        return None
    low, high = min(places), max(places)
    scale = Scale(low, high if high > low else low + 1.0)
    return Scatter(series, scale, fields.x_label, fields.y_label, fields.title, of=fields.of)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
