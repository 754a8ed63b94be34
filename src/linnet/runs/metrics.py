"""`Metrics`: every number of a run by name, kept up to date from its stream."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from linnet.display import html_table, plain
from linnet.errors import LinnetError, near_words
from linnet.runs import cache
from linnet.runs.decoding import Segment, decoded_blocks, segments, workers_for
from linnet.runs.lines import LineReader
from linnet.runs.metric_names import goal_of, main_metric
from linnet.runs.metric_parser import MetricParser
from linnet.runs.series import Rows, Series, StoredRowsError, Table

if TYPE_CHECKING:
    from pandas import DataFrame


class UnknownMetricError(LinnetError, KeyError):
    """A metric that a run does not have: `metrics["lss"]`. What was meant is looked for only when the line is read."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        if close := near_words(self.name, self.known):
            return f"no metric {self.name!r}; did you mean {close[0]!r}?"
        known = ", ".join(self.known[:8]) + (" …" if len(self.known) > 8 else "")
        return f"no metric {self.name!r}; there is {known or 'none'}"


class BlockListener(Protocol):
    """Another consumer of a stream's lines, so that it is read once. Called by `Metrics.refresh`."""

    def take(self, block: bytes, begin: int, end: int, parts: Sequence[Segment]) -> None:
        """Whole lines: what stands between two places of the file, or all of it that is no line too long to be held.

        `parts`: the block's segments. Those that have columns are plain steps, with nothing in them but numbers.
        Where `begin` lies behind the last `end`, a cache has spared the reader what stands between; where it lies
        before it, a damaged cache made it read again.
        """
        ...

    def begin_anew(self) -> None:
        """The stream is another one; what follows is taken from its beginning."""
        ...


