"""`Journal`: what a run tells besides numbers: samples, notes, checkpoints, turns, warnings, damaged lines."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from linnet.board.gallery import ArtifactSeries, series_of
from linnet.board.words import flags
from linnet.runs import Event, Run
from linnet.runs.artifacts import ArtifactList
from linnet.runs.baseline import Comparison, latest_of, to_comparison
from linnet.runs.decoding import Segment
from linnet.runs.events import as_number, decode
from linnet.runs.inspection_lines import inspection_runs, own_regions
from linnet.runs.lines import LineReader

_NUMBERS = (  # how the lines of most runs begin, or nearly so; a block of nothing else needs no second look
    b'"kind":"step"',
    b'"kind":"scalars"',
    b'"kind":"system"',
    b'"kind":"heartbeat"',
    b'"type":"scalar"',
    b'"type":"metric"',
)
_HEAD = 40  # bytes in which a line tells its kind
_SAMPLES, _NOTES, _ENTRIES, _CHECKPOINTS, _EVALUATIONS, _TIMINGS = 200, 500, 1000, 2000, 500, 100
_COMPARISONS = 500
_CLASSES = 1000  # of a classifier whose figures are kept by class
_NOT_LOGGED = frozenset(
    ("step", "scalars", "system", "heartbeat", "eval", "tap", "grad", "drift", "align", "mask", "goal")
)


@dataclass(frozen=True)
class Sample:
    """A text that the model generated at a step."""

    step: int | None
    t: float
    prompt: str
    text: str


@dataclass(frozen=True)
class LogEntry:
    """A line of the log. `level`: `info`, `warning` or `error`."""

    t: float
    step: int | None
    level: str
    text: str


@dataclass(frozen=True)
class Note:
    """A text that somebody wrote about the run."""

    t: float
    step: int | None
    at: str
    text: str


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found. `per_class`, `confusion`: of a classifier; counts are by label, then by guess."""

    step: int | None
    t: float
    name: str
    samples: int | None
    figures: dict[str, float]
    per_class: dict[str, float] | None
    confusion: tuple[list[str], list[list[int]]] | None


@dataclass(frozen=True)
class OpTiming:
    """Where the time of steps went, in microseconds by operation."""

    step: int | None
    t: float
    compute_us: float
    buckets: dict[str, float]


