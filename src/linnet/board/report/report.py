"""`make_report`: the page with the data of some runs, as the bytes of one HTML file."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from linnet.board.report.column_pool import ColumnInfo, ColumnPool
from linnet.board.report.held_files import HeldFile, held_files
from linnet.board.report.held_series import held_series, inherited_series
from linnet.board.report.page import Page
from linnet.board.report.run_part import LeftOut, RunPart, run_part
from linnet.board.web.answer_json import encoded
from linnet.board.web.answers import BoardInfo, RequestError, RowCurve, TableAnswer
from linnet.board.web.board import WebBoard
from linnet.board.web.parameters import Parameters
from linnet.board.web.safe_store import SafeStore
from linnet.board.web.series import with_header
from linnet.board.web.table import Tables
from linnet.board.words import plain, shorten

MAGIC = b"LNR1"
POINTS = 2_000  # columns of a long series
_FEWEST_POINTS = 250
_LARGEST = 2_000_000  # bytes of the file, where the user asks for no more
_LARGEST_WITHOUT_FILES = 1_750_000
_LARGEST_UNSHOWN = 50_000  # bytes of a file that the page does not show, such as a trace
_NAMED = 12  # metrics that are named where they are left out
_TRIES = 4  # numbers of columns that are tried until the file is small enough


class Contents(msgspec.Struct):
    """The head of a report's data; docs/report.md describes it. `columns`: of the pool that follows it."""

    made: float
    version: str
    machine: str
    title: str
    theme: str | None
    points: int
    board: BoardInfo
    table: TableAnswer
    runs: list[RunPart]
    files: list[HeldFile]
    left_out: list[LeftOut]
    columns: list[ColumnInfo]


@dataclass(frozen=True)
class ReportQuestion:
    """What goes into a report.

    - `folders`: of the runs, in the order in which they are shown; `root`: where they are listed from.
    - `keys`: which of a run's metrics; None for all. `files`: bytes of logged files; None for what fits into 2 MB.
    - `defaults`: what a recipe sets when nothing is asked for.
    """

    root: Path
    folders: tuple[Path, ...]
    title: str
    theme: str | None = None
    keys: frozenset[str] | None = None
    files: int | None = None
    defaults: Callable[[str], dict[str, Any]] = lambda recipe: {}


@dataclass(frozen=True)
class Report:
    """The file and what is told of it: columns of its long series, runs, and what it does not hold."""

    content: bytes
    runs: int
    points: int
    left_out: list[LeftOut]


class _ChosenStore(SafeStore):
    """The runs that a report is of, wherever they lie. What of them leads out of their folders is not read."""

    def __init__(self, root: Path, folders: tuple[Path, ...]) -> None:
        super().__init__(root, folders)
        self._folders = tuple(map(self.as_listed, folders))

    def folders(self) -> Iterator[Path]:
        yield from self._folders


def make_report(question: ReportQuestion, page: Page) -> Report:
    """Read the runs and write them into the page."""
    board = WebBoard(_ChosenStore(question.root, question.folders), question.folders, defaults=question.defaults)
    try:
        return _Writer(board, question, page).write()
    finally:
        board.close()


class _Writer:
    def __init__(self, board: WebBoard, question: ReportQuestion, page: Page) -> None:
        self._board, self._question, self._page = board, question, page
        self._left_out: list[LeftOut] = []
        info = board.info()
        self._ids = info.chosen
        self._contents = Contents(
            made=time.time(),
            version=info.version,
            machine=plain(platform.node())[:200],
            title=plain(question.title)[:500],
            theme=question.theme,
            points=POINTS,
            board=BoardInfo(plain(question.title)[:500], info.version, False, self._ids),
            table=Tables(board).table(Parameters(_Pairs({"hidden": ["1"]}))),
            runs=self._runs(),
            files=[],
            left_out=[],
            columns=[],
        )

    def _runs(self) -> list[RunPart]:
        curves: dict[str, RowCurve] = {}
        for run_id in self._ids:
            curves |= {curve.id: curve for curve in Tables(self._board).curves(Parameters(_Pairs({"runs": [run_id]})))}
        parts = []
        for run_id in self._ids:
            try:
                parts.append(run_part(self._board, run_id, self._question.keys, curves.get(run_id), self._left_out))
            except (RequestError, OSError) as error:
                self._left_out.append(LeftOut(run_id, f"the run, which cannot be read: {plain(str(error))}"))
        if self._question.keys is not None and (others := self._unrequested_metrics(self._question.keys)):
            and_more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            names = shorten(plain(", ".join(others[:_NAMED])), 500)
            self._left_out.append(LeftOut(None, f"metrics that were not asked for: {names}{and_more}", chosen=True))
        return parts

    def _unrequested_metrics(self, keys: frozenset[str]) -> list[str]:
        names: dict[str, None] = {}
        for run_id in self._ids:
            with suppress(RequestError, OSError), self._board.open(run_id) as run:
                names |= dict.fromkeys(run.history.names())
        return [name for name in names if name not in keys]

    def write(self) -> Report:
        points, pool = POINTS, self._take_series(POINTS)
        content = self._written(pool)
        for _ in range(_TRIES):
            if len(content) <= _LARGEST_WITHOUT_FILES or points <= _FEWEST_POINTS:
                break
            room = max(0.0, _LARGEST_WITHOUT_FILES - self._page.size) / (len(content) - self._page.size)
            points = max(_FEWEST_POINTS, int(points * room * 0.97))
            pool = self._take_series(points)
            content = self._written(pool)
        if any(run.artifacts for run in self._contents.runs):
            content = self._with_files(pool, max(0, _LARGEST - len(content)) * 3 // 4 - 2_000)
        return Report(content, len(self._contents.runs), points, self._contents.left_out)

    def _take_series(self, points: int) -> ColumnPool:
        pool = ColumnPool()
        self._contents.points = points
        for part in self._contents.runs:
            keys = [metric.key for metric in part.detail.metrics]
            with self._board.open(part.id) as run:
                run.read_turns()
                part.series = held_series(pool, run, part.id, keys, points)
            part.series += inherited_series(pool, self._board, part.id, keys, points)
        return pool

    def _with_files(self, pool: ColumnPool, room_left: int) -> bytes:
        mode = self._question.files
        room, largest = (room_left, _LARGEST_UNSHOWN) if mode is None else (mode, None)
        self._contents.files, missing = held_files(self._board, self._contents.runs, pool, room, largest)
        self._left_out += missing
        return self._written(pool)

    def _written(self, pool: ColumnPool) -> bytes:
        self._contents.columns, self._contents.left_out = pool.columns, self._left_out
        data = with_header(MAGIC, encoded(self._contents), pool.content)
        return self._page.filled(self._contents.title, data, self._question.theme)


class _Pairs:
    """The parameters of a request that nobody sent."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self._values = values

    def get(self, key: str, /) -> str | None:
        return next(iter(self._values.get(key, ())), None)

    def getlist(self, key: str, /) -> Sequence[str]:
        return self._values.get(key, ())
