"""Files that runs logged, as many as there is room for: of every name the latest first."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import msgspec

from linnet.board.report.column_pool import ColumnPool
from linnet.board.report.run_part import LeftOut, RunPart
from linnet.board.web.answers import ArtifactGroup, ArtifactItem, RequestError
from linnet.board.web.artifacts import artifact_content
from linnet.board.web.board import WebBoard

_LAST_OF_ALL = ("audio", "file")  # kinds that are taken where all else has found room
_PACKED = ("text/", "application/json", "image/svg", "image/bmp", "audio/")  # types that compression makes smaller


class HeldFile(msgspec.Struct):
    """A file in the report: the column it lies in, and its type."""

    run: str
    number: int
    column: int
    mime: str


def held_files(
    board: WebBoard, runs: Sequence[RunPart], pool: ColumnPool, room: int, largest: int | None = None
) -> tuple[list[HeldFile], list[LeftOut]]:
    """The files that fit into `room` bytes, compressed, and those that do not. `largest`: of one that is not shown."""
    held, left_out = list[HeldFile](), list[LeftOut]()
    for run_id, group, item in _by_importance(runs):
        content, mime, name = b"", "", group.name
        too_large = group.media == "file" and largest is not None and (item.bytes or 0) > largest
        if not too_large and (item.bytes or 0) <= room * 20:  # more than the best compression gains
            try:
                content, mime = _read(board, run_id, item)
            except (RequestError, OSError):
                left_out.append(LeftOut(run_id, f"{_named(name, item)}: it is not there any more", item.bytes))
                continue
        packed_size = len(zlib.compress(content, 6)) if mime.startswith(_PACKED) else len(content)
        if not mime or packed_size > room:
            left_out.append(LeftOut(run_id, _named(name, item), item.bytes))
            continue
        room -= packed_size
        held.append(HeldFile(run_id, item.number, pool.add_file(content), mime))
    return held, left_out


def _by_importance(runs: Sequence[RunPart]) -> Iterator[tuple[str, ArtifactGroup, ArtifactItem]]:
    """Of every name the latest, then of every name the one before, …; images, tables and texts before other files."""
    series = [(run.id, group) for run in runs for group in run.artifacts]
    for last in (False, True):
        chosen = [(run_id, group) for run_id, group in series if (group.media in _LAST_OF_ALL) == last]
        for back in range(max((len(group.items) for _, group in chosen), default=0)):
            for run_id, group in chosen:
                if back < len(group.items):
                    yield run_id, group, group.items[-1 - back]


def _read(board: WebBoard, run_id: str, item: ArtifactItem) -> tuple[bytes, str]:
    answer = artifact_content(board, run_id, item.number)
    return b"".join(answer.pieces()), answer.headers["content-type"]


def _named(name: str, item: ArtifactItem) -> str:
    return name if item.step is None else f"{name} of step {item.step}"