class Journal:
    """Keeps of a stream all that is not a number. One thread feeds it; the lists are for others to show.

    It gets the blocks that the metrics are read from (`linnet.runs.metrics.BlockListener`), so the stream is read once;
    only what a cache spared the metrics it reads itself, by `catch_up`. The lists are bounded: of very many, the latest
    are kept.
    """

    def __init__(self, run: Run) -> None:
        self._origin = run.origin
        self._folder = run.path
        self._events = run.events_path
        self._lock = threading.Lock()
        self._reader: LineReader | None = None  # of what the metrics need not read
        self._position = 0  # bytes of the stream that were taken
        self._end = 0  # and those that the metrics have taken
        self._clear()

    def _clear(self) -> None:
        self.lines = 0
        self.damaged = 0
        self.looks = 0  # lines that tell of the training's inside (`linnet.runs.inspection`), not kept here
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._notes: deque[Note] = deque(maxlen=_NOTES)
        self._entries: deque[LogEntry] = deque(maxlen=_ENTRIES)
        self._checkpoints: dict[str, dict[str, Any]] = {}
        self._evaluations: deque[Evaluation] = deque(maxlen=_EVALUATIONS)
        self._timings: deque[OpTiming] = deque(maxlen=_TIMINGS)
        self._comparisons: deque[Comparison] = deque(maxlen=_COMPARISONS)
        self._artifacts = ArtifactList(self._folder)
        self._series: tuple[int, list[ArtifactSeries]] | None = None  # made of so many changes of the list

    def samples(self) -> list[Sample]:
        with self._lock:
            return list(self._samples)

    def notes(self) -> list[Note]:
        with self._lock:
            return list(self._notes)

    def artifacts(self) -> list[ArtifactSeries]:
        """The files that were logged, by name."""
        with self._lock:
            if self._series is None or self._series[0] != self._artifacts.changes:
                self._series = self._artifacts.changes, series_of(self._artifacts)
            return self._series[1]

    def evaluations(self) -> list[Evaluation]:
        """The evaluations of the run as it stands: those of steps that were trained again are left out."""
        with self._lock:
            return list(self._evaluations)

    def op_timings(self) -> list[OpTiming]:
        """Where the time of profiled steps went."""
        with self._lock:
            return list(self._timings)

    def standing(self) -> Comparison | None:
        """The comparison with its baseline that the run is judged by; None where it was never compared."""
        with self._lock:
            return latest_of(self._comparisons)

    def log_entries(self) -> list[LogEntry]:
        with self._lock:
            return list(self._entries)

    def checkpoint(self, path: str) -> dict[str, Any]:
        """What the run said when it wrote a checkpoint, by its path in the folder; empty when it did not."""
        return self._checkpoints.get(path, {})

    def checkpoint_paths(self) -> list[str]:
        """The checkpoints that the run told of."""
        with self._lock:
            return list(self._checkpoints)

    def log(self, text: str, level: str = "info", t: float = 0.0) -> None:
        with self._lock:
            self._entries.append(LogEntry(t, None, level, text))

    def take(self, block: bytes, begin: int, end: int, parts: Sequence[Segment] = ()) -> None:
        """Take in a block that the metrics were read from; one that lies farther on waits for `catch_up`."""
        with self._lock:
            self._end = max(self._end, end)
            if begin <= self._position < end:
                if parts and begin == self._position:
                    self._take_parts(block, parts)
                else:
                    self._take(block[-(end - self._position) :])
                self._position = end

    def begin_anew(self) -> None:
        """The stream is another one: nothing that was read before stands."""
        moment = time.strftime("%H:%M:%S")
        text = f"{moment}: the stream was cut or replaced while the board was open; it was read anew"
        with self._lock:
            self._clear()
            self._position = self._end = 0
            self._entries.append(LogEntry(0.0, None, "warning", text))

    @property
    def caught_up(self) -> bool:
        """It has taken all that the metrics have."""
        return self._position >= self._end

    def catch_up(self, seconds: float) -> bool:
        """Read what a cache spared the metrics, for about so long; True when there was something."""
        until = time.monotonic() + seconds
        changed = False
        while not self.caught_up and self._read_block():
            changed = True
            if time.monotonic() >= until:
                return True
        self.close()
        return changed

    def _read_block(self) -> bool:
        if self._reader is None or self._reader.position != self._position:
            self.close()
            self._reader = LineReader(self._events)
            self._reader.skip_to(self._position, 0)
        reader = self._reader
        block = reader.read_block()
        if reader.generation:  # another file; if it is no copy of the first, the metrics will tell
            self.close()
            return True
        if reader.position <= self._position:  # gone
            self._end = self._position
            return False
        beyond = max(0, reader.position - self._end)  # it was written meanwhile, and will be handed on
        self.take(block[: max(0, len(block) - beyond)], self._position, reader.position - beyond)
        return True

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _take_parts(self, block: bytes, parts: Sequence[Segment]) -> None:
        for part in parts:
            if part.columns is not None:
                self.lines += len(part.columns[0])
            elif part.looks:
                self._skip_inspection(block[part.begin : part.end])
            else:
                self._take(block[part.begin : part.end])

    def _take(self, block: bytes) -> None:
        position = 0
        for begin, end in inspection_runs(block):
            self._take_lines(block[position:begin])
            self._skip_inspection(block[begin:end])
            position = end
        self._take_lines(block[position:])

    def _skip_inspection(self, lines: bytes) -> None:
        """Count lines of looks; of regions of a program's own the log tells."""
        count = lines.count(b"\n")
        self.lines += count
        self.looks += count
        for line in own_regions(lines):
            self._take_line(line)

    def _take_lines(self, block: bytes) -> None:
        count = block.count(b"\n")
        if _only_numbers(block, count):
            self.lines += count
            return
        for line in block.split(b"\n")[:-1]:
            self.lines += 1
            head = line[:_HEAD]
            if line.endswith((b"}", b"}\r")) and any(word in head for word in _NUMBERS):
                continue
            if line and not line.isspace():
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        event = decode(line, self._origin)
        if event is None:
            self.damaged += 1
            shown = line[:80].decode("utf-8", "replace")
            self._add(0.0, None, "error", f"line {self.lines} is damaged: {shown}{'…' if len(line) > 80 else ''}")
            return
        data, t, step = event.data, event.t, event.step
        if event.kind == "sample":
            self._samples.append(Sample(step, t, _text(data.get("prompt")), _text(data.get("text"))))
        elif event.kind == "note":
            self._take_note(event)
        elif event.kind == "checkpoint":
            if isinstance(path := data.get("path"), str):
                if len(self._checkpoints) >= _CHECKPOINTS:
                    self._checkpoints.pop(next(iter(self._checkpoints)))
                self._checkpoints[path] = data
                self._add(t, step, "info", f"checkpoint {path}")
        elif event.kind == "run_end":
            self._take_end(event)
        elif event.kind == "eval":
            self._evaluations.append(_evaluation(event))
        elif event.kind == "compare" and (comparison := to_comparison(event)) is not None:
            self._take_comparison(event, comparison)
        elif event.kind in ("tap", "grad", "drift"):  # as another writer spells them
            self.looks += 1
        elif event.kind not in _NOT_LOGGED and event.kind:
            if event.kind in ("artifact", "resume"):
                self._artifacts.take(event)
            if event.kind == "resume" and step is not None:
                kept = [known for known in self._evaluations if known.step is None or known.step <= step]
                self._evaluations = deque(kept, maxlen=_EVALUATIONS)
                compared = [known for known in self._comparisons if known.step <= step]
                self._comparisons = deque(compared, maxlen=_COMPARISONS)
            elif event.kind == "op_timing":
                buckets = _figures(data.get("buckets"))
                self._timings.append(OpTiming(step, t, as_number(data.get("compute_us"), 0.0), buckets))
            self._add(t, step, *_described(event))

    def _take_note(self, event: Event) -> None:
        data, text = event.data, _text(event.data.get("text"))
        if isinstance(data.get("lost_events"), int) or data.get("level") in ("warning", "error"):
            level = "error" if data.get("level") == "error" else "warning"
            self._add(event.t, event.step, level, text or f"{data.get('lost_events')} events were lost")
        else:
            self._notes.append(Note(event.t, event.step, _text(data.get("at")), text))

    def _take_comparison(self, event: Event, comparison: Comparison) -> None:
        """Log a verdict where it changes; there may be hundreds that say the same."""
        before = self._comparisons[-1].verdict if self._comparisons else ""
        self._comparisons.append(comparison)
        if comparison.verdict != before:
            standing = comparison.standing(_text(event.data.get("baseline_run_id")))
            level = "error" if comparison.aborts else "info"
            self._add(event.t, event.step, level, f"{standing}: {comparison.figures}")

    def _take_end(self, event: Event) -> None:
        data, reason = event.data, _text(event.data.get("reason")) or "ended"
        level = {"completed": "info", "interrupted": "warning"}.get(reason, "error")
        words = [f"run {reason}"]
        if error := data.get("error"):
            words.append(flags(_text(error) if isinstance(error, str) else str(error)))
        gate = data.get("quality_gate")
        if isinstance(gate, dict):
            verdict = "reached" if gate.get("passed") else "missed"
            words.append(f"gate {verdict}: {gate.get('metric')} {gate.get('value')} against {gate.get('threshold')}")
            level = level if gate.get("passed") else "error"
        self._add(event.t, event.step, level, ": ".join(words))

    def _add(self, t: float, step: int | None, level: str, text: str) -> None:
        self._entries.append(LogEntry(t if 0 <= t < 1e12 else 0.0, step, level, text[:2000]))


