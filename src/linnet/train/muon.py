"""Muon: momentum made orthogonal. Matrices of one shape are worked on together, as one batch of products.

torch's own takes them one by one: a thousand small kernels a step for a model of twelve layers, with a learning rate
that only the host knows, so that no graph can hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

# The quintic iteration of Keller Jordan's Muon: steep at zero, so that five rounds bring every singular value near 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """For hidden matrices. One learning rate is right for this and AdamW: updates have the size that AdamW's have."""

    def __init__(
        self, matrices: Iterable[nn.Parameter], lr: Tensor, *, weight_decay: float, momentum: float = 0.95
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike.setdefault(matrix.shape, []).append(matrix)
            for matrices in alike.values():
                self._move(matrices, group["lr"], group["weight_decay"], group["momentum"])
        return None

    def _move(self, matrices: list[nn.Parameter], lr: Tensor, weight_decay: float, momentum: float) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        buffers = [self._buffer(matrix) for matrix in matrices]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)
        update_NRC = orthogonal(torch.stack(ahead)).float()
        size = 0.2 * max(matrices[0].shape) ** 0.5
        tensors: list[Tensor] = list(matrices)
        torch._foreach_mul_(tensors, 1 - lr * weight_decay)
        torch._foreach_add_(tensors, (update_NRC * (-size * lr)).unbind())

    def _buffer(self, matrix: nn.Parameter) -> Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer: Tensor = state["momentum_buffer"]
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
