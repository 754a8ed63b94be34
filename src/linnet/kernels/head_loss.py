"""The output head and cross entropy together, a few rows at a time: the logits of a batch never exist whole.

The gradient is made in the forward pass, while a chunk's probabilities are at hand. That saves the logits' memory
(3.2 GB for 32k tokens of a 49k vocabulary in bf16) and, on a CPU, time: a chunk stays in the cache.
Shapes: N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels import cpu
from linnet.kernels.frozen import frozen_input_grad, frozen_product
from linnet.kernels.packed import PackedMatrix

# Logits, targets, weights of the rows and the vocabulary's size → losses and gradients: see `cross_entropy_grad`.
CrossEntropy = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]

# Rows at a time. On a CPU a chunk of logits should stay in the cache; on a GPU matmuls must stay large. A model
# that is only described (`meta`) has them all at once.
_ROWS = {"cpu": 128, "cuda": 8192, "mps": 2048, "meta": 1 << 40}
_PACKED_LOGITS = 1 << 24  # numbers of a chunk on a CPU where the head is packed, and decoded twice for each of them


def evaluated_head_loss(
    hidden_ND: Tensor, head_VD: Tensor | PackedMatrix, targets_N: Tensor, divisor: Tensor
) -> Tensor:
    """The loss without a gradient: cross entropy over the targets that are not negative, divided by `divisor`."""
    total = torch.zeros((), device=hidden_ND.device)
    head = head_VD.to(hidden_ND.dtype) if isinstance(head_VD, Tensor) else head_VD
    for rows in chunks(hidden_ND, None if isinstance(head, Tensor) else head):
        targets, hidden = targets_N[rows], hidden_ND[rows]
        logits = F.linear(hidden, head) if isinstance(head, Tensor) else frozen_product(hidden, head)
        losses = F.cross_entropy(logits.float(), targets.clamp(min=0), reduction="none")
        total = total + (losses * (targets >= 0)).sum()
    return total / divisor


def chunks(hidden_ND: Tensor, packed: PackedMatrix | None = None) -> Iterator[slice]:
    """At least one slice, and all of nearly equal height, so that no last one is a crumb. `packed`: the head."""
    N = hidden_ND.shape[0]
    count = -(-N // rows_at_once(hidden_ND.device.type, packed))
    height = -(-N // max(count, 1))
    for start in range(0, max(N, 1), max(height, 1)):
        yield slice(start, min(start + height, N))


def rows_at_once(kind: str, packed: PackedMatrix | None = None) -> int:
    """Rows of logits that there are at a time on a kind of device. `packed`: the head."""
    most = _ROWS.get(kind, 2048)
    return max(most, _PACKED_LOGITS // packed.shape[0]) if packed is not None and kind == "cpu" else most


class HeadLoss(torch.autograd.Function):
    """The loss times `scale`, with its gradients by hidden states and head, by a form of `cross_entropy_grad`."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, scale: Tensor, cross_entropy: CrossEntropy
    ) -> Tensor:
        vocab = head_VD.shape[0]
        head = padded(head_VD.to(hidden_ND.dtype))
        grad_hidden = torch.empty_like(hidden_ND) if ctx.needs_input_grad[0] else None
        grad_head = torch.empty_like(head, dtype=head_VD.dtype) if ctx.needs_input_grad[1] else None
        total = torch.zeros((), device=hidden_ND.device)
        for rows in chunks(hidden_ND):
            hidden, targets = hidden_ND[rows], targets_N[rows]
            weights = (targets >= 0) * scale  # 0 for ignored rows
            losses, grad_logits = cross_entropy(F.linear(hidden, head), targets, weights, vocab)
            total = total + losses.sum()
            if grad_hidden is not None:
                torch.mm(grad_logits, head, out=grad_hidden[rows])
            if grad_head is not None:
                add_matmul(grad_head, grad_logits.T, hidden, first=rows.start == 0)
        ctx.save_for_backward(grad_hidden, None if grad_head is None else grad_head[:vocab])
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, gradients[0]), None, None, None


