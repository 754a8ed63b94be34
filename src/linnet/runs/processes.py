"""Work on many runs by forked processes: a list of thousands is read by all cores that there are."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_R = TypeVar("_R")
_FEWEST = 128  # items for each process; a fork and its answer take some 5 ms
_MOST = 4  # processes


def in_processes(items: Sequence[_T], work: Callable[[_T], _R | None], kind: type[_R]) -> list[_R | None]:
    """`work` of every item, in order, as `map` gives it. `kind`: the type of a result, which msgspec can encode.

    What a process does not answer is worked out here, so what comes back never depends on them.
    """
    count = min(_MOST, _cores(), len(items) // _FEWEST)
    if count < 2 or sys.platform != "linux" or threading.active_count() > 1:  # elsewhere a fork is dear or unsafe
        return [work(item) for item in items]
    share = -(-len(items) // count)
    mine, *theirs = (items[begin : begin + share] for begin in range(0, len(items), share))
    answer_type = list[kind | None]  # type: ignore[valid-type]
    children = [_start(part, work) for part in theirs]
    try:
        results = [work(item) for item in mine]
        for part, child in zip(theirs, children, strict=True):
            results += _answer(child, answer_type, len(part)) or [work(item) for item in part]
    finally:
        for pipe, process in children:
            if pipe >= 0:
                with suppress(OSError):
                    os.close(pipe)
            if process > 0:
                with suppress(ChildProcessError):  # whoever started us lets the system clear away our processes
                    os.waitpid(process, 0)
    return results


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(items: Sequence[_T], work: Callable[[_T], _R]) -> tuple[int, int]:
    """Where the answer of a new process can be read, and its id; negative where there is none."""
    answer, question = os.pipe()
    process = -1
    with suppress(OSError):  # no process more is allowed
        process = os.fork()
    if process == 0:
        try:
            os.close(answer)  # else nobody would tell this process that the other has died
            with os.fdopen(question, "wb") as pipe:
                pipe.write(msgspec.msgpack.encode([work(item) for item in items]))
        finally:
            os._exit(0)  # without what the other process has still to do at its end
    os.close(question)
    return answer, process


def _answer(child: tuple[int, int], kind: type[list[_R]], count: int) -> list[_R] | None:
    """What a process found out; None when it did not answer."""
    pipe, process = child
    if process < 0:
        return None
    with os.fdopen(os.dup(pipe), "rb") as answer, suppress(msgspec.MsgspecError):
        results = msgspec.msgpack.decode(answer.read(), type=kind)
        return results if len(results) == count else None
    return None
