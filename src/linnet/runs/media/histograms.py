"""`Histogram`: how often values fall between edges, from values or from counts, and as a JSON file."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from linnet.runs.encode import encode
from linnet.runs.media.capture import Capture, MediaFile, copy_array

MOST_VALUES = 1 << 22  # of more every n-th is taken
_MOST_BINS = 1024


class Histogram(msgspec.Struct):
    """A histogram that was logged: `counts[i]` values lie between `edges[i]` and `edges[i + 1]`."""

    counts: list[float]
    edges: list[float]


def capture_histogram(values: Any, bins: int = 64) -> Capture:
    """Copy values of any shape, or a pair `(counts, edges)` as `np.histogram` gives it."""
    if (pair := _counted(values)) is not None:
        counts, edges = pair
        return Capture(counts.nbytes + edges.nbytes, lambda: _encode(counts, edges, {}))
    if not 1 <= bins <= _MOST_BINS:
        raise ValueError(f"expected 1 to {_MOST_BINS} `bins`, found {bins}")
    total = _size(values)
    copied = copy_array(values, MOST_VALUES)
    return Capture(copied.n_bytes, lambda: _count(copied.numbers(), bins, total), copied.release)


def _size(values: Any) -> int:
    return int(values.numel()) if callable(getattr(values, "numel", None)) else int(np.size(values))


def _counted(values: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Counts and edges, if that is what it is: a pair in which there is one edge more than there are counts."""
    if not isinstance(values, tuple) or len(values) != 2 or any(np.ndim(part) != 1 for part in values):
        return None
    counts, edges = (copy_array(part).numbers().astype(np.float64) for part in values)
    if len(edges) != len(counts) + 1 or not 1 <= len(counts) <= _MOST_BINS:
        raise ValueError(f"expected 1 to {_MOST_BINS} counts and one edge more, found {len(counts)} and {len(edges)}")
    if not (np.isfinite(counts).all() and np.isfinite(edges).all() and (np.diff(edges) >= 0).all()):
        raise ValueError("expected finite counts, and edges that rise")
    return counts, edges


def _count(values: NDArray[Any], bins: int, total: int) -> MediaFile:
    numbers = values.reshape(-1).astype(np.float64, copy=False)
    finite = numbers[np.isfinite(numbers)]
    fields: dict[str, Any] = {"count": total}
    if len(numbers) < total:
        fields["sampled"] = len(numbers)
    if len(finite) < len(numbers):
        fields["nan_count"] = len(numbers) - len(finite)
    if not len(finite):
        return _encode(np.zeros(1), np.array([0.0, 1.0]), fields)
    low, high = float(finite.min()), float(finite.max())
    if not high - low < np.inf or (high > low and high - low < bins * np.spacing(max(abs(low), abs(high)))):
        bins = 1  # numpy refuses edges that cannot be told apart, or are infinitely far apart
    with np.errstate(all="ignore"):
        mean = float(finite.mean())
    fields |= {"mean": mean} if np.isfinite(mean) else {}
    if bins == 1:
        return _encode(np.array([float(len(finite))]), np.array([low, high]), fields)
    counts, edges = np.histogram(finite, bins)
    return _encode(counts.astype(np.float64), edges, fields)


def _encode(counts: NDArray[Any], edges: NDArray[Any], fields: dict[str, Any]) -> MediaFile:
    content = encode({"counts": [_short(count) for count in counts], "edges": edges.tolist()}) + b"\n"
    fields = {"bins": len(counts), "min": float(edges[0]), "max": float(edges[-1]), **fields}
    return MediaFile(content, ".json", "application/json", fields)


def _short(count: float) -> float | int:
    return int(count) if count == int(count) else float(count)


def decode_histogram(content: bytes) -> Histogram:
    """A histogram from its file; ValueError when it is none."""
    histogram = msgspec.json.decode(content, type=Histogram)
    if not histogram.counts or len(histogram.edges) != len(histogram.counts) + 1:
        raise ValueError("no histogram: expected one edge more than counts")
    return histogram