def _evaluation(event: Event) -> Evaluation:
    data = event.data
    per_class, samples = data.get("per_class"), data.get("samples")
    envelope = ("t", "step", "samples", "epoch")
    return Evaluation(
        step=event.step,
        t=event.t,
        name=_text(data.get("name"))[:200] or "eval",
        samples=samples if isinstance(samples, int) and abs(samples) < 2**53 else None,
        figures=_figures({name: value for name, value in data.items() if name not in envelope})
        | _figures(data.get("extra")),
        per_class=_figures(per_class) if isinstance(per_class, dict) else None,
        confusion=_confusion(data.get("confusion")),
    )


def _figures(fields: object) -> dict[str, float]:
    """The numbers among fields, by name."""
    named = list(fields.items())[:_CLASSES] if isinstance(fields, dict) else []
    return {name: as_number(value) for name, value in named if isinstance(value, int | float)}


def _confusion(table: object) -> tuple[list[str], list[list[int]]] | None:
    """Labels and counts; None where they are not a square of counts."""
    labels, counts = (table.get("labels"), table.get("counts")) if isinstance(table, dict) else (None, None)
    if not isinstance(labels, list) or not isinstance(counts, list) or not 0 < len(labels) == len(counts) <= _CLASSES:
        return None
    if not all(isinstance(row, list) and len(row) == len(labels) for row in counts):
        return None
    if not all(isinstance(count, int) and abs(count) < 2**53 for row in counts for count in row):
        return None
    return [str(label)[:200] for label in labels], counts


def _only_numbers(block: bytes, lines: int) -> bool:
    """Are these lines all of the kinds that carry nothing but numbers?"""
    if block.count(b"}\n") != lines:
        return False
    missing = lines
    for word in _NUMBERS:
        missing -= block.count(word)
        if missing <= 0:
            break
    return missing == 0


def _described(event: Event) -> tuple[str, str]:
    """Weight and text of an event of another kind."""
    data = event.data
    if event.kind == "run_start":
        return "info", f"run started {_text(data.get('started_at'))}"
    if event.kind == "resume":
        return "info", f"resumed from step {event.step}" if event.step is not None else "resumed"
    if event.kind in ("region_enter", "region_exit"):
        return "info", f"region {_text(data.get('region'))} {'begins' if event.kind == 'region_enter' else 'ends'}"
    if event.kind == "artifact" and isinstance(data.get("name"), str):
        return "info", f"{_text(data.get('media')) or 'artifact'} {_text(data.get('name'))}"
    level = "error" if "error" in event.kind else "warning" if "warn" in event.kind else "info"
    text = data.get("text") or data.get("message")
    if not isinstance(text, str):
        shown = data.keys() - {"kind", "type", "t", "step", "phase"}
        text = "  ".join(f"{name} {_short(value)}" for name, value in data.items() if name in shown)
    return level, f"{event.kind}: {text}" if text else event.kind


def _short(value: object) -> str:
    text = f"{as_number(value):g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _text(value: object) -> str:
    return value[:20_000] if isinstance(value, str) else ""
