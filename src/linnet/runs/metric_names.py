"""Which numbers of an event are metrics, what they are called, and which way is better."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from linnet.runs.events import Event, as_number

_ENVELOPE = frozenset(("kind", "t", "step", "phase", "epoch"))
LOSSES = ("loss", "train/loss", "train_loss")  # the metric to show when there is room for one
_LOWER_IS_BETTER = ("loss", "error", "ppl")
_HIGHER_IS_BETTER = ("acc", "score", "reward", "f1", "bleu")


def rows(event: Event) -> Iterator[tuple[str, float]]:
    """The metrics of an event.

    A step's numbers keep their names (`loss`); those of another phase carry it (`decode/logprob`); an evaluation's
    carry its own (`validation/loss`); the machine's begin with `sys/`.
    """
    data = event.data
    if event.kind == "step":
        phase = data.get("phase")
        prefix = "" if phase in (None, "train") or not isinstance(phase, str) else f"{phase}/"
        yield from _numbers(data, prefix)
        yield from _numbers(_mapping(data.get("values")), prefix, frozenset())
    elif event.kind == "scalars":
        yield from _numbers(_mapping(data.get("values")), "", frozenset())
    elif event.kind == "eval":
        name = data.get("name")
        prefix = f"{name}/" if isinstance(name, str) and name else "eval/"
        yield from _numbers(data, prefix, _ENVELOPE | {"extra"})
        yield from _numbers(_mapping(data.get("extra")), prefix, frozenset())
    elif event.kind == "system":
        yield from _system(data)


def lower_is_better(name: str, goals: Mapping[str, str]) -> bool:
    """By the declared goal; else low is better iff the name speaks of a loss, an error or a perplexity."""
    if name in goals:
        return goals[name] == "min"
    lowered = name.lower()
    return any(word in lowered for word in _LOWER_IS_BETTER)


def has_direction(name: str, goals: Mapping[str, str]) -> bool:
    """Is one way known to be better? Of a learning rate or a duration there is no best to show."""
    lowered = name.lower()
    return name in goals or any(word in lowered for word in (*_LOWER_IS_BETTER, *_HIGHER_IS_BETTER))


def main_metric(names: Iterable[str]) -> str | None:
    """The metric to show when there is room for one: the loss, else one that is called so, else the first."""
    known = list(names)
    for wanted in LOSSES:
        if wanted in known:
            return wanted
    shown = [name for name in known if not name.startswith("sys/")]
    return next((name for name in shown if "loss" in name.lower()), shown[0] if shown else None)


def _numbers(
    fields: Mapping[str, Any], prefix: str, left_out: frozenset[str] = _ENVELOPE
) -> Iterator[tuple[str, float]]:
    for name, value in fields.items():
        if name not in left_out and isinstance(value, int | float):  # NaN is back in its place; null says nothing
            yield prefix + name, as_number(value)


def _system(data: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for room in ("cpu", "memory", "swap", "process", "disk", "net"):
        yield from _numbers(_mapping(data.get(room)), f"sys/{room}/", frozenset())
    gpus = data.get("gpus")
    for index, gpu in enumerate(gpus if isinstance(gpus, list) else []):
        yield from _numbers(_mapping(gpu), f"sys/gpu{index}/", frozenset({"index", "name"}))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
