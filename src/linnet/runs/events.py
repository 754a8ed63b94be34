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
    - `data`: every field of the line in `toy/v1` words, the unknown ones too. Numbers that JSON cannot spell are
      back in their place.
    """

    kind: str
    t: float
    step: int | None
    data: dict[str, Any]


def parse(line: bytes) -> dict[str, Any] | None:
    """The object on a line; None when there is none. Toy writes NaN and Infinity bare: those lines count too."""
    try:
        found = _decode(line)
    except (ValueError, RecursionError):  # msgspec's errors and bad UTF-8 are ValueErrors
        if len(line) > _CAREFUL_LARGEST or not (b"NaN" in line or b"Infinity" in line):
            return None
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def to_event(found: dict[str, Any], origin: float = 0.0) -> Event:
    """Put an object into `toy/v1` words. `origin`: the Unix time at which a foreign run began."""
    foreign = found.get("type")
    if isinstance(foreign, str) and ("kind" not in found or foreign == "media"):  # munin's media has a kind of its own
        found = _translate(found, origin)
    respell(found)
    kind = found.get("kind")
    return Event(
        kind=kind if isinstance(kind, str) else "",
        t=as_number(found.get("t"), 0.0),
        step=as_step(found.get("step")),
        data=found,
    )


def decode(line: bytes, origin: float = 0.0) -> Event | None:
    """A whole line to an event; None when the line is damaged."""
    found = parse(line)
    return None if found is None else to_event(found, origin)


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


_MOST_WORDS = 64  # of a dotted place; trying every cut of a longer one takes too long
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def respell(found: dict[str, Any]) -> None:
    """Put NaN and the infinities back where the writer listed them, by dotted place, under `nonfinite`."""
    nonfinite = found.get("nonfinite")
    for place, word in nonfinite.items() if isinstance(nonfinite, dict) else ():
        value = _NONFINITE.get(word) if isinstance(word, str) else None
        if value is None:
            continue
        target: Any = found
        route: list[Any] = [place] if place in found else _route(found, place)
        *path, last = route
        for name in path:
            target = target[name]
        if isinstance(target, dict) or (isinstance(target, list) and isinstance(last, int)):
            target[last] = value


def _route(found: Any, place: str) -> list[Any]:
    """Follow a dotted place; names may hold dots themselves, so the longest name that exists is taken each time."""
    words, route = place.split("."), []
    if len(words) > _MOST_WORDS:
        return [place]
    while words:
        for cut in range(len(words), 0, -1):
            name: Any = ".".join(words[:cut])
            if isinstance(found, list):
                name = _index(name, len(found))
            elif not isinstance(found, dict) or name not in found:
                name = None
            if name is not None:
                break
        else:
            return [place]
        route.append(name)
        found, words = found[name], words[cut:]
    return route


def _index(name: str, length: int) -> int | None:
    """A place in a list; None when it is none. `isdigit` would let `²` pass, which is no number to `int`."""
    if not (name.isascii() and name.isdecimal() and len(name) < 10):
        return None
    return int(name) if int(name) < length else None


# -- kaun-board and munin --------------------------------------------------------------------------------------


def _translate(found: dict[str, Any], origin: float) -> dict[str, Any]:
    translate = _FOREIGN.get(found["type"])
    if translate is None:
        return {"kind": found["type"], **found}
    wall = next((found[key] for key in ("wall_time", "timestamp", "ts", "at", "ended_at") if key in found), None)
    seconds = as_number(wall, origin) - origin
    return {"kind": "", "t": seconds, **translate(found), "type": found["type"]}


def _scalar(found: dict[str, Any], name: str) -> dict[str, Any]:
    """One number. A null value is NaN, as kaun-board spells it; without a value there is no point."""
    out: dict[str, Any] = {"kind": "scalars", "step": found.get("step")}
    metric, value = found.get(name), found.get("value", "")
    is_point = isinstance(metric, str) and (value is None or isinstance(value, int | float))
    out["values"] = {metric: as_number(value)} if is_point else {}
    if "epoch" in found:
        out["epoch"] = found["epoch"]
    elif metric == "epoch":  # munin has no field for it: its users log it as a metric
        out["epoch"] = value
    return out


_MUNIN_REASON = {"finished": "completed", "failed": "errored", "killed": "interrupted"}
_MUNIN_GOAL = {"minimize": "min", "maximize": "max"}


def _kept(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


def _word(words: dict[str, str], value: object, otherwise: str | None) -> str | None:
    return words.get(value, otherwise) if isinstance(value, str) else otherwise


_FOREIGN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "scalar": lambda f: _scalar(f, "tag"),
    "metric": lambda f: _scalar(f, "key"),
    "define_metric": lambda f: {
        "kind": "goal",
        "metric": f.get("key"),
        "goal": _word(_MUNIN_GOAL, f.get("goal"), None),
        "summary": f.get("summary"),
    },
    "media": lambda f: {
        "kind": "artifact",
        "step": f.get("step"),
        "name": f.get("key"),
        "media": f.get("kind"),
        "path": f.get("path"),
    },
    "summary": lambda f: {"kind": "summary", "values": f.get("values")},
    "notes": lambda f: {"kind": "note", "text": f.get("value") or "", **_kept(f, "step", "at")},
    "note": lambda f: {"kind": "note", **_kept(f, "text", "step", "at")},  # ours, in a stream of kaun-board
    "tags": lambda f: {"kind": "tags", "values": f.get("values")},
    "artifact_output": lambda f: {"kind": "artifact", "name": f.get("name"), "version": f.get("version")},
    "artifact_input": lambda f: {
        "kind": "artifact",
        "name": f.get("name"),
        "version": f.get("version"),
        "input": True,
    },
    "resumed": lambda f: {"kind": "resume"},
    "finished": lambda f: {
        "kind": "run_end",
        "reason": _word(_MUNIN_REASON, f.get("status"), "completed"),
        "ended_at": f.get("ended_at"),
    },
}
