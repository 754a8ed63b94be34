"""Distillation fused with the output head: cross entropy and the divergence from a teacher, a few rows at a time.

The objective is (1 − share) · cross entropy + share · T² · KL(teacher ‖ student), the latter of probabilities at the
temperature T. As in `head_loss` the gradient is made in the forward pass; neither the student's logits nor the
teacher's ever exist whole. Shapes: N tokens, D the student's width, E the teacher's, V vocabulary, K likeliest tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels.head_loss import add_matmul, chunks, padded, scaled_gradients

_LEAST = 1e-30  # of a probability that is divided by


class TeacherHead(NamedTuple):
    """A teacher over the whole vocabulary: what its output head reads, and that head, by which logits are made.

    Its rows are the student's tokens; more of them are padding.
    """

    hidden_NE: Tensor
    head_VE: Tensor


class TopTokens(NamedTuple):
    """A teacher by its K likeliest tokens, at the temperature of the loss: their ids, and the logarithms of their
    probabilities with, in the last column, that of all other tokens together.
    """

    ids_NK: Tensor
    log_p_NK1: Tensor


Teacher = TeacherHead | TopTokens


class Distillation(NamedTuple):
    """What a loss learns from a teacher: its distributions, how much they count, and at which temperature."""

    teacher: Teacher
    share: float
    temperature: float


class DistilledLoss(NamedTuple):
    """What gradients are taken of, and its parts: mean cross entropy, and T² times the mean divergence; in nats."""

    objective: Tensor
    cross_entropy: Tensor
    divergence: Tensor


# Logits, targets, weights of the rows, the vocabulary's size; the teacher's logits, its share, the temperature →
# cross entropies, divergences and gradients: see `distillation_grad`.
DistillationGrad = Callable[[Tensor, Tensor, Tensor, int, Tensor, float, float], tuple[Tensor, Tensor, Tensor]]


class DistilledHeadLoss(torch.autograd.Function):
    """The three losses times `scale`, with the objective's gradients by hidden states and head."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        head_VD: Tensor,
        targets_N: Tensor,
        scale: Tensor,
        distillation: Distillation,
        of_whole: DistillationGrad,
    ) -> tuple[Tensor, Tensor, Tensor]:
        teacher, share, temperature = distillation
        vocab = head_VD.shape[0]
        head = padded(head_VD.to(hidden_ND.dtype))
        grad_hidden = torch.empty_like(hidden_ND) if ctx.needs_input_grad[0] else None
        grad_head = torch.empty_like(head, dtype=head_VD.dtype) if ctx.needs_input_grad[1] else None
        entropy, divergence = (torch.zeros((), device=hidden_ND.device) for _ in range(2))
        for rows in chunks(hidden_ND):
            hidden, targets = hidden_ND[rows], targets_N[rows]
            weights = (targets >= 0) * scale  # 0 for ignored rows
            logits = F.linear(hidden, head)
            if isinstance(teacher, TeacherHead):
                teacher_logits = F.linear(teacher.hidden_NE[rows], teacher.head_VE)
                parts = of_whole(logits, targets, weights, vocab, teacher_logits, share, temperature)
            else:
                top = TopTokens(teacher.ids_NK[rows], teacher.log_p_NK1[rows])
                parts = top_distillation_grad(logits, targets, weights, vocab, top, share, temperature)
            entropies, divergences, grad_logits = parts
            entropy = entropy + entropies.sum()
            divergence = divergence + divergences.sum()
            if grad_hidden is not None:
                torch.mm(grad_logits, head, out=grad_hidden[rows])
            if grad_head is not None:
                add_matmul(grad_head, grad_logits.T, hidden, first=rows.start == 0)
        ctx.save_for_backward(grad_hidden, None if grad_head is None else grad_head[:vocab])
        ctx.mark_non_differentiable(entropy, divergence)
        return (1 - share) * entropy + share * divergence, entropy, divergence

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, gradients[0]), None, None, None, None


