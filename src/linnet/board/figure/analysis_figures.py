"""What analyses found, as figures: from the numbers that `--json` prints and `--record` keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.board.figure.heat_map import HeatMap
from linnet.board.figure.scales import Scale
from linnet.board.figure.scatter import Group, Scatter, ScatterSeries
from linnet.board.words import visible_blanks

Figure: TypeAlias = HeatMap | Scatter
_Table: TypeAlias = list[list[float | None]]


class _Cka(msgspec.Struct):
    rows: list[str]
    columns: list[str]
    cka: _Table
    a: str = ""
    b: str = ""


class _Drift(msgspec.Struct):
    steps: list[int]
    layers: list[str]
    distance: _Table
    run: str = ""
    origin: str = "the first weights"


class _Line(msgspec.Struct):
    alphas: list[float]
    losses: list[float | None]
    before: list[float | None] | None = None
    a: str = ""
    b: str = "the other"


class _Word(msgspec.Struct):
    text: str
    probability: float | None


class _Words(msgspec.Struct):
    tokens: list[str]
    layers: list[str]
    words_LTK: list[list[list[_Word]]]
    model: str = ""


class _Head(msgspec.Struct):
    heads: list[list[list[float]]]


class _Attention(msgspec.Struct):
    tokens: list[str]
    layers: list[_Head]
    model: str = ""


def figure_of(kind: str, numbers: dict[str, Any] | None) -> Figure | None:
    """The figure of a finding; None where its numbers are not there, or do not fit together."""
    if numbers is None or kind not in _FIGURES:
        return None
    fields, draw = _FIGURES[kind]
    try:
        return draw(msgspec.convert(numbers, fields))
    except (msgspec.ValidationError, ValueError, RecursionError):
        return None


def visible_token(token: str) -> str:
    """A token with its blanks and line ends to be seen."""
    return visible_blanks(token) or "∅"


def _cka(fields: _Cka) -> HeatMap:
    title = f"CKA of {fields.a} and {fields.b}" if fields.a != fields.b else f"CKA of the layers of {fields.a}"
    across = f"layers of {fields.b}" if fields.a != fields.b else "layers"
    values = _values(fields.cka, fields.rows, fields.columns)
    return HeatMap(values, fields.rows, fields.columns, "CKA", title, "layer", across, low=0.0, high=1.0)


def _drift(fields: _Drift) -> HeatMap:
    """The scale is that of the layers: embedding and head, the outer rows, may be beyond."""
    steps = [f"{step:,}" for step in fields.steps]
    values = _values(fields.distance, fields.layers, steps)
    inner = values[1:-1][np.isfinite(values[1:-1])]
    high = float(inner.max()) if inner.size and inner.max() > 0 else None
    title = f"{fields.run}: distance from {fields.origin}"
    return HeatMap(values, fields.layers, steps, "distance", title, "layer", "step", low=0.0, high=high)


def _line(fields: _Line) -> Scatter:
    aligned = fields.before is not None
    curves = [("aligned" if aligned else "loss", fields.losses), *([("as they are", fields.before)] if aligned else [])]
    series = []
    for at, (label, losses) in enumerate(curves):
        pairs = zip(fields.alphas, losses or [], strict=True)
        groups = [Group(a, f"{a:g}", (loss,), (label,)) for a, loss in pairs if loss is not None]
        series += [ScatterSeries(label, groups, at, at)] if groups else []
    if not series:
        raise ValueError("no loss is known")
    title = f"{fields.a} → {fields.b}" if fields.a else ""
    return Scatter(series, Scale(0.0, 1.0), f"how much of {fields.b}", "held-out loss", title, of="models")


def _words(fields: _Words) -> HeatMap:
    """The likeliest token of each place; with `--top` there are more."""
    tokens = [visible_token(token) for token in fields.tokens]
    if not all(top for layer in fields.words_LTK for top in layer):
        raise ValueError("a place without a word")
    words_LT = [[top[0] for top in layer] for layer in fields.words_LTK]
    values = _values([[word.probability for word in layer] for layer in words_LT], fields.layers, tokens)
    texts = [[f"{visible_token(word.text)} {100 * (word.probability or 0.0):.0f}" for word in row] for row in words_LT]
    title = f"{fields.model}: what its layers would say"
    labels = ("probability", title, "layer", "tokens")
    return HeatMap(values, fields.layers, tokens, *labels, low=0.0, high=1.0, texts=texts)


def _attention(fields: _Attention) -> HeatMap:
    """The mean of all heads; of layers with several queries where there are any."""
    weights = [np.array(layer.heads, np.float64) for layer in fields.layers]
    most = max(heads_HTS.shape[1] for heads_HTS in weights)
    mean_TS = np.concatenate([heads_HTS for heads_HTS in weights if heads_HTS.shape[1] == most]).mean(0)
    tokens = [visible_token(token) for token in fields.tokens]
    rows = tokens[-most:]
    title = f"{fields.model}: attention, mean of all heads"
    values = _values(mean_TS.tolist(), rows, tokens)
    return HeatMap(values, rows, tokens, "attention", title, "token", "tokens looked at", low=0.0, high=1.0)


_FIGURES: dict[str, tuple[type[Any], Callable[[Any], Figure]]] = {
    "cka": (_Cka, _cka),
    "drift": (_Drift, _drift),
    "lmc": (_Line, _line),
    "lens-words": (_Words, _words),
    "attention": (_Attention, _attention),
}


def _values(table: _Table, rows: Sequence[str], columns: Sequence[str]) -> NDArray[np.float64]:
    values = np.array([[math.nan if value is None else value for value in row] for row in table], np.float64)
    if not rows or not columns or values.shape != (len(rows), len(columns)):
        raise ValueError("a table has other rows or columns than its labels")
    return values
