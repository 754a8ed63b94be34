"""`MetricParser`: from blocks of lines to tables of metrics.

Lines of one schema are decoded together; whatever does not fit is taken line by line, the careful way, with the same
result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.runs.decoding import Columns, Segment, schema_of, segments
from linnet.runs.events import Event, as_number, decode
from linnet.runs.inspection_lines import is_inspection
from linnet.runs.lines import split_lines
from linnet.runs.metric_names import counts_as_training, rows
from linnet.runs.series import Rows, Table

if TYPE_CHECKING:
    from linnet.runs.cache import StoredRows

_MOST_TABLES = 256  # beyond so many combinations each metric gets a table of its own
_FEW = 16  # lines not worth a decoder
_FEW_BYTES = 4 << 10  # of lines that may be taken singly without sorting the others
_HEAD = 24  # bytes by which lines of a different schema are told apart


class ParserState(msgspec.Struct):
    """What a parser knows besides its tables: what a cache must keep, and must fit to be one.

    `step_now`: that of the latest line with metrics, or resume, that has one; a line without one belongs to it.
    """

    damaged: int
    lines: int
    last_step: int | None
    last_epoch: float | None
    step_now: int
    goals: dict[str, str]


class MetricParser:
    """Parses blocks of whole lines and keeps their metrics, in a table for those that are logged together.

    - `origin`: the Unix time at which a foreign run began.
    - `superseded`: keep the steps that a `resume` has made void.
    """

    def __init__(self, *, origin: float = 0.0, superseded: bool = False) -> None:
        self.state = ParserState(damaged=0, lines=0, last_step=None, last_epoch=None, step_now=0, goals={})
        self.resumes = 0  # events met that made later steps void; not kept
        self._origin = origin
        self._superseded = superseded
        self._tables: dict[tuple[str, ...], Table] = {}
        self._buffers: dict[tuple[str, ...], list[list[float]]] = {}
        self._stepless: list[tuple[tuple[str, ...], list[float]]] = []
        self._block_start = 0

    def take(self, block: bytes, parts: Sequence[Segment] | None = None) -> None:
        """Take in one block of whole lines; `parts`: its segments, where they were cut already."""
        self._block_start = self.state.lines
        if not self._take_segments(block, list(segments(block)) if parts is None else parts):
            self._take_mixed(block)
        self._flush()

    def names(self) -> list[str]:
        """Every metric, in order of appearance."""
        return list(dict.fromkeys(name for names in self._tables for name in names))

    def tables_with(self, name: str) -> list[Rows]:
        """The tables that hold a metric, as they stand."""
        return [table.now() for names, table in self._tables.items() if name in names]

    def tables(self) -> list[Table]:
        """All tables, for keeping."""
        return list(self._tables.values())

    def move_older(self, put: Callable[[Rows], StoredRows]) -> None:
        """Have the older rows of every table `put` on disk, behind those that are there."""
        for table in self._tables.values():
            table.move_older(put)

    @property
    def memory(self) -> int:
        """Bytes of the rows in memory."""
        return sum(table.memory for table in self._tables.values())

    def restore(self, tables: Sequence[Table], state: ParserState) -> None:
        """Go on from what was kept."""
        self._tables = {table.names: table for table in tables}
        self.state = state

    # -- lines of one schema -----------------------------------------------------------------------------------

    def _take_segments(self, block: bytes, parts: Sequence[Segment]) -> bool:
        """Take a block that is mostly steps of one schema, in order; False, with nothing taken, when it is not."""
        sizes = {part.begin: part.end - part.begin for part in parts if not part.looks}
        others = sum(sizes[part.begin] for part in parts if part.columns is None and not part.looks)
        if others > max(_FEW_BYTES, sum(sizes.values()) // 4):
            return False
        for part in parts:
            if part.looks:
                self.state.lines += part.looks
            elif part.columns is None:
                self._take_lines(block[part.begin : part.end])
                self._empty_buffers()  # so that metrics are known in the order in which they came
            else:
                end = self.state.lines + len(part.columns[0])
                self._take_columns(part.names, np.arange(self.state.lines, end, dtype=np.int64), part.columns)
                self.state.lines = end
        return True

    def _take_columns(self, names: tuple[str, ...], lines: NDArray[np.int64], columns: Columns) -> None:
        step, _, epoch, *_ = columns
        self._see(int(step.max()), float(epoch.max()))
        self._table(names).extend([lines, *columns])

    def _take_lines(self, block: bytes) -> None:
        for line in split_lines(block):
            self._take_line(line)

    def _take_mixed(self, block: bytes) -> None:
        """Sort lines by how they begin; take those of one schema together and the others one by one, in order."""
        if b'"resume' in block:  # what follows a resume makes void what stands before it: strictly in order
            self._take_lines(block)
            return
        heads: dict[bytes, tuple[list[int], list[bytes]]] = {}
        base, lines = self.state.lines, split_lines(block)
        for number, line in enumerate(lines, base):
            if is_inspection(line):
                continue
            numbers, alike = heads.setdefault(line[:_HEAD], ([], []))
            numbers.append(number)
            alike.append(line)
        if len(heads) > _MOST_TABLES:
            heads = {b"": (list(range(base, base + len(lines))), lines)}
        for numbers, alike in heads.values():
            self._take_alike(numbers, alike)
        self.state.lines = base + len(lines)

    def _take_alike(self, numbers: list[int], lines: list[bytes]) -> None:
        if len(lines) >= _FEW:
            examples = map(schema_of, (lines[len(lines) // 2], lines[0], lines[-1]))
            schema = next((schema for schema in examples if schema is not None), None)
            columns = None if schema is None else schema.decode(b"\n".join(lines) + b"\n")
            if schema is not None and columns is not None:
                self._take_columns(schema.names, np.array(numbers, dtype=np.int64), columns)
                return
            half = len(lines) // 2
            if schema is not None and half >= _FEW:
                self._take_alike(numbers[:half], lines[:half])
                self._take_alike(numbers[half:], lines[half:])
                return
        for number, line in zip(numbers, lines, strict=True):
            self.state.lines = number
            self._take_line(line)

    # -- any line ----------------------------------------------------------------------------------------------

    def _take_line(self, line: bytes) -> None:
        number, self.state.lines = self.state.lines, self.state.lines + 1
        if is_inspection(line):
            return
        event = decode(line, self._origin)
        if event is None:
            self.state.damaged += 1
        elif event.kind == "resume":
            self._resume(event)
        elif event.kind == "goal":
            metric, goal = event.data.get("metric"), event.data.get("goal")
            if isinstance(metric, str) and goal in ("min", "max"):
                self.state.goals[metric] = goal
        elif metrics := dict(rows(event)):
            self._take_event(event, number, metrics)

    def _take_event(self, event: Event, line: int, metrics: dict[str, float]) -> None:
        epoch = as_number(event.data.get("epoch"))
        if counts_as_training(event):
            self._see(event.step, epoch)
        known = len(self._tables) + len(self._buffers) < _MOST_TABLES or tuple(metrics) in self._tables
        for part in [metrics] if known else [{name: value} for name, value in metrics.items()]:
            row = [line, event.step or 0, event.t, epoch, *part.values()]
            if event.step is None:
                self._stepless.append((tuple(part), row))
            else:
                self._buffers.setdefault(tuple(part), []).append(row)

    def _resume(self, event: Event) -> None:
        """Steps beyond the one a run went on from are void: they were trained again. The machine's figures stay."""
        self._flush()
        if event.step is None:
            return
        self.resumes += 1
        self.state.step_now, self._block_start = event.step, self.state.lines
        if self._superseded:
            return
        for names, table in self._tables.items():
            if not all(name.startswith("sys/") for name in names):
                table.keep_to(event.step)
        self.state.last_step = event.step

    def _see(self, step: int | None, epoch: float) -> None:
        if step is not None and (self.state.last_step is None or step > self.state.last_step):
            self.state.last_step = step
        if epoch == epoch and (self.state.last_epoch is None or epoch > self.state.last_epoch):
            self.state.last_epoch = epoch

    def _table(self, names: tuple[str, ...]) -> Table:
        if names not in self._tables:
            self._tables[names] = Table(names)
        return self._tables[names]

    def _flush(self) -> None:
        """Bring the rows taken one by one into the tables, and all rows into the order of the stream."""
        self._empty_buffers()
        lines, steps = self._steps_of_block()
        for names, row in self._stepless:
            before = int(np.searchsorted(lines, row[0])) - 1
            row[1] = int(steps[before]) if before >= 0 else self.state.step_now
            self._buffers.setdefault(names, []).append(row)
        self._stepless.clear()
        self._empty_buffers()
        if len(steps):
            self.state.step_now = int(steps[-1])

    def _empty_buffers(self) -> None:
        for names, table_rows in self._buffers.items():
            columns: list[Any] = list(zip(*table_rows, strict=True))
            self._table(names).extend(columns)
        self._buffers.clear()
        for table in self._tables.values():
            table.settle()

    def _steps_of_block(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lines of this block that have a step, and their steps, in order."""
        lines, steps = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for names, table in self._tables.items():
            if names[0].startswith(("decode/", "serve/")):  # tokens or requests, not steps of training
                continue
            now = table.now()
            since = np.searchsorted(now.recent("line"), self._block_start)
            lines.append(now.recent("line")[since:])
            steps.append(now.recent("step")[since:])
        order = np.argsort(np.concatenate(lines), kind="stable")
        return np.concatenate(lines)[order], np.concatenate(steps)[order]
