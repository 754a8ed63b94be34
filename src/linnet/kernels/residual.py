"""`Residual`: the residual stream between two operations, with an update that is yet to be added to it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Residual(NamedTuple):
    """x + update, where the sum is left to the norm that reads it: on CUDA one kernel does both (`ops.norm_linear`).

    A model only adds to it and hands it on. It is a plain tuple of tensors, so that it passes through a compiled layer.
    """

    x_BTD: Tensor
    update_BTD: Tensor | None = None
    update_bias_D: Tensor | None = None  # a bias that the update holds, whose gradient the same kernel sums up

    def plus(self, update_BTD: Tensor, bias_D: Tensor | None = None) -> Residual:
        """The stream with one update more."""
        assert self.update_BTD is None, "an update is added by the next norm: there is one between two of them"
        return Residual(self.x_BTD, update_BTD, bias_D)

    def total(self) -> Tensor:
        """[B, T, d_model]: the sum itself."""
        assert self.update_bias_D is None, "nobody would compute the gradient of this bias"
        return self.x_BTD if self.update_BTD is None else self.x_BTD + self.update_BTD
