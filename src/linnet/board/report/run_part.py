"""What a report holds of one run besides its series: what the requests of the run's pages would have been answered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec

from linnet.board.journal import LogEntry, Note, Sample
from linnet.board.report.held_series import HeldSeries
from linnet.board.web import artifacts, checkpoints, detail, tabs
from linnet.board.web.answers import (
    ArtifactGroup,
    Checkpoint,
    CheckpointDetail,
    EvaluationInfo,
    RequestError,
    RowCurve,
    RunDetail,
    TimingInfo,
)
from linnet.board.web.board import WebBoard
from linnet.board.words import plain

T = TypeVar("T")
_MOST_SAMPLE_TEXT = 400_000  # characters of a run's samples; of more, the latest
_MOST_FLOW = 1_000_000  # bytes of a run's graph


class LeftOut(msgspec.Struct):
    """A part that is not in the report.

    - `part`: which one, in words; `run`: None where it is of all; `bytes`: None where that is not known.
    - `chosen`: whoever made the report did not want it.
    """

    run: str | None
    part: str
    bytes: int | None = None
    chosen: bool = False


class RunPart(msgspec.Struct):
    """One run. `inside`: what is in its best and its latest checkpoint; `problems`: parts that could not be read."""

    id: str
    detail: RunDetail
    curve: RowCurve | None
    samples: list[Sample]
    notes: list[Note]
    log: list[LogEntry]
    checkpoints: list[Checkpoint]
    inside: list[CheckpointDetail]
    artifacts: list[ArtifactGroup]
    evaluations: list[EvaluationInfo]
    profile: list[TimingInfo]
    flow: Any
    series: list[HeldSeries]
    problems: dict[str, str]


def run_part(
    board: WebBoard, run_id: str, keys: Collection[str] | None, curve: RowCurve | None, left_out: list[LeftOut]
) -> RunPart:
    """All but its series. `keys`: metrics to take; None for all. What is left out is added to `left_out`."""
    problems: dict[str, str] = {}

    def read(part: str, answer: Callable[[WebBoard, str], list[T]]) -> list[T]:
        try:
            return answer(board, run_id)
        except (RequestError, OSError) as error:
            problems[part] = plain(str(error))
            return []

    info = detail.detail(board, run_id)
    _leave_out_inside(board, info, left_out)
    if keys is not None:
        info.metrics = [metric for metric in info.metrics if metric.key in keys]
    listed = read("checkpoints", checkpoints.checkpoints)
    return RunPart(
        id=run_id,
        detail=info,
        curve=curve,
        samples=_latest_samples(read("samples", tabs.samples), run_id, left_out),
        notes=read("notes", tabs.notes),
        log=read("log", tabs.log),
        checkpoints=listed,
        inside=_inside(board, run_id, listed, problems),
        artifacts=read("artifacts", artifacts.artifacts),
        evaluations=read("evaluations", tabs.evaluations),
        profile=read("profile", tabs.profile),
        flow=_flow(board, run_id, problems, left_out) if info.has.flow else None,
        series=[],
        problems=problems,
    )


def _leave_out_inside(board: WebBoard, info: RunDetail, left_out: list[LeftOut]) -> None:
    """What was told of the inside of the training: its page asks the server for each picture by itself."""
    info.has.inside = info.has.attention = False
    with board.open_whole(info.row.id) as run:
        if run.journal.looks:
            left_out.append(LeftOut(info.row.id, "what was told of the inside of the training: linnet board --web"))


def _latest_samples(samples: list[Sample], run_id: str, left_out: list[LeftOut]) -> list[Sample]:
    """As many as there is room for, from the latest back."""
    room, kept = _MOST_SAMPLE_TEXT, 0
    for sample in reversed(samples):
        room -= len(sample.text) + len(sample.prompt)
        if room < 0 and kept:
            break
        kept += 1
    if kept < len(samples):
        count = sum(len(sample.text) for sample in samples[: len(samples) - kept])
        left_out.append(LeftOut(run_id, f"the earliest {len(samples) - kept} of {len(samples)} samples", count))
    return samples[len(samples) - kept :]


def _inside(board: WebBoard, run_id: str, listed: list[Checkpoint], problems: dict[str, str]) -> list[CheckpointDetail]:
    """Metadata and tensors of those that one looks into: the best and the latest."""
    opened = []
    for checkpoint in listed:
        if checkpoint.best or checkpoint.latest or checkpoint is listed[0]:
            try:
                opened.append(checkpoints.checkpoint_detail(board, run_id, checkpoint.step))
            except (RequestError, OSError) as error:
                problems[f"checkpoint {checkpoint.step}"] = plain(str(error))
    return opened


def _flow(board: WebBoard, run_id: str, problems: dict[str, str], left_out: list[LeftOut]) -> Any:
    try:
        flow = tabs.flow(board, run_id)
    except (RequestError, OSError) as error:
        problems["flow"] = plain(str(error))
        return None
    count = len(msgspec.json.encode(flow))
    if count > _MOST_FLOW:
        left_out.append(LeftOut(run_id, "the graph of the model, flow.json", count))
        problems["flow"] = "flow.json is larger than a report holds"
        return None
    return flow
