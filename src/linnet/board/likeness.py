"""Linear CKA from the Gram matrices that a training told (`--inspect gram`): of layers, and of a layer over the steps.

The estimate is the unbiased one, as in `linnet cka`: the products of samples with themselves are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from linnet.runs.figure_tables import Row
from linnet.runs.inspection import Inspection

_FEWEST = 4  # samples for which there is such an estimate


def gram_regions(inspection: Inspection) -> list[str]:
    """The regions of blocks whose Gram matrices were told."""
    return list(dict.fromkeys(row.name for row in inspection.gram_rows if row.layer is not None))


def layers_at(inspection: Inspection, region: str, step: int) -> tuple[list[int], NDArray[np.float64]]:
    """The layers of a region at a step, and how alike each is to each other."""
    grams = {row: inspection.grams(region, row.layer, step=step).values for row in _rows(inspection, region)}
    told = {row: values[0] for row, values in grams.items() if len(values)}
    return [row.layer or 0 for row in told], cka_of_grams(list(told.values()), list(told.values()))


def layers_over_steps(inspection: Inspection, region: str) -> tuple[list[int], list[int], NDArray[np.float64]]:
    """The layers of a region, the steps, and how alike each layer was at each step to itself at the last."""
    rows, steps = _rows(inspection, region), inspection.gram_steps
    values = np.full((len(rows), len(steps)), np.nan)
    for at, row in enumerate(rows):
        grams = inspection.grams(region, row.layer)
        if len(grams.steps):
            values[at, np.searchsorted(steps, grams.steps)] = cka_of_grams(list(grams.values), [grams.values[-1]])[:, 0]
    return [row.layer or 0 for row in rows], steps, values


def cka_of_grams(ours: Sequence[NDArray[np.float64]], theirs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """[R, C]: unbiased linear CKA of each matrix with each other one; NaN where it is not known."""
    left, right = [_unbiased(gram) for gram in ours], [_unbiased(gram) for gram in theirs]
    values = np.full((len(left), len(right)), np.nan)
    for r, a in enumerate(left):
        for c, b in enumerate(right):
            if a is not None and b is not None and a.shape == b.shape:
                norm = np.sqrt((a * a).sum() * (b * b).sum())
                values[r, c] = (a * b).sum() / norm if norm > 0 else np.nan
    return values


def _unbiased(gram_NN: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """U-centred: what all products of a sample share is taken off, and those with itself are left out."""
    n = len(gram_NN)
    if n < _FEWEST or not np.isfinite(gram_NN).all():
        return None
    scale = np.abs(gram_NN).max()
    pairs_NN = gram_NN / scale if scale > 0 else gram_NN.copy()
    np.fill_diagonal(pairs_NN, 0.0)
    sums_N = pairs_NN.sum(1)
    centred: NDArray[np.float64] = (
        pairs_NN - (sums_N[:, None] + sums_N[None, :]) / (n - 2) + sums_N.sum() / ((n - 1) * (n - 2))
    )
    np.fill_diagonal(centred, 0.0)
    return centred


def _rows(inspection: Inspection, region: str) -> list[Row]:
    return [row for row in inspection.gram_rows if row.name == region and row.layer is not None]
