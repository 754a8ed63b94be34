"""The head and its loss on a CPU in float32, with the gradient. Shapes: N tokens, D width, V vocabulary.

The logits of a chunk are gone over as few times as can be: less their greatest, exponentials, sum. Dividing by the sum
and weighing the rows happens on the narrow side of each product.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from linnet.models.cpu.products import pays, times_transposed


def losses_and_gradients(
    hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, scale: Tensor, chunks: Iterable[slice]
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of −log p over the targets that are not negative, times `scale`; its derivatives by hidden and head."""
    grad_hidden, grad_head = torch.empty_like(hidden_ND), torch.empty_like(head_VD)
    total = hidden_ND.new_zeros(())
    for rows in chunks:
        hidden, targets = hidden_ND[rows], targets_N[rows].clamp(min=0)[:, None]
        quicker = pays(hidden, head_VD)
        logits = times_transposed(hidden, head_VD) if quicker else hidden @ head_VD.T
        greatest = logits.amax(1, keepdim=True)
        of_target = logits.gather(1, targets) - greatest
        e = logits.sub_(greatest).exp_()
        sums = e.sum(1, keepdim=True)
        weights = (targets_N[rows] >= 0)[:, None] * scale  # 0 for ignored rows
        total = total + ((sums.log() - of_target) * weights).sum()
        # d loss / d logits = (e / sum − one-hot) · weight
        slope = e.scatter_add_(1, targets, -sums)
        weights = weights / sums
        by_hidden = times_transposed(slope, head_VD.T) if quicker else slope @ head_VD
        torch.mul(by_hidden, weights, out=grad_hidden[rows])
        if rows.start == 0:
            torch.mm(slope.T, hidden * weights, out=grad_head)
        else:
            grad_head.addmm_(slope.T, hidden * weights)
    return total, grad_hidden, grad_head
