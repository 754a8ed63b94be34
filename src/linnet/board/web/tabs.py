"""The pages of a run that are lists: samples, notes, the log, its events, the model as it was built."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from linnet.board.journal import Journal, LogEntry, Note, Sample
from linnet.board.web.answer_json import plain_json
from linnet.board.web.answers import ConfusionInfo, EvaluationInfo, EventPage, RequestError, TimingInfo
from linnet.board.web.board import WebBoard
from linnet.board.web.parameters import Parameters
from linnet.board.web.safe_store import open_inside
from linnet.files import read_at
from linnet.runs.events import parse
from linnet.runs.folder import EVENTS, FLOW

_T = TypeVar("_T")

_PAGE_BYTES = 1 << 20
_MOST_EVENTS = 1_000
_LARGEST_FLOW = 16 << 20
_FARTHEST = 1 << 50


def samples(board: WebBoard, run_id: str) -> list[Sample]:
    """What the model wrote, in order."""
    return _of_journal(board, run_id, Journal.samples)


def notes(board: WebBoard, run_id: str) -> list[Note]:
    """What people remarked."""
    return _of_journal(board, run_id, Journal.notes)


def log(board: WebBoard, run_id: str) -> list[LogEntry]:
    """Turns, warnings, damaged lines."""
    return _of_journal(board, run_id, Journal.log_entries)


def _of_journal(board: WebBoard, run_id: str, part: Callable[[Journal], list[_T]]) -> list[_T]:
    """A part of what a run said, read to its end."""
    with board.open_whole(run_id) as run:
        return part(run.journal)


def evaluations(board: WebBoard, run_id: str) -> list[EvaluationInfo]:
    """What evaluations found, by step."""
    with board.open_whole(run_id) as run:
        return [
            EvaluationInfo(
                step=evaluation.step,
                t=evaluation.t,
                name=evaluation.name,
                samples=evaluation.samples,
                figures=plain_json(evaluation.figures),
                per_class=plain_json(evaluation.per_class),
                confusion=None if evaluation.confusion is None else ConfusionInfo(*evaluation.confusion),
            )
            for evaluation in run.journal.evaluations()
        ]


def profile(board: WebBoard, run_id: str) -> list[TimingInfo]:
    """Where the time of profiled steps went, the latest last."""
    with board.open_whole(run_id) as run:
        return [
            TimingInfo(timing.step, timing.t, _finite(timing.compute_us), _finite_only(timing.buckets))
            for timing in run.journal.op_timings()
        ]


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _finite_only(fields: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in fields.items() if math.isfinite(value)}


def events(board: WebBoard, run_id: str, parameters: Parameters) -> EventPage:
    """Lines of the stream behind a position, which is one that an earlier answer told, or 0."""
    after = parameters.integer("after", 0, 0, _FARTHEST)
    limit = parameters.integer("limit", 200, 1, _MOST_EVENTS)
    row = board.row(run_id)
    with board.open_runs.use(row.path) as run, os.fdopen(open_inside(run.run.path, EVENTS), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if after > size:
            raise RequestError(409, f"the stream has {size} bytes: it was cut or replaced; begin again with after=0")
        if after and read_at(file.fileno(), 1, after - 1) != b"\n":
            raise RequestError(400, "after is no position that an answer told: no line begins there")
        block = read_at(file.fileno(), _PAGE_BYTES, after)
        lines = block.split(b"\n")
        whole, unfinished = lines[:-1], lines[-1]
        if not whole and len(block) == _PAGE_BYTES:
            return _behind_long_line(file.fileno(), after, size)
        position = after + sum(len(line) + 1 for line in whole[:limit])
        records = (parse(line) for line in whole[:limit])
        shown = [plain_json(fields) for fields in records if fields is not None]
        return EventPage(position, shown, more=position < size - len(unfinished))


def _behind_long_line(fd: int, position: int, size: int) -> EventPage:
    """An empty page that ends where a line longer than a page does."""
    while block := read_at(fd, _PAGE_BYTES, position):
        end = block.find(b"\n") + 1
        position += end or len(block)
        if end:
            return EventPage(position, [], more=position < size)
    return EventPage(size, [], more=False)


def flow(board: WebBoard, run_id: str) -> Any:
    """`flow.json` as it is."""
    row = board.row(run_id)
    with board.open_runs.use(row.path) as run, os.fdopen(open_inside(run.run.path, FLOW), "rb") as file:
        content = file.read(_LARGEST_FLOW + 1)
    if len(content) > _LARGEST_FLOW:
        raise RequestError(413, f"flow.json is larger than {_LARGEST_FLOW >> 20} MB")
    try:
        return plain_json(msgspec.json.decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RequestError(422, "flow.json is no JSON") from None
