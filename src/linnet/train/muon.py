"""`Muon`: momentum made orthogonal, for the matrices of the blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from linnet.train.sharded_weights import WholeMatrices

# The quintic iteration of Keller Jordan's Muon: steep at zero, so that five rounds bring every singular value near 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Muon, momentum made orthogonal, for hidden matrices. Those of one shape are worked on as one batch of matmuls.

    torch's own takes them one by one: a thousand small kernels a step for a model of twelve layers, with a learning
    rate that only the host knows, so that no graph can hold it. One learning rate is right for this and AdamW: updates
    have the size that AdamW's have.
    """

    moment = "momentum_buffer"

    def __init__(
        self,
        matrices: Iterable[Any],
        lr: Tensor,
        *,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        whole: WholeMatrices | None = None,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self._whole = whole  # where this rank has some rows of each matrix only

    @staticmethod
    def trains(name: str, parameter: nn.Parameter) -> bool:
        """Embeddings and the head are no matrices in Muon's sense: their rows are looked up one by one."""
        return parameter.ndim >= 2 and name.startswith("blocks.")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    shape = matrix.shape if self._whole is None else self._whole.shapes[matrix]
                    by_shape.setdefault(shape, []).append(matrix)
            for shape, matrices in by_shape.items():
                self._move(matrices, shape, group["lr"], group["weight_decay"], group["momentum"])
        return None

    def _move(
        self, matrices: list[nn.Parameter], shape: torch.Size, lr: Tensor, weight_decay: float, momentum: float
    ) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        buffers = [self._buffer(matrix) for matrix in matrices]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)
        if self._whole is None:
            update_NRC = orthogonal(torch.stack(ahead)).float()
        else:
            update_NRC = self._whole.rows(orthogonal(self._whole.gathered(ahead, shape))).float()
        size = 0.2 * max(shape) ** 0.5
        tensors: list[Tensor] = list(matrices)
        torch._foreach_mul_(tensors, 1 - lr * weight_decay)
        torch._foreach_add_(tensors, (update_NRC * (-size * lr)).unbind())

    def _buffer(self, matrix: nn.Parameter) -> Tensor:
        state = self.state[matrix]
        if self.moment not in state:
            state[self.moment] = torch.zeros_like(matrix)
        buffer: Tensor = state[self.moment]
        return buffer


def orthogonal(matrices_NRC: Tensor) -> Tensor:
    """[N, R, C]: each matrix with its singular values brought near 1, in bf16 on a GPU, where that is quickest."""
    rows, columns = matrices_NRC.shape[1:]
    x = matrices_NRC.mT if rows > columns else matrices_NRC
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value is above 1 now
    if x.is_cuda:
        x = x.bfloat16()
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.mT if rows > columns else x
