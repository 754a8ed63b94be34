"""An artifact as lines of text: an image as half blocks, a table, a histogram, a text, the outline of a sound."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linnet.board.picture import braille, dots_to_lines, half_blocks
from linnet.board.plot import BLOCKS, Line
from linnet.board.terminal.spans import cells, cut, pad, safe, wrap
from linnet.board.words import duration, number
from linnet.runs import Artifact, ArtifactError
from linnet.runs.media.audio import Audio
from linnet.runs.media.histograms import Histogram
from linnet.runs.media.images import as_rgb
from linnet.runs.media.tables import Table

_MOST_LINES = 20_000  # of a text
_WIDEST_COLUMN = 40


def artifact_lines(artifact: Artifact, width: int, height: int, *, color: bool = True) -> list[Line]:
    """An artifact in lines of `width` columns; an image, a histogram and a sound in at most `height` of them."""
    try:
        loaded = _load(artifact, _changed(artifact))
    except ArtifactError as error:
        return [[(line, "warning")] for line in wrap(str(error), max(8, width), 4)]
    match loaded:
        case np.ndarray():
            draw = half_blocks if color else braille
            return draw(loaded, width, max(1, height))
        case Table():
            return _table(loaded, width)
        case Histogram():
            return histogram_lines(loaded, width, height)
        case Audio():
            return _audio(loaded, width, height)
        case str():
            return [[(line, "")] for line in wrap(loaded, max(8, width), _MOST_LINES)]
    return [[("a file that is not drawn here", "dim")]]


def _changed(artifact: Artifact) -> int:
    try:
        return artifact.path.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4)
def _load(artifact: Artifact, changed_ns: int) -> Any:
    """What is in the file, decoded once until it changes."""
    loaded = artifact.load()
    return as_rgb(loaded, ground=24) if isinstance(loaded, np.ndarray) else loaded


def _table(table: Table, width: int) -> list[Line]:
    """Columns that line up; those that have no room are counted."""
    texts = [[_cell(value) for value in row] for row in table.rows]
    numeric = [
        all(isinstance(value, int | float) for row in table.rows for value in row[at : at + 1])
        for at in range(len(table.columns))
    ]
    lines: list[Line] = [[] for _ in range(len(texts) + 1)]
    used = 0
    for at, name in enumerate(table.columns):
        title = safe(name, _WIDEST_COLUMN)
        column = [row[at] if at < len(row) else "" for row in texts]
        wide = min(_WIDEST_COLUMN, max(map(cells, [title, *column])))
        if used + wide > width and at:
            left = len(table.columns) - at
            lines[0].append((f"+{left} more" if used + 8 <= width else "…", "dim"))
            break
        wide = min(wide, width)
        lines[0] += [(pad(title, wide, right=numeric[at]), "head"), ("  ", "")]
        for line, text in zip(lines[1:], column, strict=True):
            line += [(pad(text, wide, right=numeric[at]), ""), ("  ", "")]
        used += wide + 2
    return lines


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return number(value)
    return "" if value is None else safe(value, _WIDEST_COLUMN)


def histogram_lines(histogram: Histogram, width: int, height: int) -> list[Line]:
    """Bars, an eighth of a character high at least where there is anything, above their axis."""
    counts, edges = np.asarray(histogram.counts, np.float64), histogram.edges
    bars = _merged_bins(np.nan_to_num(np.maximum(counts, 0.0), posinf=0.0), max(1, width))
    bar_width = max(1, width // len(bars))
    rows = max(1, min(height - 3, 12))
    most = float(bars.max()) or 1.0
    eighths = np.where(bars > 0, np.maximum(1, np.rint(bars / most * rows * 8)), 0).astype(int)
    lines: list[Line] = [
        [(f"{number(float(counts.sum()))} values, at most {number(float(bars.max()))} in a bar", "dim")]
    ]
    for row in range(rows - 1, -1, -1):
        parts = ((" " + BLOCKS)[min(8, max(0, level - row * 8))] * bar_width for level in eighths.tolist())
        lines.append([("".join(parts), "graph")])
    low, high = number(edges[0]), number(edges[-1])
    room = max(1, len(bars) * bar_width - cells(low) - cells(high))
    return [*lines, [("─" * (len(bars) * bar_width), "axis")], [(low, "axis"), (" " * room, ""), (high, "axis")]]


def _merged_bins(counts: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    together = -(-len(counts) // most)
    padded = np.zeros(-(-len(counts) // together) * together)
    padded[: len(counts)] = counts
    merged: NDArray[np.float64] = padded.reshape(-1, together).sum(axis=1)
    return merged


def _audio(audio: Audio, width: int, height: int) -> list[Line]:
    """The least and greatest sample of each column of dots, and how long it is."""
    rows, columns = max(1, min(6, height - 1)) * 4, max(1, width) * 2
    samples = audio.samples.mean(axis=1) if audio.samples.size else np.zeros(1, np.float32)
    begins = np.arange(columns) * len(samples) // columns
    low, high = (merge.reduceat(samples, begins) for merge in (np.minimum, np.maximum))
    top, bottom = ((1 - np.clip(value, -1, 1)) / 2 * (rows - 1) for value in (high, low))
    y = np.arange(rows)[:, None]
    dots = (y >= np.floor(top)) & (y <= np.ceil(bottom))
    peak = float(np.abs(samples).max())
    facts = f"{duration(audio.seconds)}, {number(audio.rate)} Hz, {audio.samples.shape[1]} ch, peak {number(peak, 3)}"
    return [*dots_to_lines(dots, "graph"), [(cut(facts, max(1, width)), "dim")]]
