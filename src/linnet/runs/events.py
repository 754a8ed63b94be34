"""One line of a stream becomes one event, whichever of the four writers made it.

Linnet and Toy name the kind in `kind` (`toy/v1`); kaun-board and munin name it in `type` and are put into the same
words here, so that nothing else in Linnet needs to know of them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

_CAREFUL_LARGEST = 1 << 20  # lines up to this size get a second try with Python's own, more lenient, parser
_decode = msgspec.json.Decoder().decode


class Event(msgspec.Struct, frozen=True):
    """One event.

    - `kind`: `step`, `scalars`, `eval`, `run_end` …; unknown kinds are passed on as they are.
    - `t`: seconds since the run began.
    - `step`: None where the event has none.
    - `data`: every field of the line in `toy/v1` words, the unknown ones too. NaN and the infinities
      are back where they were.
    """

    kind: str
    t: float
    step: int | None
    data: dict[str, Any]


def parse(line: bytes) -> dict[str, Any] | None:
    """The object on a line; None when there is none. Toy writes NaN and Infinity bare: those lines count too."""
    try:
        fields = _decode(line)
    except (ValueError, RecursionError):  # msgspec's errors and bad UTF-8 are ValueErrors
        if len(line) > _CAREFUL_LARGEST or not (b"NaN" in line or b"Infinity" in line):
            return None
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return fields if isinstance(fields, dict) else None


def to_event(fields: dict[str, Any], origin: float = 0.0) -> Event:
    """Put an object into `toy/v1` words. `origin`: the Unix time at which a foreign run began."""
    foreign = fields.get("type")
    if isinstance(foreign, str) and ("kind" not in fields or foreign == "media"):  # munin's media has a kind of its own
        fields = _translate(fields, origin)
    restore_nonfinite(fields)
    kind = fields.get("kind")
    t, step = as_number(fields.get("t"), 0.0), as_step(fields.get("step"))
    return Event(kind if isinstance(kind, str) else "", t, step, fields)


def decode(line: bytes, origin: float = 0.0) -> Event | None:
    """A whole line to an event; None when the line is damaged."""
    fields = parse(line)
    return None if fields is None else to_event(fields, origin)


def as_step(value: object) -> int | None:
    """A step as an integer of 64 bits; None when it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return max(-(2**63), min(2**63 - 1, int(value)))


def as_number(value: object, otherwise: float = math.nan) -> float:
    """A number as a float; numbers too large for one become infinite, what is no number `otherwise`."""
    if isinstance(value, float):
        return value
    if not isinstance(value, int):
        return otherwise
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def iso_now() -> str:
    """This moment as the files spell it: ISO-8601, UTC, whole seconds, `Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def unix_seconds(text: object) -> float | None:
    """Unix seconds of an ISO-8601 date; None if it is not one. Without a zone it is taken as UTC."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_MOST_WORDS = 64  # of a dotted path; trying every cut of a longer one takes too long
NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def restore_nonfinite(fields: dict[str, Any]) -> None:
    """Put NaN and the infinities back where the writer listed them, by dotted path, under `nonfinite`."""
    nonfinite = fields.get("nonfinite")
    for path, word in nonfinite.items() if isinstance(nonfinite, dict) else ():
        value = NONFINITE.get(word) if isinstance(word, str) else None
        if value is None:
            continue
        target: Any = fields
        *parents, last = [path] if path in fields else _resolve(fields, path)
        for name in parents:
            target = target[name]
        if isinstance(target, dict) or (isinstance(target, list) and isinstance(last, int)):
            target[last] = value


def _resolve(value: Any, path: str) -> list[Any]:
    """Follow a dotted path; names may hold dots themselves, so the longest name that exists is taken each time."""
    words, route = path.split("."), []
    if len(words) > _MOST_WORDS:
        return [path]
    while words:
        for cut in range(len(words), 0, -1):
            name: Any = ".".join(words[:cut])
            if isinstance(value, list):
                name = _index(name, len(value))
            elif not isinstance(value, dict) or name not in value:
                name = None
            if name is not None:
                break
        else:
            return [path]
        route.append(name)
        value, words = value[name], words[cut:]
    return route


def _index(name: str, length: int) -> int | None:
    """An index into a list; None when it is none. `isdigit` would let `²` pass, which is no number to `int`."""
    if not (name.isascii() and name.isdecimal() and len(name) < 10):
        return None
    return int(name) if int(name) < length else None


# -- kaun-board and munin --------------------------------------------------------------------------------------


def _translate(fields: dict[str, Any], origin: float) -> dict[str, Any]:
    translate = _FOREIGN.get(fields["type"])
    if translate is None:
        return {"kind": fields["type"], **fields}
    wall = next((fields[key] for key in ("wall_time", "timestamp", "ts", "at", "ended_at") if key in fields), None)
    seconds = as_number(wall, origin) - origin
    return {"kind": "", "t": seconds, **translate(fields), "type": fields["type"]}


def _scalar(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """One number. A null value is NaN, as kaun-board spells it; without a value there is no point."""
    metric, value = fields.get(name), fields.get("value", "")
    is_point = isinstance(metric, str) and (value is None or isinstance(value, int | float))
    scalars = {
        "kind": "scalars",
        "step": fields.get("step"),
        "values": {metric: as_number(value)} if is_point else {},
    }
    if "epoch" in fields or metric == "epoch":  # munin has no field for it: its users log it as a metric
        scalars["epoch"] = fields.get("epoch", value)
    return scalars


def _picked(kind: str, fields: dict[str, Any], **names: str) -> dict[str, Any]:
    """An event of some fields, each under our name for it; null where it is absent."""
    return {"kind": kind, **{ours: fields.get(theirs) for ours, theirs in names.items()}}


def _kept(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def _word(words: dict[str, str], value: object, otherwise: str | None) -> str | None:
    return words.get(value, otherwise) if isinstance(value, str) else otherwise


_REASONS = {"finished": "completed", "failed": "errored", "killed": "interrupted"}
_GOALS = {"minimize": "min", "maximize": "max"}
_FOREIGN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "scalar": lambda f: _scalar(f, "tag"),
    "metric": lambda f: _scalar(f, "key"),
    "define_metric": lambda f: {
        **_picked("goal", f, metric="key", summary="summary"),
        "goal": _word(_GOALS, f.get("goal"), None),
    },
    "media": lambda f: _picked("artifact", f, step="step", name="key", media="kind", path="path"),
    "summary": lambda f: _picked("summary", f, values="values"),
    "notes": lambda f: {"kind": "note", "text": f.get("value") or "", **_kept(f, "step", "at")},
    "note": lambda f: {"kind": "note", **_kept(f, "text", "step", "at")},  # ours, in a stream of kaun-board
    "tags": lambda f: _picked("tags", f, values="values"),
    "artifact_output": lambda f: _picked("artifact", f, name="name", version="version"),
    "artifact_input": lambda f: {**_picked("artifact", f, name="name", version="version"), "input": True},
    "resumed": lambda f: {"kind": "resume"},
    "finished": lambda f: {
        **_picked("run_end", f, ended_at="ended_at"),
        "reason": _word(_REASONS, f.get("status"), "completed"),
    },
}
