"""What went wrong on a line: values that are no numbers, spikes, long silences."""

from __future__ import annotations

import math

import numpy as np

from linnet.board.curve import Curve, Floats
from linnet.board.words import duration, number
from linnet.runs.metric_names import Goal

_MOST = 50  # of each kind
_BLOCK = 64  # rows by which it is judged what is usual
_FAR = 12.0  # standard deviations, by the median of the deviations
_LIKELY = 4.0  # standard deviations that a row so far out has at least among 64, itself counted
_RISE = 0.2  # of the median: what is less is no spike to the eye
_SILENCE, _PAUSES = 120.0, 60.0  # seconds, and usual times between two rows, of which both must have passed

RowMark = tuple[int, str, str]  # row, kind, text


class MarkFinder:
    """The marks of one series, found once: only rows that are new are looked at again."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._rows = 0
        self._nonfinite: list[RowMark] = []
        self._silences: list[RowMark] = []
        self._spikes: list[tuple[float, RowMark]] = []  # with how far they are from what is usual

    def find(self, curve: Curve, values: Floats) -> list[RowMark]:
        """All marks up to the last row. `values`: those of the curve, as they were logged."""
        if len(values) < self._rows:
            self._forget()
        complete = len(values) // _BLOCK * _BLOCK
        if complete > self._rows:
            self._take(curve, values, self._rows, complete)
            self._rows = complete
        tail = MarkFinder()
        if len(values) > self._rows:
            tail._take(curve, values, max(0, len(values) - _BLOCK), len(values))
        new_marks = [mark for mark in tail._all() if mark[0] >= self._rows]
        return sorted(self._all() + new_marks)

    def _all(self) -> list[RowMark]:
        return [*self._nonfinite, *self._silences, *(mark for _, mark in self._spikes)]

    def _take(self, curve: Curve, values: Floats, begin: int, end: int) -> None:
        part = values[begin:end]
        finite = np.isfinite(part)
        if not finite.all():
            before = np.concatenate([[begin == 0 or math.isfinite(values[begin - 1])], finite[:-1]])
            for at in np.flatnonzero(~finite & before)[: _MOST - len(self._nonfinite)].tolist():
                word = number(float(part[at]))
                self._nonfinite.append((begin + at, "nan", f"{word} at step {number(int(curve.step[begin + at]))}"))
        self._take_silences(curve.t, begin, end)
        if (sign := _way_of_spikes(curve.name, curve.goal)) and len(part) >= _BLOCK:
            previous = float(values[begin - 1]) * sign if begin else math.inf
            self._take_spikes(curve, part * sign, sign, begin, previous)

    def _take_silences(self, t: Floats, begin: int, end: int) -> None:
        times = t[max(0, begin - 1) : end]
        if len(times) < 2:
            return
        pauses = np.diff(times)
        usual = (float(t[end - 1]) - float(t[0])) / max(1, end - 1)
        for at in np.flatnonzero(pauses > max(_SILENCE, _PAUSES * usual))[: _MOST - len(self._silences)].tolist():
            row = max(0, begin - 1) + at + 1
            self._silences.append((row, "stall", f"nothing for {duration(float(pauses[at]))} before this"))

    def _take_spikes(self, curve: Curve, part: Floats, sign: float, begin: int, previous: float) -> None:
        """Rows far above what is usual among the 64 around them, and above the row before: a curve may begin high.

        `previous`: the value of the row before the first of them.
        """
        blocks = part[: len(part) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
        with np.errstate(invalid="ignore", over="ignore"):
            if not np.isfinite(blocks).all():
                blocks = np.where(np.isfinite(blocks), blocks, np.nanmedian(np.where(np.isfinite(part), part, np.nan)))
            highest = blocks.max(axis=1)
            likely = np.flatnonzero(highest - blocks.mean(axis=1) > _LIKELY * blocks.std(axis=1))
            if not len(likely):
                return
            chosen = blocks[likely]
            middle = np.median(chosen, axis=1, keepdims=True)
            deviation = 1.4826 * np.median(np.abs(chosen - middle), axis=1, keepdims=True)
            rise = chosen - middle
            is_spike = (rise > _FAR * deviation) & (rise > _RISE * np.abs(middle))
            row_before = np.append(previous, part[:-1])[: blocks.size].reshape(-1, _BLOCK)[likely]
            is_spike &= ~(chosen - row_before < rise / 2)  # of one after a NaN nothing is known
            strength = rise / np.maximum(deviation, 1e-12 + 1e-6 * np.abs(middle))
        for block, at in np.argwhere(is_spike).tolist():
            row = begin + int(likely[block]) * _BLOCK + at
            text = f"spike: {number(float(part[row - begin] * sign))} at step {number(int(curve.step[row]))}"
            self._spikes.append((float(strength[block, at]), (row, "spike", text)))
        self._spikes = sorted(self._spikes, reverse=True)[:_MOST]


def _way_of_spikes(name: str, goal: Goal | None) -> float:
    """1 where a spike goes up, -1 where it goes down, 0 for what has none to be warned of."""
    if goal is not None:
        return 1.0 if goal == "min" else -1.0
    return 1.0 if name.endswith("norm") else 0.0
