"""The events of looks as structs, decoded many lines at a time; what does not fit is put into shape line by line.

A number that is not finite is null in a line, and listed: such lines are taken singly, and it is NaN again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from linnet.runs.events import parse, restore_nonfinite
from linnet.runs.inspection_lines import INSPECTION_HEADS
from linnet.runs.line_struct import Int64, LineStructs

_OTHER_HEADS = (b'{"kind":"op_timing",', b'{"kind":"resume",')
_KINDS = tuple(f'"{kind}"'.encode() for kind in ("tap", "grad", "drift", "region_enter", "region_exit", "op_timing"))
_HEAD = 40  # bytes in which a line tells its kind


NO_GRAM = msgspec.Raw(b"")


class Tap(msgspec.Struct, tag_field="kind", tag="tap", gc=False):
    """Figures of activations; a Gram matrix is decoded when it is asked for."""

    step: Int64
    region: str
    layer: int | None = None
    head: int | None = None
    l2: float | None = None
    abs_mean: float | None = None
    nan_count: float | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    sparsity: float | None = None
    effective_rank: float | None = None
    dead: float | None = None
    entropy: list[float] | None = None
    per_head_l2: list[float] | None = None
    edges: list[float] | None = None
    histogram: list[int] | None = None
    gram: msgspec.Raw = NO_GRAM
    nonfinite: dict[str, str] | None = None


class Grad(msgspec.Struct, tag_field="kind", tag="grad", gc=False):
    """Figures of a gradient and of an update."""

    step: Int64
    param: str
    head: int | None = None
    l2: float | None = None
    abs_mean: float | None = None
    nan_count: float | None = None
    update_ratio: float | None = None
    nonfinite: dict[str, str] | None = None


class Drift(msgspec.Struct, tag_field="kind", tag="drift", gc=False):
    """Distance from the first value, of a tensor or of a token's row."""

    step: Int64
    param: str
    head: int | None = None
    cos_to_init: float | None = None
    l2_to_init: float | None = None
    token_id: Int64 | None = None
    freq: Int64 | None = None
    nonfinite: dict[str, str] | None = None


class RegionEntered(msgspec.Struct, tag_field="kind", tag="region_enter", gc=False):
    """A stretch of work begins."""

    step: Int64
    region: str
    us: float | None = None
    t: float = 0.0


class RegionLeft(msgspec.Struct, tag_field="kind", tag="region_exit", gc=False):
    """A stretch of work ends."""

    step: Int64
    region: str
    us: float | None = None
    t: float = 0.0


class Timing(msgspec.Struct, tag_field="kind", tag="op_timing", gc=False):
    """Microseconds of a step by operation."""

    step: Int64
    compute_us: float
    buckets: dict[str, float]


class Resumed(msgspec.Struct, tag_field="kind", tag="resume", gc=False):
    """Training goes on from a step."""

    step: Int64 | None = None


InspectionEvent: TypeAlias = Tap | Grad | Drift | RegionEntered | RegionLeft | Timing | Resumed
TAP_FIGURES = (*("mean", "std", "l2", "abs_mean", "min", "max", "sparsity", "nan_count", "effective_rank", "dead"),)
GRAD_FIGURES = ("l2", "abs_mean", "nan_count", "update_ratio")
DRIFT_FIGURES = ("cos_to_init", "l2_to_init")

_structs = LineStructs(InspectionEvent)
_heads = (*INSPECTION_HEADS, *_OTHER_HEADS)


def inspection_events(block: bytes) -> Iterator[InspectionEvent]:
    """The events of looks among whole lines, and resumes, in order; what is damaged is passed over."""
    lines = block.split(b"\n")
    usual = [line for line in lines if line.startswith(_heads)]
    odd = [line for line in lines if not line.startswith(_heads) and _may_be_event(line)]
    events = None if odd else _structs.decode(b"\n".join([*usual, b""])) if usual else []
    if events is not None and not any(getattr(event, "nonfinite", None) for event in events):
        yield from events
        return
    for line in lines:
        if (line.startswith(_heads) or _may_be_event(line)) and (event := _decode_line(line)) is not None:
            yield event


def gram_of(raw: msgspec.Raw) -> list[list[float]] | None:
    """A Gram matrix; None where it is none."""
    try:
        rows = msgspec.json.decode(raw, type=list[list[float | None]])
    except ValueError:
        return None
    square = [[math.nan if value is None else value for value in row] for row in rows if len(row) == len(rows)]
    return square if len(square) == len(rows) else None


def _may_be_event(line: bytes) -> bool:
    """A line that another writer has spelled otherwise."""
    head = line[:_HEAD]
    return any(kind in head for kind in _KINDS) or b'"resume' in head


def _decode_line(line: bytes) -> InspectionEvent | None:
    fields = parse(line)
    if fields is None:
        return None
    if isinstance(fields.get("gram"), list):  # its numbers are looked at later
        fields["gram"] = msgspec.Raw(msgspec.json.encode(fields["gram"]))
    restore_nonfinite(fields)
    try:
        return _converted(fields)
    except (msgspec.ValidationError, TypeError):
        return None


def _converted(fields: dict[str, Any]) -> InspectionEvent:
    event: InspectionEvent = msgspec.convert(fields, InspectionEvent)
    return event