class CPUHeadLoss(torch.autograd.Function):
    """The same on a CPU in float32, with as few passes over the logits as can be: less their greatest, exp, sum.

    Dividing by the sum and weighing the rows happens on the narrow side of each matmul.
    """

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, head_VD: Tensor, targets_N: Tensor, scale: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad
        grad_hidden = torch.empty_like(hidden_ND)
        grad_head = torch.empty_like(head_VD) if wanted[1] else None
        total = hidden_ND.new_zeros(())
        for rows in chunks(hidden_ND):
            hidden = hidden_ND[rows]
            by_onednn = cpu.matmul_is_faster(hidden, head_VD)
            logits = cpu.onednn_linear(hidden, head_VD) if by_onednn else hidden @ head_VD.T
            loss, grad_logits, weights = _softmax_grad(logits, targets_N[rows], scale)
            total = total + loss
            by_hidden = cpu.onednn_linear(grad_logits, head_VD.T) if by_onednn else grad_logits @ head_VD
            torch.mul(by_hidden, weights, out=grad_hidden[rows])
            if grad_head is None:
                continue
            if rows.start == 0:
                torch.mm(grad_logits.T, hidden * weights, out=grad_head)
            else:
                grad_head.addmm_(grad_logits.T, hidden * weights)
        ctx.save_for_backward(grad_hidden if wanted[0] else None, grad_head)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, gradients[0]), None, None


class PackedHeadLoss(torch.autograd.Function):
    """The same with a packed head, which is not trained: some rows are decoded at a time, twice for each chunk."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, head_VD: PackedMatrix, targets_N: Tensor, scale: Tensor) -> Tensor:
        grad_hidden = torch.empty_like(hidden_ND)
        total = hidden_ND.new_zeros(())
        for rows in chunks(hidden_ND, head_VD):
            logits = frozen_product(hidden_ND[rows], head_VD)
            loss, grad_logits, weights = _softmax_grad(logits, targets_N[rows], scale)
            total = total + loss
            torch.mul(frozen_input_grad(grad_logits, head_VD), weights, out=grad_hidden[rows])
        ctx.save_for_backward(grad_hidden, None)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return scaled_gradients(ctx, gradients[0])[0], None, None, None


class TargetLogProbs(torch.autograd.Function):
    """[N]: log p of each target in float32, 0 where it is negative; for losses that weigh each by what the others are.

    The gradient cannot be made in the forward pass then: a chunk's logits are made again in the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, head_VD: Tensor | PackedMatrix, targets_N: Tensor) -> Tensor:
        log_p_N, log_sums_N = (torch.zeros(len(targets_N), device=hidden_ND.device) for _ in range(2))
        for rows in _chunks_of(hidden_ND, head_VD):
            logits, targets = frozen_product(hidden_ND[rows], head_VD).float(), targets_N[rows]
            log_sums = logits.logsumexp(1)
            of_target = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
            log_p_N[rows] = torch.where(targets >= 0, of_target - log_sums, 0.0)
            log_sums_N[rows] = log_sums
        is_packed = isinstance(head_VD, PackedMatrix)
        ctx.packed = head_VD if is_packed else None
        ctx.save_for_backward(hidden_ND, None if is_packed else head_VD, targets_N, log_sums_N)
        return log_p_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, plain_VD, targets_N, log_sums_N = ctx.saved_tensors
        head_VD = plain_VD if ctx.packed is None else ctx.packed
        grad_N = torch.where(targets_N >= 0, gradients[0], 0.0)
        grad_hidden = torch.empty_like(hidden_ND) if ctx.needs_input_grad[0] else None
        grad_head = torch.empty_like(plain_VD) if ctx.needs_input_grad[1] else None
        for rows in _chunks_of(hidden_ND, head_VD):
            hidden, grad_1 = hidden_ND[rows], grad_N[rows][:, None]
            p = frozen_product(hidden, head_VD).float().sub_(log_sums_N[rows][:, None]).exp_()
            by_logits = p.mul_(-grad_1).scatter_add_(1, targets_N[rows].clamp(min=0)[:, None], grad_1)
            by_logits = by_logits.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[rows] = frozen_input_grad(by_logits, head_VD)
            if grad_head is not None:
                add_matmul(grad_head, by_logits.T, hidden, first=rows.start == 0)
        return grad_hidden, grad_head, None


