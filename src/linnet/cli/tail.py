"""`linnet tail`."""

from __future__ import annotations

import time
from typing import Annotated, Any

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import RunName, RunsFolder
from linnet.cli.terminal import json_line, paint, paint_status
from linnet.errors import UsageError
from linnet.runs import Event, RunStore
from linnet.runs.metric_names import counts_as_training, rows

_QUIET = ("heartbeat", "system")


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

    Parameters
    ----------
    lines
        How many events of the past to begin with.
    follow
        Go on until the run ends; it does unless told not to.
    all
        Show heartbeats and the machine's figures too.
    json
        Each event as one line of JSON.
    """
    if lines < 0:
        raise UsageError(f"--lines {lines}: how many events to begin with, so 0 or more")
    found = RunStore(runs).find(run)
    stream, status = found.events(), found.status
    ended = status not in ("live", "stalled")  # asked before reading: an ended run has no more to say than is read
    for event in stream.last(lines, lambda event: all or event.kind not in _QUIET):
        _print(event, json)
    if ended or not follow:
        return _close(found.id, status, json)
    last_look = time.monotonic()

    def finished() -> bool:
        nonlocal last_look, status, ended
        if not ended and time.monotonic() - last_look > 0.5:
            last_look, status = time.monotonic(), found.status
            ended = status not in ("live", "stalled")
        return ended

    for batch in stream.follow(finished):
        for event in batch:
            if all or event.kind not in _QUIET:
                _print(event, json)
        if any(event.kind == "run_end" for event in batch):
            status = found.status
            break
    return _close(found.id, status, json)


def _close(run_id: str, status: str, json: bool) -> int:
    if not json:
        print(f"{words.bounded(run_id)} is {paint_status(status)}", flush=True)
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
        prefix = f"{data['phase']}/"
        return "  ".join(f"{name.removeprefix(prefix)} {words.number(value)}" for name, value in rows(event))
    if event.kind in ("region_enter", "region_exit"):
        return f"{'→' if event.kind == 'region_enter' else '←'} {data.get('region', '')}"
    if event.kind in ("align", "mask"):
        weight = data.get("wname") or f"layer {data.get('li')} weight {data.get('wi')}"
        figures = ((name.rpartition("/")[2], value) for name, value in rows(event))
        return "  ".join([str(weight), *(f"{name} {words.number(value)}" for name, value in figures)])
    if event.kind in ("step", "scalars", "eval"):
        return "  ".join(f"{name} {words.number(value)}" for name, value in rows(event))
    if event.kind == "sample":
        return f"{data.get('prompt', '')}{data.get('text', '')}"
    if event.kind == "run_end":
        names = ("reason", "error", "final_step", "final_loss")
        return words.flags("  ".join(f"{name} {data[name]}" for name in names if name in data))
    own = ("kind", "t", "step", "phase", "schema")
    return "  ".join(f"{name} {value}" for name, value in data.items() if name not in own)
