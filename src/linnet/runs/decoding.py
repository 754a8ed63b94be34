"""Decoding blocks of lines into columns: a long run is a million lines with the same fields.

Lines of one schema are decoded together, and a long stream by several processes, since turning JSON into columns fills
one core. The reader stays in charge: it reads the blocks, gives some to workers, decodes others itself and takes all of
them in the order of the stream. Where a worker does not answer, the reader decodes its block; so what is read never
depends on workers.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.files import read_at
from linnet.runs.events import Event, parse
from linnet.runs.inspection_lines import INSPECTION_HEADS, SHORT_HEADS
from linnet.runs.line_struct import LineStructs, NumberFields
from linnet.runs.lines import LineReader
from linnet.runs.metric_names import is_field_name, rows

_ENVELOPE = ("kind", "phase", "t", "step", "epoch")
_MOST_SCHEMAS = 256  # held ready; a stream of ever new fields must not take memory for each
_LEAST_LINES = 32  # fewer lines are not worth decoding together
_HEAD = re.compile(rb"[^0-9\-\n]{1,24}")  # how the lines of one schema begin: all that stands before the first number
_NEWLINE, _BRACE = ord("\n"), ord("}")
_LOOK_HEAD = len(SHORT_HEADS[0])
_schemas: dict[tuple[str, ...], LineSchema] = {}

PARALLEL_BYTES = 128 << 20  # of a stream that is worth workers: one takes a quarter of a second to come
_MOST_WORKERS = 3  # what the reader does alone, reading, checksums and keeping, is a third of it all
_AHEAD = 2  # blocks that a worker has before it, so that it need not wait
_MOST_WAITING = 12  # blocks read and not taken yet
_PIPE = 1 << 20  # bytes: an answer fits, and nobody waits for the other

Columns = list[NDArray[Any]]  # `step`, `t`, `epoch`, and one a metric


class LineSchema:
    """Lines of plain `step` events with the same fields: a decoder made for them, and how to get at each column.

    `names`: the metrics, in the order of the line.
    """

    def __init__(self, example: dict[str, Any]) -> None:
        self.names = tuple(name for name in example if name not in _ENVELOPE)
        types: dict[str, Any] = dict.fromkeys(example, float)
        types |= {"kind": Literal["step"], "step": int}
        if "phase" in example:
            types["phase"] = Literal["train"]
        fields = NumberFields(types)
        row = msgspec.defstruct(
            "Row",
            [(fields.attributes[name], kind) for name, kind in types.items()],  # in the order of the line: faster
            rename=fields.rename,
            forbid_unknown_fields=True,
            gc=False,
        )
        self._structs = LineStructs(row)
        self._getters = fields.getters

    def decode(self, lines: bytes) -> Columns | None:
        """The columns of whole lines; None when one of them has another schema, is damaged or empty."""
        decoded = self._structs.decode(lines)
        if decoded is None:
            return None
        try:
            return [self._column(decoded, name) for name in ("step", "t", "epoch", *self.names)]
        except OverflowError:  # a step of more than 64 bits
            return None

    def _column(self, decoded: Sequence[Any], name: str) -> NDArray[Any]:
        """One field of every row; NaN where the schema has none."""
        if name not in self._getters:
            return np.full(len(decoded), np.nan)
        kind = np.int64 if name == "step" else np.float64
        return np.fromiter(map(self._getters[name], decoded), dtype=kind, count=len(decoded))


def schema_of(line: bytes) -> LineSchema | None:
    """The schema of a line; None when it is no plain training step."""
    fields = parse(line)
    if fields is None or not _is_plain_step(fields):
        return None
    key = tuple(fields)
    if key not in _schemas:
        if len(_schemas) >= _MOST_SCHEMAS:
            _schemas.clear()
        _schemas[key] = LineSchema(fields)
    return _schemas[key]


class Segment(NamedTuple):
    """Successive whole lines, `block[begin:end]`: steps of one schema as columns; without columns, to take singly.

    `looks`: lines without columns in which there are no metrics (`inspection_lines.py`), so many.
    """

    begin: int
    end: int
    names: tuple[str, ...] = ()
    columns: Columns | None = None
    looks: int = 0


def segments(block: bytes) -> Iterator[Segment]:
    """Cut a block of whole lines, in order, into segments of steps of one schema and what stands between them."""
    first = schema_of(block[: block.index(b"\n") + 1])
    if first is not None and (columns := first.decode(block)) is not None:
        yield Segment(0, len(block), first.names, columns)
        return
    content = np.frombuffer(block, dtype=np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(content == _NEWLINE) + 1])
    looks = _are_looks(content, starts)
    bounds = [0, *(np.flatnonzero(np.diff(looks)) + 1).tolist(), len(looks)]
    for begin, end in pairwise(bounds):
        if looks[begin]:
            yield Segment(int(starts[begin]), int(starts[end]), looks=end - begin)
        else:
            yield from _of_lines(block, content, starts[begin : end + 1])


def _are_looks(content: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[Any]:
    """Which lines are whole events in which there are no metrics."""
    heads = content.take(starts[:-1, None] + np.arange(_LOOK_HEAD), mode="clip").view(f"S{_LOOK_HEAD}").ravel()
    ends = content[np.maximum(starts[1:] - 2, 0)]
    looks: NDArray[Any] = np.isin(heads, SHORT_HEADS) & (ends == _BRACE)
    for at in np.flatnonzero(looks & (heads == SHORT_HEADS[-1])):  # longer heads begin so: `region_`
        looks[at] = content[starts[at] : starts[at + 1]].tobytes().startswith(INSPECTION_HEADS)
    return looks


def _of_lines(block: bytes, content: NDArray[np.uint8], starts: NDArray[np.int64]) -> Iterator[Segment]:
    """Segments of successive lines, by an example from among them."""
    middle = len(starts) // 2 - 1
    for index in (middle, 0, len(starts) - 2):
        example = block[starts[index] : starts[index + 1]]
        if (schema := schema_of(example)) is not None and (head := _HEAD.match(example)) is not None:
            begins = starts[:-1, None] + np.arange(head.end())
            alike = (content.take(begins, mode="clip") == np.frombuffer(head[0], dtype=np.uint8)).all(axis=1)
            bounds = np.flatnonzero(np.diff(alike)) + 1
            for begin, end in zip([0, *bounds], [*bounds, len(alike)], strict=True):
                yield from _cut(block, starts[begin : end + 1], schema if alike[begin] else None)
            return
    yield Segment(int(starts[0]), int(starts[-1]))


def _cut(block: bytes, starts: NDArray[np.int64], schema: LineSchema | None) -> Iterator[Segment]:
    """Lines that begin alike, as one segment where they have the schema; else in halves, while there are enough."""
    begin, end = int(starts[0]), int(starts[-1])
    if schema is None or len(starts) <= _LEAST_LINES:
        yield Segment(begin, end)
    elif (columns := schema.decode(block[begin:end])) is not None:
        yield Segment(begin, end, schema.names, columns)
    else:
        half = len(starts) // 2
        yield from _cut(block, starts[: half + 1], schema)
        yield from _cut(block, starts[half:], schema)


def _is_plain_step(fields: dict[str, Any]) -> bool:
    if fields.get("kind") != "step" or fields.get("phase", "train") != "train" or "type" in fields:
        return False
    names = tuple(name for name in fields if name not in _ENVELOPE)
    if not all(map(is_field_name, names)):
        return False
    numeric = all(type(fields[name]) in (int, float) for name in (*names, "t", "step") if name in fields)
    if not names or not numeric or not {"t", "step"} <= fields.keys():
        return False
    # some field may have a meaning of its own
    return tuple(name for name, _ in rows(Event("step", 0.0, 0, fields))) == names


# -- with several processes ----------------------------------------------------------------------------------------


def workers_for(size: int) -> int:
    """How many worker processes are worth their start for so many bytes, on the processors that may be used."""
    if size < PARALLEL_BYTES or os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
        return 0
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_WORKERS, cpus - 1)


def decoded_blocks(
    reader: LineReader, workers: int, read: Callable[[], bytes] | None = None
) -> Iterator[tuple[bytes, list[Segment]]]:
    """Every block of the reader, in order, with its segments; `read` gives the next one, and may end it before."""
    read = read or reader.read_block
    team: list[_Worker] | None = None
    waiting: deque[tuple[bytes, list[Segment] | _Worker]] = deque()
    try:
        while block := read():
            if team is None:  # the file is open only now
                team = _start_workers(reader.fd, workers)
            free = min(team, key=lambda worker: worker.ahead, default=None)
            if free is not None and free.ahead < _AHEAD:
                free.ask(reader.position - len(block), len(block))
                waiting.append((block, free))
            else:
                waiting.append((block, list(segments(block))))
            while waiting and (_is_decoded(waiting[0][1]) or len(waiting) > _MOST_WAITING):
                yield _decoded(*waiting.popleft())
        while waiting:
            yield _decoded(*waiting.popleft())
    finally:
        for worker in team or ():
            worker.close()


def _start_workers(fd: int, count: int) -> list[_Worker]:
    workers: list[_Worker] = []
    with suppress(OSError):  # no Python to be started, or no descriptors left: the reader decodes alone
        workers.extend(_Worker(fd) for _ in range(count))
    return workers


def _is_decoded(answer: list[Segment] | _Worker) -> bool:
    return answer.has_answer() if isinstance(answer, _Worker) else True


def _decoded(block: bytes, answer: list[Segment] | _Worker) -> tuple[bytes, list[Segment]]:
    decoded = answer.answer() if isinstance(answer, _Worker) else answer
    return block, list(segments(block)) if decoded is None else decoded


class _Worker:
    """A process that decodes blocks of the file that is open as `fd`. `ahead`: blocks it was asked for and still has.

    One that has died gives no answers.
    """

    def __init__(self, fd: int) -> None:
        import subprocess  # most streams are short
        from multiprocessing import Pipe

        self.ahead = 0
        asked, self._asking = Pipe(duplex=False)
        self._answers, answering = Pipe(duplex=False)
        _widen(answering.fileno())
        ends = asked.fileno(), answering.fileno()
        with asked, answering:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve({fd}, {ends[0]}, {ends[1]})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[fd, *ends],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def ask(self, offset: int, length: int) -> None:
        """Have it decode the block that stands there."""
        self.ahead += 1
        with suppress(OSError):
            self._asking.send((offset, length))

    def has_answer(self) -> bool:
        """It need not be waited for."""
        return self._answers.poll()

    def answer(self) -> list[Segment] | None:
        """The segments of the block that it was asked first; None when there is no answer."""
        self.ahead -= 1
        try:
            decoded: list[Segment] = self._answers.recv()
        except (OSError, EOFError):
            return None
        return decoded

    def close(self) -> None:
        """End it, whatever it is at."""
        self._asking.close()
        self._answers.close()
        self.process.kill()
        self.process.wait()


def serve(fd: int, asked: int, answering: int) -> None:
    """The loop of a worker process: decode block after block of the file, until none is asked for."""
    from multiprocessing.connection import Connection

    requests, answers = Connection(asked, writable=False), Connection(answering, readable=False)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            offset, length = requests.recv()
            answers.send(list(segments(read_at(fd, length, offset))))


def _widen(pipe: int) -> None:
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
