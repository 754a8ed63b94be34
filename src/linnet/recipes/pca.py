"""Principal axes of a donor's embedding, in float64, from its covariance: the table is passed once, in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from linnet.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SQUARE = 1 << 22  # numbers of a covariance that is always worth it
_ROWS = 4096  # at a time: 19 MB of float64 for a donor 576 wide


class Table(Protocol):
    """Rows that are read when asked for: a tensor of a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, width]."""

    def read(self, rows: slice | None = None) -> NDArray[np.float32]:
        """These rows."""


@dataclass(frozen=True)
class Axes:
    """The directions in which a table's rows differ most, and the share of their variance that lies in them."""

    proj_DW: NDArray[np.float32]  # orthonormal rows, the widest direction first
    mean_W: NDArray[np.float32]  # of the table's rows
    explained: float


def principal_axes(table_VW: NDArray[np.float32] | Table, d_model: int) -> Axes:
    """The first `d_model` axes of a table [V, W]. The same bits for the same table."""
    V, W = table_VW.shape
    if d_model > W:
        raise UsageError(
            f"a donor {W} wide has {W} principal axes, and a model {d_model} wide needs as many: choose `d_model={W}`"
            " or less, or `init=warm`"
        )
    if W * W > _SQUARE + 64 * V * W:  # the work is that of the square, which a small file can make as large as it likes
        raise UsageError(
            f"a table of {V:,} rows, each {W:,} wide, says too little about its axes: take a donor of more rows"
        )
    squares_WW, sum_W = np.zeros((W, W)), np.zeros(W)
    for start in range(0, V, _ROWS):
        rows = slice(start, min(start + _ROWS, V))
        part = table_VW[rows] if isinstance(table_VW, np.ndarray) else table_VW.read(rows)
        part = part.astype(np.float64)
        squares_WW += part.T @ part
        sum_W += part.sum(0)
    mean_W = sum_W / V
    variances_W, axes_WW = np.linalg.eigh(squares_WW / V - np.outer(mean_W, mean_W))  # the narrowest first
    proj_DW = axes_WW.T[::-1][:d_model]
    # An axis has no front and no back: the largest of its numbers is made positive.
    largest_D = np.abs(proj_DW).argmax(1)
    proj_DW = proj_DW * np.sign(proj_DW[np.arange(d_model), largest_D])[:, None]
    total = float(np.clip(variances_W, 0, None).sum())
    kept = float(np.clip(variances_W[::-1][:d_model], 0, None).sum())
    explained = kept / total if total else 0.0
    return Axes(proj_DW.astype(np.float32), mean_W.astype(np.float32), explained)
