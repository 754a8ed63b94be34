"""Linear CKA of layers by their Gram matrices, as a training that is inspected tells them (`--inspect gram`).

The unbiased estimate of `linnet.analysis.similarity`, without torch: of so few samples the usual one is near 1 for any
two layers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
