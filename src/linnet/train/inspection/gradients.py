"""`GradientFigures`: what a step did, tensor by tensor: its gradients as they are before clipping, and its update.

All of it are operations on the device, so that a step that is looked at can be captured as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from linnet.train.inspection.late_events import EventRow
from linnet.train.inspection.pieces import TensorPiece, l2_of
from linnet.train.process import threads

_OF_GRADIENT = (("l2", 0), ("abs_mean", 0), ("nan_count", 0))
_FIGURES = (*_OF_GRADIENT, ("update_ratio", 0))


class GradientFigures:
    """Looks at a step twice: when its gradients are there, and when it has moved the weights."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], pieces: Iterable[TensorPiece]) -> None:
        self._parameters = {name: p for name, p in parameters.items() if p.requires_grad}
        self._pieces = [piece for piece in pieces if piece.parameter in self._parameters]
        # What an adapter begins with is half of it zeros, which nobody has pruned.
        self._matrices = [piece for piece in self._pieces if len(piece.shape) > 1 and piece.of_model]
        self.rows = [row for piece in self._pieces for row in _rows(piece)]
        self.rows += [_mask_row(piece, self._matrices) for piece in self._matrices]
        self._before: dict[str, Tensor] = {}
        self._gradients: list[Tensor] = []

    @torch.no_grad()
    def after_backward(self) -> None:
        """The gradients of the whole batch are in `.grad`."""
        self._before = {name: p.detach().clone() for name, p in self._parameters.items()}
        with threads(1):  # a second one would be waited for at each of a thousand small operations
            self._gradients = self._of_gradients()

    def _of_gradients(self) -> list[Tensor]:
        return [_gradient_figures(piece, self._parameters[piece.parameter]) for piece in self._pieces]

    @torch.no_grad()
    def after_update(self) -> Tensor:
        """The weights have been moved: all figures, one row after the other."""
        with threads(1):
            return self._of_updates()

    def _of_updates(self) -> Tensor:
        figures, moved_name, moved = [], "", Tensor()
        for piece, of_gradient_R3 in zip(self._pieces, self._gradients, strict=True):
            if piece.parameter != moved_name:  # one after the other: not all updates at a time
                moved_name = piece.parameter
                moved = self._parameters[moved_name].detach() - self._before[moved_name]
            ratio_R = _norms(piece, moved) / _norms(piece, self._before[moved_name])
            figures.append(torch.cat((of_gradient_R3, ratio_R[:, None]), 1).flatten())
        for piece in self._matrices:
            figures.append((piece.of(self._before[piece.parameter]) != 0).float().mean()[None])
        self._before, self._gradients = {}, []
        return torch.cat(figures)


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


def _gradient_figures(piece: TensorPiece, parameter: nn.Parameter) -> Tensor:
    """[R, 3]: norm, mean size and count of what is not finite, of the tensor and of each head.

    A parameter that has no part in the loss has a gradient of zero.
    """
    if (gradient := parameter.grad) is None:
        return torch.zeros(1 + piece.heads, 3, device=parameter.device)
    whole = piece.of(gradient)
    figures_R3 = [torch.stack((l2_of(whole), whole.abs().mean(), _nonfinite(whole).sum()))[None]]
    if piece.heads:
        by_head_HM = piece.by_head(gradient)
        columns = (l2_of(by_head_HM, 1), by_head_HM.abs().mean(1), _nonfinite(by_head_HM).sum(1))
        figures_R3.append(torch.stack(columns, 1))
    return torch.cat(figures_R3)


def _norms(piece: TensorPiece, numbers: Tensor) -> Tensor:
    """[R]: of the tensor, and of each head."""
    norms = [l2_of(piece.of(numbers))[None]]
    return torch.cat([*norms, l2_of(piece.by_head(numbers), 1)]) if piece.heads else norms[0]


def _nonfinite(numbers: Tensor) -> Tensor:
    return torch.isfinite(numbers).logical_not()
