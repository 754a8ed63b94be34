"""Cross entropy and the divergence from a teacher's logits, with their gradient, as one Triton kernel.

A row of the student's logits and one of the teacher's are read once for their sums, and again while the gradient takes
the place of the student's. `distillation.distillation_grad` says what is computed; torch's operations pass over the
logits a dozen times for it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)
_LOWEST = tl.constexpr(-1e30)  # in the place of −∞, of which a difference is no number


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

    It takes the place of the student's logits; the teacher's stay as they are.
    """
    N, width = logits_NV.shape
    entropies_N, divergences_N = torch.empty(2, N, device=logits_NV.device)
    _distillation_grad[(N,)](
        logits_NV, teacher_NV, targets_N, weights_N, entropies_N, divergences_N,
        logits_NV.stride(0), teacher_NV.stride(0), vocab, width, share, temperature,
        PLAIN=temperature == 1, BLOCK=_BLOCK, num_warps=16,
    )  # fmt: skip
    return entropies_N, divergences_N, logits_NV


@triton.jit
def _distillation_grad(
    logits, teacher, targets, weights, entropies, divergences, stride, teacher_stride, vocab, width,
    share, temperature, PLAIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    teacher += row * teacher_stride
    target = tl.maximum(tl.load(targets + row), 0)
    known = target < vocab  # no such token: its loss is no number, and nothing is written beside the row
    weight = tl.load(weights + row)
    # Read before the sums, for which all warps wait: a quick one may already write there when a slow one would read.
    of_target = tl.load(logits + target, mask=known, other=float("nan")).to(tl.float32)
    by_temperature = _LOG2_E / temperature
    column = tl.arange(0, BLOCK)
    # Sums of powers of two, each lane's against the greatest it has seen; of the student at temperature 1 and at T.
    most_q = tl.full((BLOCK,), _LOWEST, tl.float32)
    most_p = tl.full((BLOCK,), _LOWEST, tl.float32)
    sum_q = tl.zeros((BLOCK,), tl.float32)
    sum_q_t = tl.zeros((BLOCK,), tl.float32)
    sum_p = tl.zeros((BLOCK,), tl.float32)
    gap = tl.zeros((BLOCK,), tl.float32)  # teacher's logit less the student's, by the teacher's powers
    for start in range(0, vocab, BLOCK):
        inside = start + column < vocab
        z = tl.load(logits + start + column, mask=inside, other=_LOWEST).to(tl.float32)
        t = tl.load(teacher + start + column, mask=inside, other=_LOWEST).to(tl.float32)
        new_q = tl.maximum(most_q, z)
        sum_q = sum_q * tl.exp2((most_q - new_q) * _LOG2_E) + tl.exp2((z - new_q) * _LOG2_E)
        if not PLAIN:
            sum_q_t = sum_q_t * tl.exp2((most_q - new_q) * by_temperature) + tl.exp2((z - new_q) * by_temperature)
        most_q = new_q
        new_p = tl.maximum(most_p, t)
        shrunk = tl.exp2((most_p - new_p) * by_temperature)
        power = tl.exp2((t - new_p) * by_temperature)
        sum_p = sum_p * shrunk + power
        gap = gap * shrunk + power * tl.where(inside, t - z, 0.0)
        most_p = new_p
    top_q, top_p = tl.max(most_q), tl.max(most_p)
    log_q = top_q * _LOG2_E + tl.log2(tl.sum(sum_q * tl.exp2((most_q - top_q) * _LOG2_E)))
    log_q_t = log_q
    if not PLAIN:
        log_q_t = top_q * by_temperature + tl.log2(tl.sum(sum_q_t * tl.exp2((most_q - top_q) * by_temperature)))
    shrunk = tl.exp2((most_p - top_p) * by_temperature)
    total_p = tl.sum(sum_p * shrunk)
    log_p = top_p * by_temperature + tl.log2(total_p)
    mean_gap = tl.sum(gap * shrunk) / total_p
    tl.store(entropies + row, weight * (log_q * _LN_2 - of_target))
    divergence = mean_gap / temperature + (log_q_t - log_p) * _LN_2
    tl.store(divergences + row, weight * temperature * temperature * divergence)
    by_targets, by_teacher = weight * (1 - share), weight * share * temperature
    for start in range(0, width, BLOCK):
        inside = start + column < vocab
        z = tl.load(logits + start + column, mask=inside, other=_LOWEST).to(tl.float32)
        t = tl.load(teacher + start + column, mask=inside, other=_LOWEST).to(tl.float32)
        q = tl.exp2(z * _LOG2_E - log_q)
        q_t = q
        if not PLAIN:
            q_t = tl.exp2(z * by_temperature - log_q_t)
        p = tl.exp2(t * by_temperature - log_p)
        slope = tl.where(inside, by_targets * q + by_teacher * (q_t - p), 0.0)
        # The target's place is written by itself, with all that is due to it: no lane need wait for another.
        slope = tl.where(start + column == target, slope - by_targets, slope)
        tl.store(logits + start + column, slope, mask=start + column < width)
