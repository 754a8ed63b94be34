"""`LateEvents`: events whose figures are still on the device, so that nobody waits for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from linnet.runs import Session

# Figures that are whole numbers.
_COUNTS = frozenset(("nan_count", "histogram", "token_id", "freq"))
_DENSE = 0.999  # a matrix with fewer zeros than that was not pruned
_DIGITS = 6  # float32 has hardly more, and a line is half as long


@dataclass(frozen=True)
class EventRow:
    """An event to come: its kind, the fields that are known, and its figures with how many numbers each has.

    A figure of length 0 is one number, of any other a list of so many; `gram` is a square of them.
    """

    kind: str
    fields: Mapping[str, Any]
    figures: tuple[tuple[str, int], ...]

    @property
    def length(self) -> int:
        """Numbers of all figures."""
        return sum(max(1, count) for _, count in self.figures)


# What a look gives: its events to come, and their figures, which lie one after the other in some tensors.
Look = tuple[Sequence[EventRow], Sequence[Tensor]]


class InspectedEvent(NamedTuple):
    """An event as it is written: fields and figures together."""

    kind: str
    fields: Mapping[str, Any]


class PendingEvents(Protocol):
    """Events of a look that may still be on their way."""

    step: int

    def are_here(self) -> bool:
        """Have they arrived?"""

    def events(self) -> Iterator[InspectedEvent]:
        """The events; waits for the device where it must."""


class LateEvents:
    """The events of a look, whose figures lie one after the other in `values` (float32, on any device).

    The copy to the host is queued at once, behind what the device has to do.
    """

    def __init__(self, step: int, rows: Sequence[EventRow], values: Sequence[Tensor]) -> None:
        self.step = step
        self._rows = rows
        flat = torch.cat([tensor.reshape(-1) for tensor in values]) if values else torch.zeros(0)
        assert len(flat) == sum(row.length for row in rows)
        self._arrived: torch.cuda.Event | None = None
        if flat.is_cuda:
            flat = flat.to("cpu", non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()
        self._numbers: Tensor | list[float] = flat if self._arrived is not None else flat.tolist()

    def are_here(self) -> bool:
        """Have the figures arrived?"""
        return self._arrived is None or bool(self._arrived.query())  # type: ignore[no-untyped-call]

    def events(self) -> Iterator[InspectedEvent]:
        """The events; waits for the device where it must."""
        if self._arrived is not None:
            self._arrived.synchronize()
        numbers = self._numbers if isinstance(self._numbers, list) else self._numbers.tolist()
        at = 0
        for row in self._rows:
            fields = dict(row.fields)
            for name, count in row.figures:
                value: Any
                if count or name in _ODD:
                    own = numbers[at : at + max(1, count)]
                    at += max(1, count)
                    value = _figure(name, own if count else own[0])
                    if value is None:
                        continue
                else:
                    value = float(f"{numbers[at]:.6g}")
                    at += 1
                fields[name] = value
            if fields.get("freq") == 0 or self._is_whole(fields):  # nothing to tell of
                continue
            if fields:
                yield InspectedEvent(row.kind, fields)

    def _is_whole(self, fields: Mapping[str, Any]) -> bool:
        """Was nothing pruned of a matrix? Before the first update its zeros are what it began with, as some tables do.

        With a gradient these move at once; what is 0 later was set to it, or is kept there.
        """
        return "density" in fields and (self.step == 1 or fields["density"] > _DENSE)


def write(run: Session, step: int, events: Sequence[InspectedEvent]) -> None:
    """Write events: metrics of the user's by their own method, all others in one go."""
    run.looked(step, [event for event in events if event.kind != "scalars"])
    for event in events:
        if event.kind == "scalars":
            run.scalars(step, event.fields)


_NOT_THERE = frozenset(
    ("update_ratio", "effective_rank", "histogram", "edges", "drift/token_frequency")
)  # where they have no meaning: NaN


_ODD = _COUNTS | _NOT_THERE  # figures that are more than a number of six digits


def _figure(name: str, value: float | list[float]) -> Any:
    """A figure as it is written; None where it has no meaning."""
    if name in _NOT_THERE and not math.isfinite(sum(value) if isinstance(value, list) else value):
        return None
    if name == "gram":
        assert isinstance(value, list)
        side = math.isqrt(len(value))
        return [[_rounded(x, 5) for x in value[start : start + side]] for start in range(0, len(value), side)]
    if name in _COUNTS:
        return [int(x) for x in value] if isinstance(value, list) else int(value)
    return [_rounded(x) for x in value] if isinstance(value, list) else _rounded(value)


def _rounded(value: float, digits: int = _DIGITS) -> float:
    return float(f"{value:.{digits}g}")
