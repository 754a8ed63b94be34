"""Linear CKA of layers by their Gram matrices, as a training that is inspected tells them (`--inspect gram`).

The unbiased estimate of `linnet.analysis.similarity`, without torch: of so few samples the usual one is near 1 for any
two layers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from linnet.runs.inspection import Inspection


def cka_of_grams(grams_KTT: NDArray[np.float64]) -> NDArray[np.float64]:
    """[K, K]: how alike the K representations of the same T samples are; NaN where a matrix holds no numbers."""
    count, samples = grams_KTT.shape[:2]
    if not count or samples < 4:
        return np.full((count, count), np.nan)
    scale_K = np.sqrt(np.square(grams_KTT).mean((1, 2)))
    with np.errstate(invalid="ignore", divide="ignore"):
        pairs_KTT = grams_KTT / scale_K[:, None, None]
        pairs_KTT[:, np.arange(samples), np.arange(samples)] = 0.0  # no sample is compared with itself
        rows_KT = pairs_KTT.sum(2)
        totals_K = rows_KT.sum(1)
        flat = pairs_KTT.reshape(count, -1)
        same = flat @ flat.T
        of_totals = np.outer(totals_K, totals_K) / ((samples - 1) * (samples - 2))
        hsic = same + of_totals - 2 / (samples - 2) * (rows_KT @ rows_KT.T)
        own = np.maximum(np.diagonal(hsic), 0.0)
        norm = np.sqrt(np.outer(own, own))
        values: NDArray[np.float64] = np.where(norm > 0, hsic / norm, np.nan)
    return values


def gram_regions(inspection: Inspection) -> list[str]:
    """The regions of layers whose Gram matrices were told."""
    return list(dict.fromkeys(row.name for row in inspection.gram_rows if row.layer is not None))


def layers_alike(inspection: Inspection, region: str, step: int) -> tuple[list[int], NDArray[np.float64]]:
    """The layers of a region, and how alike each is to each other at a step; NaN of those that were not told then."""
    layers = _layers(inspection, region)
    by_layer = [inspection.grams(region, layer, step=step).values for layer in layers]
    gram_of_row = {row: grams[0] for row, grams in enumerate(by_layer) if len(grams)}
    values = np.full((len(layers), len(layers)), np.nan)
    if len({len(gram_TT) for gram_TT in gram_of_row.values()}) == 1:
        values[np.ix_(list(gram_of_row), list(gram_of_row))] = cka_of_grams(np.stack(list(gram_of_row.values())))
    return layers, values


def layers_over_steps(inspection: Inspection, region: str) -> NDArray[np.float64]:
    """[layer, step]: how alike each layer of a region was to itself at the last step, over `gram_steps`."""
    layers, steps = _layers(inspection, region), inspection.gram_steps
    values = np.full((len(layers), len(steps)), np.nan)
    for at, layer in enumerate(layers):
        grams = inspection.grams(region, layer)
        if grams.values.ndim == 3:
            values[at, np.searchsorted(steps, grams.steps)] = cka_of_grams(grams.values)[-1]
    return values


def _layers(inspection: Inspection, region: str) -> list[int]:
    return [row.layer for row in inspection.gram_rows if row.name == region and row.layer is not None]
