"""The output head and cross entropy together, a few rows at a time: the logits of a batch never exist whole.

The gradient is made in the forward pass, while a chunk's probabilities are at hand. That saves the logits' memory
(3.2 GB for 32k tokens of a 49k vocabulary in bf16) and, on a CPU, time: a chunk stays in the cache.
Shapes: N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows at a time. On a CPU a chunk of logits should stay in the cache; on a GPU products must stay large. A model
# that is only described (`meta`) has them all at once.
_ROWS = {"cpu": 256, "cuda": 8192, "mps": 2048, "meta": 1 << 40}


def head_loss(hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, divisor: Tensor | None = None) -> Tensor:
    """Cross entropy in nats, summed over the targets that are not negative, and divided by their number.

    `divisor` replaces that number: a step of several batches divides each by the tokens of all.
    The head is cast to the dtype of `hidden_ND`; softmax and sums are in float32.
    """
    if divisor is None:
        divisor = (targets_N >= 0).sum().clamp(min=1)
    if torch.is_grad_enabled() and (hidden_ND.requires_grad or head_VD.requires_grad):
        loss: Tensor = _HeadLoss.apply(hidden_ND, head_VD, targets_N, 1.0 / divisor.float())
        return loss
    total = torch.zeros((), device=hidden_ND.device)
    head = head_VD.to(hidden_ND.dtype)
    for rows in _chunks(hidden_ND):
        total = total + token_losses(F.linear(hidden_ND[rows], head), targets_N[rows]).sum()
    return total / divisor


def token_losses(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """[N]: −log p of each target; 0 where it is negative."""
    losses = F.cross_entropy(logits_NV.float(), targets_N.clamp(min=0), reduction="none")
    return losses * (targets_N >= 0)


def _chunks(hidden_ND: Tensor) -> Iterator[slice]:
    """Slices of nearly equal height, so that no last one is a crumb."""
    N = hidden_ND.shape[0]
    count = -(-N // _ROWS.get(hidden_ND.device.type, 2048))
    height = -(-N // max(count, 1))
    for start in range(0, N, max(height, 1)):
        yield slice(start, min(start + height, N))


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, scale: Tensor) -> Tensor:
        head = head_VD.to(hidden_ND.dtype)
        grad_hidden = torch.empty_like(hidden_ND) if ctx.needs_input_grad[0] else None
        grad_head = torch.zeros_like(head_VD) if ctx.needs_input_grad[1] else None
        total = torch.zeros((), device=hidden_ND.device)
        for rows in _chunks(hidden_ND):
            hidden, targets = hidden_ND[rows], targets_N[rows].clamp(min=0)[:, None]
            weights = (targets_N[rows] >= 0)[:, None] * scale  # 0 for ignored rows
            log_p = F.log_softmax(F.linear(hidden, head), -1, dtype=torch.float32)
            total = total - (log_p.gather(1, targets) * weights).sum()
            # d loss / d logits = (p − one-hot) · weight; the weight goes to the narrow side of each product.
            minus_one = log_p.new_full((), -1.0).expand(targets.shape)
            grad_logits = log_p.exp_().scatter_add_(1, targets, minus_one).to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[rows] = (grad_logits @ head) * weights
            if grad_head is not None:
                weighted = (hidden * weights).to(hidden.dtype)
                if grad_head.dtype == hidden.dtype:
                    grad_head.addmm_(grad_logits.T, weighted)
                else:
                    grad_head += grad_logits.T @ weighted
        ctx.save_for_backward(grad_hidden, grad_head)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (grad_loss,) = gradients
        grad_hidden, grad_head = ctx.saved_tensors
        return (
            None if grad_hidden is None else (grad_hidden * grad_loss).to(grad_hidden.dtype),
            None if grad_head is None else grad_head * grad_loss,
            None,
            None,
        )
