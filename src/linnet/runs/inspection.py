"""`Inspection`: what a training told of its inside (`tap`, `grad`, `drift`, `region_…`, `op_timing`), for reading.

    inside = linnet.open("latest").inspection()
    inside.taps.heat_map("std", "resid_post_block")       # layers × steps
    inside.grads.heat_map("l2", "attn_q.weight", layer=3, heads=True)
    inside.taps.histograms("ffn_out", layer=3)            # over the steps
    inside.regions().children                             # the newest look at where the time goes

Every figure is a number of a row at a step (`figure_tables.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.errors import LinnetError
from linnet.runs.figure_tables import FigureTable, Grams, Row, TapTable, known_words, tensor_row
from linnet.runs.inspection_events import (
    DRIFT_FIGURES,
    GRAD_FIGURES,
    NO_GRAM,
    TAP_FIGURES,
    Drift,
    Grad,
    RegionEntered,
    RegionLeft,
    Resumed,
    Tap,
    Timing,
    gram_of,
    inspection_events,
)
from linnet.runs.lines import LineReader
from linnet.runs.region_tree import RegionNode, region_tree


@dataclass(frozen=True)
class TokenDrift:
    """The drift of tokens of the embedding at one step, the most frequent first."""

    step: int
    token_id: NDArray[np.int64]
    freq: NDArray[np.int64]
    cos_to_init: NDArray[np.float64]
    l2_to_init: NDArray[np.float64]


class OpTiming(NamedTuple):
    """Where the time of a step went, in microseconds by operation."""

    step: int
    compute_us: float
    buckets: dict[str, float]


class Inspection:
    """What was told of a run's inside, as far as its stream goes; `refresh` takes in what was written since.

    - `taps`, `grads`, `drift`: figures of activations, gradients and updates, distance from the first weights.
    - `op_timings`: where the time of steps went, by operation.
    - `caught_up`: all that was in the stream at the last look has been read; `changes` goes up with what is.
    - `seconds`: for about how long it is read at first.
    """

    def __init__(self, events: Path, *, superseded: bool = False, seconds: float = math.inf) -> None:
        self._reader = LineReader(events)
        self._superseded = superseded
        self._generation = 0
        self.caught_up, self.changes = False, 0
        self._clear()
        self.refresh(seconds)

    def _clear(self) -> None:
        self.taps, self.grads, self.drift = TapTable(), FigureTable("grad"), FigureTable("drift")
        self.op_timings: list[OpTiming] = []
        self._tokens: dict[int, list[tuple[int, int, float, float]]] = {}
        self._grams: dict[Row, dict[int, msgspec.Raw]] = {}
        self._regions: dict[int, list[tuple[bool, str, float]]] = {}

    def refresh(self, seconds: float = math.inf) -> bool:
        """Take in what is new, a block of lines at least, for about so long; True when there was something."""
        until = time.monotonic() + seconds
        self.caught_up = changed = False
        while block := self._reader.read_block():
            if self._reader.generation != self._generation:
                self._generation = self._reader.generation
                self._clear()
            for event in inspection_events(block):
                _TAKERS[type(event)](self, event)
                changed = True
            self.changes += 1
            if time.monotonic() >= until:
                return changed
        self._reader.close()
        self.caught_up = True
        return changed

    @property
    def share_read(self) -> float:
        """How much of the stream has been read, from 0 to 1."""
        position = self._reader.position
        return 1.0 if self.caught_up else position / max(1, position + self._reader.unread())

    @property
    def looks(self) -> dict[str, list[int]]:
        """The steps at which each group was looked at; only those that were."""
        looks = {name: table.steps.tolist() for name, table in self._tables.items()}
        looks |= {"gram": self.gram_steps, "tokens": self.token_steps, "regions": self.region_steps}
        looks["ops"] = [timing.step for timing in self.op_timings]
        return {name: steps for name, steps in looks.items() if steps}

    @property
    def _tables(self) -> dict[str, FigureTable]:
        return {"taps": self.taps, "grads": self.grads, "drift": self.drift}

    @property
    def region_steps(self) -> list[int]:
        """The steps whose time is known by regions."""
        return sorted(self._regions)

    def regions(self, step: int | None = None) -> RegionNode:
        """The regions of a step, nested, with their times; of the newest that is known."""
        if not self._regions:
            raise LinnetError("no regions were told; train with `inspect=regions`")
        if step is not None and step not in self._regions:
            raise LinnetError(f"no regions were told of step {step}; there are {_listed(self.region_steps)}")
        return region_tree(self._regions[max(self._regions) if step is None else step])

    @property
    def token_steps(self) -> list[int]:
        """The steps at which the drift of tokens was told."""
        return sorted(self._tokens)

    def tokens(self, step: int | None = None) -> TokenDrift:
        """How far tokens of the embedding have drifted at a step, at the newest by default."""
        if not self._tokens:
            raise LinnetError("no drift of tokens was told; train with `inspect=drift`")
        step = max(self._tokens) if step is None else step
        if step not in self._tokens:
            raise LinnetError(f"no drift of tokens was told at step {step}; there are {_listed(self.token_steps)}")
        ids, freq, cosine, distance = zip(*self._tokens[step], strict=True)
        return TokenDrift(
            step, np.array(ids, np.int64), np.array(freq, np.int64), np.array(cosine, float), np.array(distance, float)
        )

    @property
    def gram_steps(self) -> list[int]:
        """The steps at which Gram matrices were told."""
        return sorted({step for by_step in self._grams.values() for step in by_step})

    @property
    def gram_rows(self) -> list[Row]:
        """The regions whose Gram matrices were told."""
        return list(self._grams)

    def grams(self, name: str, layer: int | None = None, *, step: int | None = None) -> Grams:
        """The Gram matrices of a region, over the steps; or of one step alone. All have as many rows as the newest."""
        row = Row(name, layer)
        if row not in self._grams:
            raise LinnetError(f"no Gram matrix of {row}{known_words(str(row), [str(known) for known in self._grams])}")
        grams = [(at, raw) for at, raw in sorted(self._grams[row].items()) if step is None or at == step]
        decoded = {at: gram_of(raw) for at, raw in grams}
        known = {at: gram for at, gram in decoded.items() if gram is not None}
        size = len(known[max(known)]) if known else 0
        known = {at: gram for at, gram in known.items() if len(gram) == size}
        return Grams(row, np.array(list(known), np.int64), np.array(list(known.values()), float))

    @property
    def cells(self) -> int:
        """About as many numbers as it holds, for who bounds how much is held."""
        grams = sum(len(bytes(raw)) for by_step in self._grams.values() for raw in by_step.values()) // 8
        others = 4 * sum(map(len, self._tokens.values())) + 8 * sum(map(len, self._regions.values()))
        return sum(table.cells for table in self._tables.values()) + grams + others

    def __repr__(self) -> str:
        counts = [f"{name} at {len(steps)} steps" for name, steps in self.looks.items()]
        return f"<Inspection: {', '.join(counts) or 'nothing'}>"

    # -- events -----------------------------------------------------------------------------------------------------

    def _take_tap(self, event: Tap) -> None:
        row = Row(event.region, event.layer, event.head)
        if event.gram is not NO_GRAM:
            self._grams.setdefault(row, {})[event.step] = event.gram
            return
        if event.edges is not None and event.histogram is not None:
            self.taps.add_histogram(row, event.step, event.edges, event.histogram)
        figures = _figures(event, TAP_FIGURES)
        if "min" in figures and "max" in figures:
            figures["abs_max"] = max(abs(figures["min"]), abs(figures["max"]))
        if event.per_head_l2:
            self._take_heads(row, event.step, "l2", event.per_head_l2)
        if event.entropy:
            self._take_heads(row, event.step, "entropy", event.entropy)
            figures["entropy"] = sum(event.entropy) / len(event.entropy)
        self.taps.add(row, event.step, figures)

    def _take_heads(self, row: Row, step: int, figure: str, values: list[float]) -> None:
        for head, value in enumerate(values):
            self.taps.add(row._replace(head=head), step, {figure: value})

    def _take_grad(self, event: Grad) -> None:
        self.grads.add(tensor_row(event.param, event.head), event.step, _figures(event, GRAD_FIGURES))

    def _take_drift(self, event: Drift) -> None:
        if event.token_id is None:
            self.drift.add(tensor_row(event.param, event.head), event.step, _figures(event, DRIFT_FIGURES))
            return
        cosine, distance = (np.nan if one is None else one for one in (event.cos_to_init, event.l2_to_init))
        self._tokens.setdefault(event.step, []).append((event.token_id, event.freq or 0, cosine, distance))

    def _take_mark(self, event: RegionEntered | RegionLeft) -> None:
        moment = 1e6 * event.t if event.us is None else event.us
        self._regions.setdefault(event.step, []).append((type(event) is RegionEntered, event.region, moment))

    def _take_timing(self, event: Timing) -> None:
        self.op_timings.append(OpTiming(event.step, event.compute_us, event.buckets))

    def _take_resume(self, event: Resumed) -> None:
        """What was told of steps beyond the one a run went on from is void."""
        step = event.step
        if self._superseded or step is None:
            return
        for table in self._tables.values():
            table.keep_to(step)
        self.op_timings = [timing for timing in self.op_timings if timing.step <= step]
        by_step: list[dict[int, Any]] = [self._tokens, self._regions, *self._grams.values()]
        for known in by_step:
            for discarded in [other for other in known if other > step]:
                del known[discarded]


_TAKERS: dict[type[Any], Callable[[Inspection, Any], None]] = {
    Tap: Inspection._take_tap,
    Grad: Inspection._take_grad,
    Drift: Inspection._take_drift,
    RegionEntered: Inspection._take_mark,
    RegionLeft: Inspection._take_mark,
    Timing: Inspection._take_timing,
    Resumed: Inspection._take_resume,
}


def _figures(event: Any, names: tuple[str, ...]) -> dict[str, float]:
    """Those that an event has."""
    return {name: value for name in names if (value := getattr(event, name)) is not None}


def _listed(steps: list[int]) -> str:
    shown = ", ".join(map(str, steps[:6]))
    return f"{shown} … {steps[-1]}" if len(steps) > 6 else shown
