"""A heat map reduced to so many columns without a spike lost: of the looks in a column the one that stands out most."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from linnet.runs.figure_tables import HeatMap


@dataclass(frozen=True)
class MapColumns:
    """Columns of a heat map, each of one look or of several that follow each other.

    - `begins`, `ends`: the first and the last step of each column.
    - `values`, `low`, `high`: `[row, column]`: the value that lies farthest from the row's median, the least and the
      greatest. NaN where nothing was told.
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def map_columns(heat: HeatMap, most: int) -> MapColumns:
    """The map in at most so many columns; as it is where it has no more."""
    steps, values = heat.steps, heat.values
    if len(steps) <= most:
        return MapColumns(steps, steps, values, values, values)
    bounds = np.linspace(0, len(steps), most + 1).astype(int)
    finite = np.where(np.isfinite(values), values, np.nan)
    known = np.isfinite(finite).any(1)
    medians = np.zeros(len(values))
    medians[known] = np.nanmedian(finite[known], 1)
    distances = np.where(np.isnan(values), -1.0, np.abs(values - medians[:, None]))
    rows, columns = np.arange(len(values)), list(pairwise(bounds))
    chosen = [begin + distances[:, begin:end].argmax(1) for begin, end in columns]
    shown = np.stack([values[rows, at] for at in chosen], 1)
    low = np.stack([_over(np.fmin, values[:, begin:end]) for begin, end in columns], 1)
    high = np.stack([_over(np.fmax, values[:, begin:end]) for begin, end in columns], 1)
    return MapColumns(steps[bounds[:-1]], steps[bounds[1:] - 1], shown, low, high)


def _over(extreme: np.ufunc, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The extreme of each row, over the numbers among its values."""
    result: NDArray[np.float64] = extreme.reduce(values, axis=1)
    return result