class Metrics(Mapping[str, Series]):
    """The metrics of one stream: `metrics["loss"].value`, `.step`, `.t`, `.latest`, `.best`, `.downsample(n)`.

    - `goals`: which way is better, by name; a stream may declare more.
    - `origin`: the Unix time at which a kaun-board or munin run began.
    - `superseded`: show also the steps that a resumed run has trained again.
    - `cached`: keep what was read beside the stream, so that opening it again is instant.
    - `read`: take in at once what there is; without, nothing until the first `refresh`.
    - `listener`: gets every block that is read, and is told how far a cache reaches.
    - `workers`: processes that help to decode a stream that is read whole; None: as many as its length is worth.

    `refresh` takes in what was written since.
    """

    most_memory = 80 << 20  # bytes of rows; beyond, the older ones wait on disk until all is read
    cached_from = 1 << 20  # bytes of a stream; shorter ones are read faster than they are worth keeping

    def __init__(
        self,
        events: Path,
        *,
        goals: Mapping[str, str] | None = None,
        origin: float = 0.0,
        superseded: bool = False,
        cached: bool = True,
        read: bool = True,
        listener: BlockListener | None = None,
        workers: int | None = None,
    ) -> None:
        self._reader = LineReader(events)
        self._listener = listener
        self._workers = workers
        self._declared = dict(goals or {})
        self._origin = origin
        self._superseded = superseded
        self._cached = cached and not superseded
        self._generation = 0
        self._series: dict[str, Series] = {}
        self._parser = self._fresh()
        self._saved_at = 0
        self._writer: cache.CacheWriter | None = None  # while rows wait on disk
        self._before: list[int] = []  # the stream's stamp before the latest reading began
        if self._cached and (stored := cache.load(events, origin)) is not None:
            header, tables = stored
            self._parser.restore(tables, header.state)
            self._reader.skip_to(header.position, header.crc, header.oversized)
            self._saved_at = header.position
            if listener is not None:
                listener.take(b"", header.position, header.position, ())
        if read:
            self.refresh()

    def refresh(self, blocks: int | None = None) -> bool:
        """Take in what is new; True when there was something.

        `blocks`: stop after so many, of about a megabyte each, and leave it to the caller to `keep` what was read.
        """
        self._before = cache.stamp(self._reader.path) if self._cached else []
        changed = self._refresh_with_workers() if blocks is None and self._listener is None else False
        reading, n_blocks = True, 0
        while reading and (blocks is None or n_blocks < blocks):
            begin, block, n_blocks = self._reader.position, self._reader.read_block(), n_blocks + 1
            replaced = self._begin_anew_if_replaced()
            changed |= replaced
            parts = None
            if self._listener is not None:
                parts = self._hand_on(self._listener, block, begin, replaced)
            if block:
                self._take(block, whole=blocks is None, parts=parts)
                changed = True
            reading = bool(block)
        if changed:
            self._series.clear()
            if blocks is None:
                self.keep()
        return changed

    def verify(self) -> None:
        """Look through all that was kept beside the stream; where it is damaged, the next `refresh` reads all anew."""
        try:
            for table in self._parser.tables():
                if table.stored is not None:
                    for key in Rows.keys(table.names):
                        table.stored.column(key)
        except StoredRowsError:
            self._forget()

    def drain(self) -> list[Table]:
        """Hand over the rows read so far and forget them: for a reader that keeps a smaller form of its own.

        Names, steps and counts stay known. Nothing is kept beside the stream from here on.
        """
        tables, state = self._parser.tables(), self._parser.state
        self._parser = self._fresh()
        self._parser.restore([], state)
        self._series.clear()
        self._cached = False
        return tables

    def tables(self) -> list[Table]:
        """The rows themselves, by which metrics were logged together."""
        return self._parser.tables()

    @property
    def generation(self) -> int:
        """How often the stream turned out to be another than the one that was read; all rows then came anew."""
        return self._generation

    @property
    def position(self) -> int:
        """Bytes of the stream that were taken."""
        return self._reader.position

    @property
    def resumes(self) -> int:
        """How many events were met that made later steps void."""
        return self._parser.resumes

    @property
    def goals(self) -> dict[str, str]:
        """Which way is better, by name, as far as it was declared."""
        return {**self._parser.state.goals, **self._declared}

    @property
    def damaged(self) -> int:
        """Lines that could not be read."""
        return self._parser.state.damaged + self._reader.oversized

    @property
    def trouble(self) -> str:
        """Why the stream cannot be read now; empty when it can, or is not there yet."""
        return self._reader.trouble

    @property
    def last_step(self) -> int | None:
        """The highest step of training seen."""
        return self._parser.state.last_step

    @property
    def last_epoch(self) -> float | None:
        """The highest epoch seen."""
        return self._parser.state.last_epoch

    @property
    def main(self) -> Series | None:
        """The metric to show when there is room for one."""
        name = main_metric(self.names())
        return None if name is None else self[name]

    def names(self) -> list[str]:
        """All metrics, in the order in which they first came."""
        return self._parser.names()

    def __getitem__(self, name: str) -> Series:
        if name not in self._series:
            parts = self._parser.tables_with(name)
            if not parts:
                raise UnknownMetricError(name, self.names())
            self._series[name] = Series(name, parts, goal_of(name, self.goals), self._renewal(name))
        return self._series[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def to_pandas(self, names: Iterable[str] | None = None) -> DataFrame:
        """A DataFrame with a row a step and a column a metric, NaN where it has no value at that step.

        `names`: the metrics wanted; without, all but the machine's figures (`sys/`). Needs pandas.
        """
        from linnet.runs.frame import to_pandas

        return to_pandas(self, names)

    def __repr__(self) -> str:
        names = self.names()
        return f"<Metrics: {plain(', '.join(names[:8]))}{f' and {len(names) - 8} more' if len(names) > 8 else ''}>"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        for name in self:
            latest = self[name].latest
            yield plain(name), None if latest is None else latest[1]

    def _repr_html_(self) -> str:
        return html_table(
            "Metrics", ("metric", "last", "best", "at step", "points"), [self[n].html_cells() for n in self]
        )

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def _hand_on(self, listener: BlockListener, block: bytes, begin: int, replaced: bool) -> list[Segment]:
        """Give a block to the listener; its segments, which both go by."""
        if replaced:
            listener.begin_anew()
        begin, end = 0 if replaced else begin, self._reader.position
        parts = list(segments(block)) if block else []
        if end > begin:
            listener.take(block, begin, end, parts)
        return parts

    def _refresh_with_workers(self) -> bool:
        """Take in a long stream with worker processes; True when there was something, False also without any."""
        reader = self._reader
        workers = workers_for(reader.unread()) if self._workers is None else self._workers
        if not workers:
            return False
        replaced, block, changed = False, b"", False

        def read() -> bytes:
            nonlocal replaced, block
            block = reader.read_block()
            replaced = self._begin_anew_if_replaced()
            return b"" if replaced else block

        for n_blocks, parts in decoded_blocks(reader, workers, read):
            if replaced:  # this was read of a stream that is gone
                break
            self._take(n_blocks, whole=True, parts=parts)
            changed = True
            if self._reader is not reader:  # a damaged cache was met: all is read anew
                return True
        if replaced and block:
            self._take(block, whole=True)
        return changed or replaced

    def _begin_anew_if_replaced(self) -> bool:
        """Forget all rows when the stream is another than the one that was read; also when nothing stands in it."""
        if self._reader.generation == self._generation:
            return False
        self._generation = self._reader.generation
        self._parser = self._fresh()
        return True

    def _take(self, block: bytes, whole: bool, parts: Sequence[Segment] | None = None) -> None:
        """Take in a block; while a stream is read `whole`, no more rows than needed stay in memory."""
        try:
            self._parser.take(block, parts)
        except StoredRowsError:  # a resume goes back to rows that were kept, and they are damaged
            self._forget()
        try:
            if whole and self._cached and self._parser.memory > self.most_memory:
                self._writer = self._writer or cache.CacheWriter(self._reader.path)
                self._parser.move_older(self._writer.put)
        except (OSError, ValueError):  # no room, or not ours to write to: memory has to do
            self._cached = False

    def _forget(self) -> None:
        """Begin anew with the stream, as if nothing of it had been read or kept."""
        self._reader.close()
        self._reader = LineReader(self._reader.path)
        self._parser, self._writer = self._fresh(), None
        self._generation = self._saved_at = 0
        self._series.clear()

    def _renewal(self, name: str) -> Callable[[], list[Rows]]:
        """A callback that reads the rows of a metric anew, also when these metrics are gone: it keeps no reference."""
        these, path, origin = weakref.ref(self), self._reader.path, self._origin
        return lambda: (these() or Metrics(path, origin=origin, read=False))._renew(name)

    def _renew(self, name: str) -> list[Rows]:
        """The rows of a metric, read anew."""
        self._forget()
        self.refresh()
        return self._parser.tables_with(name)

    def _fresh(self) -> MetricParser:
        return MetricParser(origin=self._origin, superseded=self._superseded)

    def keep(self) -> None:
        """Keep what was read beside the stream, once enough is new to be worth it."""
        new = self._reader.position - self._saved_at
        worth = max(self.cached_from, self._saved_at // 4)
        if self._cached and not self._reader.in_long_line and (new >= worth or new < 0 or self._writer is not None):
            self._saved_at = self._reader.position
            header = cache.Header(
                position=self._reader.position,
                crc=self._reader.crc,
                oversized=self._reader.oversized,
                origin=self._origin,
                stamp=self._before,
                state=self._parser.state,
            )
            tables = cache.save(self._reader.path, header, self._parser.tables(), self._writer)
            self._cached = tables is not None
            if tables is not None and self._writer is not None:
                self._parser.restore(tables, self._parser.state)
                self._writer = None
