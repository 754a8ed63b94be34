"""`linnet tail`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import RunName, RunsFolder
from linnet.cli.printing import json_line, paint, paint_status
from linnet.errors import UsageError
from linnet.runs import Event, RunStore
from linnet.runs.metric_names import counts_as_training, rows

_QUIET = ("heartbeat", "system")  # kinds of events that are shown with --all only
_UNDER_WAY = ("live", "stalled")


def tail(
    run: RunName = "latest",
    /,
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"], show_default=True)] = 10,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="--no-follow")] = True,
    all: bool = False,
    runs: RunsFolder = None,
    json: bool = False,
) -> int:
    """Follow a run's events as they are written.

    Args:
        lines: How many events of the past to begin with.
        follow: Go on until the run ends; it does unless told not to.
        all: Show heartbeats and the machine's figures too.
        json: Each event as one line of JSON.
    """
    if lines < 0:
        raise UsageError(f"--lines must be 0 or more, found {lines}")
    followed = RunStore(runs).find(run)
    stream, status = followed.events(), followed.status  # asked before reading: an ended run has no more to say
    for event in stream.last(lines, lambda event: all or event.kind not in _QUIET):
        _print(event, json)
    last_look = time.monotonic()

    def ended() -> bool:
        nonlocal last_look, status
        if status in _UNDER_WAY and time.monotonic() - last_look > 0.5:
            last_look, status = time.monotonic(), followed.status
        return status not in _UNDER_WAY

    if follow and status in _UNDER_WAY:
        for batch in stream.follow(ended):
            for event in batch:
                if all or event.kind not in _QUIET:
                    _print(event, json)
            if any(event.kind == "run_end" for event in batch):
                status = followed.status
                break
    if not json:
        print(f"{words.bounded(followed.id)} is {paint_status(status)}", flush=True)
    return 0


def _print(event: Event, json: bool) -> None:
    if json:
        print(json_line(event.data), flush=True)
        return
    at = paint(f"{words.duration(event.t):>9}", "dim")
    kind, step = event.kind, "" if event.step is None else f"step {event.step}"
    if not counts_as_training(event):  # a token of a text, or a request
        kind, step = event.data["phase"], step.replace("step", "no.")
    text = words.bounded(_text(event))
    print(f"{at}  {words.shorten(words.plain(kind), 100):<10} {step:<10} {text}".rstrip(), flush=True)


def _text(event: Event) -> str:
    data: dict[str, Any] = event.data
    if not counts_as_training(event):
        return _pairs((name.removeprefix(f"{data['phase']}/"), words.number(value)) for name, value in rows(event))
    match event.kind:
        case "region_enter" | "region_exit":
            return f"{'→' if event.kind == 'region_enter' else '←'} {data.get('region', '')}"
        case "align" | "mask":
            weight = data.get("wname") or f"layer {data.get('li')} weight {data.get('wi')}"
            figures = _pairs((name.rpartition("/")[2], words.number(value)) for name, value in rows(event))
            return "  ".join(filter(None, (str(weight), figures)))
        case "step" | "scalars" | "eval":
            return _pairs((name, words.number(value)) for name, value in rows(event))
        case "sample":
            return f"{data.get('prompt', '')}{data.get('text', '')}"
        case "run_end":
            names = ("reason", "error", "final_step", "final_loss")
            return words.flags(_pairs((name, data[name]) for name in names if name in data))
    own = ("kind", "t", "step", "phase", "schema")
    return _pairs((name, value) for name, value in data.items() if name not in own)


def _pairs(fields: Iterable[tuple[str, object]]) -> str:
    return "  ".join(f"{name} {value}" for name, value in fields)
