"""`GradientFigures`: what a step did, tensor by tensor: its gradients as they are before clipping, and its update.

All of it are operations on the device, so that a step that is looked at can be captured as any other.

Shapes: P pieces of one shape, H parts of each (its heads, or the whole of it), M numbers of a part, R rows of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from linnet.train.inspection.late_events import EventRow
from linnet.train.inspection.pieces import PieceTable, TensorPiece, is_stacked, l2_of
from linnet.train.inspection.row_sums import RowTable, gradient_figures, update_figures
from linnet.train.process import threads

_OF_GRADIENT = (("l2", 0), ("abs_mean", 0), ("nan_count", 0))
_FIGURES = (*_OF_GRADIENT, ("update_ratio", 0))


class GradientFigures:
    """Looks at a step twice: when its gradients are there, and when it has moved the weights.

    - `stacked`: are tensors of one shape looked at in one go? None: but on a CPU.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        pieces: Iterable[TensorPiece],
        *,
        stacked: bool | None = None,
    ) -> None:
        self._parameters = {name: p for name, p in parameters.items() if p.requires_grad}
        trained_pieces = [piece for piece in pieces if piece.parameter in self._parameters]
        # What an adapter begins with is half of it zeros, which nobody has pruned.
        matrices = [piece for piece in trained_pieces if len(piece.shape) > 1 and piece.of_model]
        self._stacked = is_stacked(self._parameters) if stacked is None else stacked
        if self._stacked:
            self._table = PieceTable(trained_pieces, self._parameters)
            self._matrices = PieceTable([replace(piece, heads=0) for piece in matrices], self._parameters)
        else:
            self._by_row = RowTable(trained_pieces, self._parameters)
            own = [self._by_row.whole[piece.tensor] for piece in matrices]
            self._of_matrices = torch.tensor(own, dtype=torch.int64)
        self.rows = [row for piece in trained_pieces for row in _rows(piece)]
        self.rows += [_mask_row(piece, matrices) for piece in matrices]
        self._before: dict[str, Tensor] = {}
        self._of_gradients_R3 = torch.empty(0)

    @torch.no_grad()
    def after_backward(self) -> None:
        """The gradients of the whole batch are in `.grad`."""
        self._before = {name: p.detach().clone() for name, p in self._parameters.items()}
        # A parameter that has no part in the loss has a gradient of zero.
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.detach() for name, p in self._parameters.items()
        }
        with threads(1):  # a second one would be waited for at each of a thousand small operations
            if not self._stacked:
                rows = self._by_row
                of_rows = rows.by_columns, rows.ranges_R2, rows.sizes_R
                self._of_gradients_R3 = gradient_figures(rows.tensors(gradients), *of_rows)
                return
            norms, sizes, nonfinite = [], [], []
            for gradient_PHM in self._table.parts(gradients):
                norms.append(l2_of(gradient_PHM, 2))
                sizes.append(gradient_PHM.abs().mean(2))
                nonfinite.append(torch.isfinite(gradient_PHM).logical_not().sum(2))
            by_row = self._table.by_row
            columns = (by_row(norms, l2_of), by_row(sizes, torch.mean), by_row(nonfinite, torch.sum))
            self._of_gradients_R3 = torch.stack(columns, 1)

    @torch.no_grad()
    def after_update(self) -> Tensor:
        """The weights have been moved: all figures, one row after the other."""
        with threads(1):
            if self._stacked:
                ratio_R, in_use = self._of_updates()
            else:
                rows = self._by_row
                of_rows = rows.by_columns, rows.ranges_R2, rows.sizes_R
                figures_R2 = update_figures(rows.tensors(self._parameters), rows.tensors(self._before), *of_rows)
                ratio_R, in_use = figures_R2[:, 0], figures_R2[self._of_matrices, 1]
            figures = torch.cat((torch.cat((self._of_gradients_R3, ratio_R[:, None]), 1).flatten(), in_use))
        self._before, self._of_gradients_R3 = {}, torch.empty(0)
        return figures

    def _of_updates(self) -> tuple[Tensor, Tensor]:
        table, moved, norms = self._table, [], []
        for now_PHM, before_PHM in zip(table.parts(self._parameters), table.parts(self._before), strict=True):
            moved.append(l2_of(now_PHM - before_PHM, 2))
            norms.append(l2_of(before_PHM, 2))
        ratio_R = table.by_row(moved, l2_of) / table.by_row(norms, l2_of)
        if not self._matrices.groups:
            return ratio_R, ratio_R[:0]
        in_use = [(before_P1M != 0).float().mean(2) for before_P1M in self._matrices.parts(self._before)]
        return ratio_R, self._matrices.by_row(in_use, torch.sum)


def _rows(piece: TensorPiece) -> list[EventRow]:
    """The whole tensor, then each head."""
    known = {"param": piece.tensor}
    of_heads = [EventRow("grad", {**known, "head": head}, _FIGURES) for head in range(piece.heads)]
    return [EventRow("grad", {**known, "shape": piece.toy_shape}, _FIGURES), *of_heads]


def _mask_row(piece: TensorPiece, matrices: list[TensorPiece]) -> EventRow:
    """The share of a matrix that is in use, which is told where some of it is pruned; by layer and place in it."""
    in_layer = [other.tensor for other in matrices if other.layer == piece.layer]
    known = {"li": piece.layer, "wi": in_layer.index(piece.tensor), "wname": piece.tensor}
    return EventRow("mask", known, (("density", 0),))
