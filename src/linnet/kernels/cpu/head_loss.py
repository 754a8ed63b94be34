"""The head and its loss on a CPU in float32, with the gradient. Shapes: N tokens, D width, V vocabulary.

The logits of a chunk are gone over as few times as can be: less their greatest, exponentials, sum. Dividing by the sum
and weighing the rows happens on the narrow side of each matmul.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linnet.kernels.cpu.matmul import is_faster, times_transposed
from linnet.kernels.head_loss import chunks, scaled_gradients


class CPUHeadLoss(torch.autograd.Function):
    """The loss times `scale`, with its gradients by hidden states and head; see `head_loss.HeadLoss`."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, scale: Tensor) -> Tensor:  # noqa: D102
        total, by_hidden, by_head = loss_and_gradients(hidden_ND, head_VD, targets_N, scale)
        wanted = ctx.needs_input_grad
        ctx.save_for_backward(by_hidden if wanted[0] else None, by_head if wanted[1] else None)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        return *scaled_gradients(ctx, gradients[0]), None, None


def loss_and_gradients(
    hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of −log p over the targets that are not negative, times `scale`; its derivatives by hidden and head."""
    grad_hidden, grad_head = torch.empty_like(hidden_ND), torch.empty_like(head_VD)
    total = hidden_ND.new_zeros(())
    for rows in chunks(hidden_ND):
        hidden, targets = hidden_ND[rows], targets_N[rows].clamp(min=0)[:, None]
        quicker = is_faster(hidden, head_VD)
        logits = times_transposed(hidden, head_VD) if quicker else hidden @ head_VD.T
        greatest = logits.amax(1, keepdim=True)
        of_target = logits.gather(1, targets) - greatest
        e = logits.sub_(greatest).exp_()
        sums = e.sum(1, keepdim=True)
        weights = (targets_N[rows] >= 0)[:, None] * scale  # 0 for ignored rows
        total = total + ((sums.log() - of_target) * weights).sum()
        # d loss / d logits = (e / sum − one-hot) · weight
        grad_logits = e.scatter_add_(1, targets, -sums)
        weights = weights / sums
        by_hidden = times_transposed(grad_logits, head_VD.T) if quicker else grad_logits @ head_VD
        torch.mul(by_hidden, weights, out=grad_hidden[rows])
        if rows.start == 0:
            torch.mm(grad_logits.T, hidden * weights, out=grad_head)
        else:
            grad_head.addmm_(grad_logits.T, hidden * weights)
    return total, grad_hidden, grad_head