def _chunks_of(hidden_ND: Tensor, head_VD: Tensor | PackedMatrix) -> Iterator[slice]:
    return chunks(hidden_ND, head_VD if isinstance(head_VD, PackedMatrix) else None)


def _softmax_grad(logits: Tensor, targets_N: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of some rows; in place of their logits their derivative, once each row is multiplied by [N, 1].

    d loss / d logits = (e / sum − one-hot) · weight
    """
    targets = targets_N.clamp(min=0)[:, None]
    greatest = logits.amax(1, keepdim=True)
    of_target = logits.gather(1, targets) - greatest
    e = logits.sub_(greatest).exp_()
    sums = e.sum(1, keepdim=True)
    weights = (targets_N >= 0)[:, None] * scale  # 0 for ignored rows
    loss = ((sums.log() - of_target) * weights).sum()
    return loss, e.scatter_add_(1, targets, -sums), weights / sums


def scaled_gradients(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What the forward pass saved, the gradients by hidden states and head, times that of the loss."""
    grad_hidden, grad_head = ctx.saved_tensors
    if grad_loss is not _ones.get(grad_loss.device):
        grad_hidden = None if grad_hidden is None else (grad_hidden * grad_loss).to(grad_hidden.dtype)
        grad_head = None if grad_head is None else grad_head * grad_loss
    return grad_hidden, grad_head


_ones: dict[torch.device, Tensor] = {}

# What `backward` and `torch.autograd.grad` call. They themselves first load sympy, half a second of every start, to
# compare the shape of a gradient that is given with that of the loss.
_run_engine = torch.autograd.graph._engine_run_backward


def backward(loss: Tensor) -> None:
    """`loss.backward()`, for which the head's gradients, the largest of all, need not be multiplied by 1."""
    _run_engine((loss,), (_scalar_one(loss.device),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """`torch.autograd.grad` likewise; None for what the loss does not depend on."""
    one = _scalar_one(loss.device)
    return list(_run_engine((loss,), (one,), False, False, tuple(parameters), True, accumulate_grad=False))


def _scalar_one(device: torch.device) -> Tensor:
    if device not in _ones:
        _ones[device] = torch.ones((), device=device)
    return _ones[device]


def cross_entropy_grad(logits_NV: Tensor, targets_N: Tensor, weights_N: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """[N]: −log p of each target, weighted; [N, V]: its derivative by the logits, weight · (p − one-hot).

    Columns from `vocab` on are padding. A negative target counts as 0: the caller gives its row no weight.
    """
    targets_N1 = targets_N.clamp(min=0)[:, None]
    log_p = F.log_softmax(logits_NV[:, :vocab], -1, dtype=torch.float32)
    losses_N = -log_p.gather(1, targets_N1)[:, 0] * weights_N
    minus_one = log_p.new_full((), -1.0).expand(targets_N1.shape)
    grad_NV = torch.empty_like(logits_NV)
    grad_NV[:, vocab:] = 0
    torch.mul(log_p.exp_().scatter_add_(1, targets_N1, minus_one), weights_N[:, None], out=grad_NV[:, :vocab])
    return losses_N, grad_NV


def padded(head_VD: Tensor) -> Tensor:
    """On a GPU a vocabulary that is no multiple of 64 makes three matmuls slow: rows of zeros are added."""
    missing = -head_VD.shape[0] % 64 if head_VD.is_cuda else 0
    return F.pad(head_VD, (0, 0, 0, missing)) if missing else head_VD


def add_matmul(sum_VD: Tensor, a_VN: Tensor, b_ND: Tensor, first: bool) -> None:
    """sum += a b, added up in float32 whatever the factors are. Before the `first` there is nothing in the sum."""
    beta = 0 if first else 1
    if sum_VD.dtype == a_VN.dtype:
        sum_VD.addmm_(a_VN, b_ND, beta=beta)
    elif sum_VD.is_cuda:
        torch.addmm(sum_VD, a_VN, b_ND, beta=beta, out_dtype=sum_VD.dtype, out=sum_VD)
    elif first:
        sum_VD.copy_(a_VN @ b_ND)
    else:
        sum_VD += a_VN @ b_ND