def distillation_grad(
    logits_NV: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    vocab: int,
    teacher_NV: Tensor,
    share: float,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """[N]: −log q of each target, weighted; [N]: T² · KL(p ‖ q), weighted; [N, V]: the objective's derivative.

    p are the teacher's probabilities, q the student's; in the divergence both at the temperature T. The derivative by
    the logits is weight · ((1 − share) · (q − one-hot) + share · T · (q_T − p_T)). Columns from `vocab` on are padding;
    a negative target counts as 0, as in `cross_entropy_grad`.
    """
    student = _Student(logits_NV, targets_N, vocab, share, temperature)
    log_p = F.log_softmax(teacher_NV[:, :vocab].float() / temperature, -1)
    p = log_p.exp()
    divergences = torch.sum(p * log_p.sub_(student.log_q_T), -1) * temperature**2
    return student.weighted(divergences, student.q_T().sub_(p), weights_N)


def top_distillation_grad(
    logits_NV: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    vocab: int,
    top: TopTokens,
    share: float,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same where the teacher is known by its likeliest tokens, and by the probability r of all others together.

    The divergence is that of K + 1 events: each of those tokens, and "another one". Where student and teacher agree on
    these it is 0; how the student shares r out among the others is up to it and to the targets. Nothing is made of the
    teacher's tokens but what it said: cut off and scaled up to 1, they would teach that all others never come.
    """
    student = _Student(logits_NV, targets_N, vocab, share, temperature)
    ids, log_p = top.ids_NK.long(), top.log_p_NK1.float()
    p = log_p.exp()
    q_T = student.q_T()
    top_q = q_T.gather(1, ids)
    rest_p, rest_q = p[:, -1:], q_T.scatter(1, ids, 0.0).sum(-1, keepdim=True).clamp_(min=_LEAST)
    log_q = torch.cat((student.log_q_T.gather(1, ids), rest_q.log()), 1)
    divergences = torch.where(p > 0, p * (log_p - log_q), 0.0).sum(-1) * temperature**2
    # By the logit of one of them T · (q − p); of another one, whose share of the rest is q / rest q, what is due to it.
    slopes = q_T.mul_(1 - rest_p / rest_q).scatter_(1, ids, top_q - p[:, :-1])
    return student.weighted(divergences, slopes, weights_N)


class _Student:
    """The student's side: its probabilities, and what cross entropy has to say."""

    def __init__(self, logits_NV: Tensor, targets_N: Tensor, vocab: int, share: float, temperature: float) -> None:
        self._shape, self._vocab, self._dtype = logits_NV.shape, vocab, logits_NV.dtype
        self._share, self._temperature = share, temperature
        self._targets_N1 = targets_N.clamp(min=0)[:, None]
        logits = logits_NV[:, :vocab].float()
        self._log_q = F.log_softmax(logits, -1)
        self.log_q_T = self._log_q if temperature == 1 else F.log_softmax(logits / temperature, -1)

    def q_T(self) -> Tensor:  # noqa: N802 (T is the temperature)
        """[N, V]: its probabilities at the temperature, to be written over."""
        return self.log_q_T.exp()

    def weighted(self, divergences_N: Tensor, slopes_NV: Tensor, weights_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Both losses and the objective's derivative, of which `slopes_NV` is the teacher's part, without factors."""
        entropies_N = -self._log_q.gather(1, self._targets_N1)[:, 0]
        minus_one = self._log_q.new_full((), -1.0).expand(self._targets_N1.shape)
        by_targets = self._log_q.exp().scatter_add_(1, self._targets_N1, minus_one)
        slopes_NV.mul_(self._share * self._temperature).add_(by_targets, alpha=1 - self._share)
        grad_NV = torch.empty(self._shape, dtype=self._dtype, device=slopes_NV.device)
        grad_NV[:, self._vocab :] = 0
        torch.mul(slopes_NV, weights_N[:, None], out=grad_NV[:, : self._vocab])
        return entropies_N * weights_N, divergences_N * weights_N, grad_NV


def top_tokens(teacher: TeacherHead, vocab: int, count: int, temperature: float) -> TopTokens:
    """A teacher's likeliest tokens at a temperature, the likeliest first; its logits exist a few rows at a time."""
    parts = []
    for rows in chunks(teacher.hidden_NE):
        logits = F.linear(teacher.hidden_NE[rows], teacher.head_VE)[:, :vocab]
        log_p = F.log_softmax(logits.float().div_(temperature), -1)
        top, ids = log_p.topk(count, -1)
        rest = log_p.scatter_(1, ids, -torch.inf).logsumexp(-1, keepdim=True)
        parts.append((ids, torch.cat((top, rest), 1)))
    return TopTokens(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
