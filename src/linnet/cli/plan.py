"""A plan in words: three lines before the first step, and one when its time is known."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from linnet.board import words

if TYPE_CHECKING:
    from linnet.train.plan import Plan

_COLUMNS = 80
_LABEL = 6  # columns of the word before a line
_FLOP_UNITS = (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6))


def plan_lines(plan: Plan) -> list[str]:
    """Parameters and data; work, disk and memory; optimizer and rates. Each fits 80 columns."""
    tied = f" ({words.compact(plan.embedding)} embedding)" if plan.embedding else ""
    first = [f"{words.compact(plan.parameters)} parameters{tied}", _data(plan)]
    second = [] if plan.steps is None else [f"{plan.steps:,} steps", _flops(plan.flops or 0.0)]
    if plan.minutes is not None and plan.steps is None:
        second = [f"{words.duration(60 * plan.minutes)} of steps"]
    where = "" if plan.device == "cpu" else f" ({plan.device})"
    second += [f"disk {words.size(plan.disk)}", f"memory {words.size(plan.memory)}{where}"]
    teacher = [_line("", [f"teacher {words.size(plan.teacher)} of it"])] if plan.teacher else []
    rates = [_line("rate", rates_words(plan.optimizer, plan.rates))] if plan.rates else []
    return [_line("plan", first), _line("", second), *teacher, *rates, *_note(plan)]


def _note(plan: Plan) -> list[str]:
    """A line where the text will be passed through too often."""
    from linnet.train.overfitting import will_overfit

    if not will_overfit(plan):
        return []
    passes = f"{words.compact(round(plan.epochs or 0))} epochs of {words.compact(plan.corpus or 0)} {plan.unit}"
    return [_line("note", [f"{passes} will overfit: add text, or set --patience 3"])]


def time_line(plan: Plan) -> str:
    """The expected time, and when that is over."""
    assert plan.seconds is not None and plan.step_seconds is not None
    ends = words.moment(time.time() + plan.seconds, "%H:%M" if plan.seconds < 64_800 else "%m-%d %H:%M")
    if plan.minutes is None:
        about = f"about {words.duration(plan.seconds)}"
        return _line("time", [about, f"{_short(plan.step_seconds)} a step", f"until {ends}"])
    steps = f"~{words.compact(plan.steps or 0)} steps of {_short(plan.step_seconds)}"
    planned = f"{words.compact(plan.planned or 0)} {plan.unit}"
    line = _line("time", [steps, planned + _epochs(plan.epochs), f"until {ends}"])
    return line if len(line) < _COLUMNS else _line("time", [steps, planned, f"until {ends}"])


def _line(label: str, parts: list[str]) -> str:
    return f"{label:<{_LABEL}}{' · '.join(parts)}"


def _data(plan: Plan) -> str:
    corpus = None if plan.corpus is None else words.compact(plan.corpus)
    if plan.planned is None:
        return f"{plan.unit} of unknown number" if corpus is None else f"{corpus} {plan.unit} in the data"
    if corpus is None or plan.epochs is None:
        return f"{words.compact(plan.planned)} {plan.unit}"
    planned = words.compact(plan.planned)
    if plan.epochs > 1:
        return f"{planned} {plan.unit}{_epochs(plan.epochs)} of {corpus}"
    return f"{planned} of {corpus} {plan.unit}{_epochs(plan.epochs)}"


def _epochs(count: float | None) -> str:
    if count is None:
        return ""
    return f", {words.number(count, 2) if count < 1000 else words.compact(count)} epochs"


def rates_words(optimizer: str, rates: Mapping[str, float]) -> list[str]:
    """The optimizer with the rate of matrices, the rates that are others, weight decay and dropout."""
    matrix = rates.get("lr", 0.0)
    names = {"lr_embedding": "embedding", "lr_head": "head", "lr_vectors": "norms"}
    named = {word: rates.get(name, matrix) for name, word in names.items()}
    others = [f"{word} {_power(rate)}" for word, rate in named.items() if rate != matrix]
    decay = [f"decay {rates['weight_decay']:.3g}"] if "weight_decay" in rates else []
    dropout = [f"dropout {rates['dropout']:.3g}"] if rates.get("dropout") else []
    return [f"{optimizer} {_power(matrix)}", *others, *decay, *dropout]


def _power(rate: float) -> str:
    """A rate as people type it: 3.4e-3."""
    digits, _, exponent = f"{rate:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def _flops(count: float) -> str:
    for unit, size in _FLOP_UNITS:
        if count >= size:
            return f"{words.number(count / size, 3)} {unit}"
    return f"{count:.0f} FLOP"


def _short(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else words.duration(seconds)
