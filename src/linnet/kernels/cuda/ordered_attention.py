"""Attention whose backward pass adds in one order, so that it gives the same bits every time: Triton kernels.

The kernels of cuDNN and FlashAttention let all programs of a head add to the gradient of its queries as they come. Here
one program makes a stripe of that gradient whole, and another one a stripe of those of keys and values: two products
of seven are done twice, and nothing is added up across programs. Forwards the order is fixed anyway, so that pass is
torch's own; only documents, of which torch's kernels know nothing but a mask of all pairs, have a kernel here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

from linnet.kernels.cuda import can_order_attention, contiguous_rows

_CAPABILITY = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
_LOG2_E = tl.constexpr(1 / math.log(2))


def fits(head_size: int, dtype: torch.dtype) -> bool:
    """Can the kernels take such heads on this machine's GPU?"""
    return can_order_attention(head_size, dtype, _CAPABILITY)


class OrderedAttention(torch.autograd.Function):
    """softmax(q kᵀ / √D) v; K divides H. Causal, by documents, or of all tokens to all.

    `documents_BT` numbers the documents of each row: a token sees those before it with the same number.
    """

    @staticmethod
    def forward(
        ctx: Any, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor, causal: bool, documents_BT: Tensor | None
    ) -> Tensor:
        if documents_BT is None:
            out_BTHD, logs_BHT = _torch_attention(q_BTHD, k_BTKD, v_BTKD, causal)
        else:
            assert causal
            out_BTHD, logs_BHT = document_attention(q_BTHD, k_BTKD, v_BTKD, documents_BT)
        ctx.save_for_backward(q_BTHD, k_BTKD, v_BTKD, out_BTHD, logs_BHT, documents_BT)
        ctx.causal = causal
        return out_BTHD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q_BTHD, k_BTKD, v_BTKD, out_BTHD, logs_BHT, documents_BT = ctx.saved_tensors
        grad_BTGD = attention_backward(
            q_BTHD, k_BTKD, v_BTKD, out_BTHD, logs_BHT, gradients[0], ctx.causal, documents_BT
        )
        H, K = q_BTHD.shape[2], k_BTKD.shape[2]
        return *grad_BTGD.split((H, K, K), dim=2), None, None


def _torch_attention(q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention [B, T, H, D], and the logarithm of each softmax's sum [B, H, T]: by cuDNN on a GPU."""
    q_BHTD, k_BKTD, v_BKTD = (x.transpose(1, 2) for x in (q_BTHD, k_BTKD, v_BTKD))
    if q_BHTD.is_cuda:
        outputs = torch.ops.aten._scaled_dot_product_cudnn_attention(q_BHTD, k_BKTD, v_BKTD, None, True, 0.0, causal)
        return outputs[0].transpose(1, 2), outputs[1].squeeze(-1)
    group = q_BHTD.shape[1] // k_BKTD.shape[1]
    scores = q_BHTD @ k_BKTD.repeat_interleave(group, 1).mT * q_BHTD.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    out_BHTD = scores.softmax(-1) @ v_BKTD.repeat_interleave(group, 1)
    return out_BHTD.transpose(1, 2), scores.logsumexp(-1)


@triton_op("linnet::document_attention", mutates_args={})
def document_attention(q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor, documents_BT: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T, H, D]: what each token takes from those of its document before it; [B, H, T]: the logarithm of the sum."""
    B, T, H, D = q_BTHD.shape
    q_BTHD, k_BTKD, v_BTKD = contiguous_rows(q_BTHD), contiguous_rows(k_BTKD), contiguous_rows(v_BTKD)
    out_BTHD = torch.empty(B, T, H, D, device=q_BTHD.device, dtype=q_BTHD.dtype)
    logs_BHT = torch.empty(B, H, T, device=q_BTHD.device)
    width = _width(D)
    M, N, warps, stages = _BLOCKS["forward"][width]
    wrap_triton(_forward)[(B * H * triton.cdiv(T, M),)](
        q_BTHD, k_BTKD, v_BTKD, documents_BT.contiguous(), out_BTHD, logs_BHT,
        *_strides(q_BTHD, k_BTKD, v_BTKD), T, H, GROUP=H // k_BTKD.shape[2],
        SCALE=D**-0.5, D=D, WIDTH=width, M=M, N=N, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return out_BTHD, logs_BHT


@triton_op("linnet::attention_backward", mutates_args={})
def attention_backward(
    q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor, out_BTHD: Tensor, logs_BHT: Tensor, grad_BTHD: Tensor,
    causal: bool, documents_BT: Tensor | None,
) -> Tensor:  # fmt: skip
    """[B, T, H + 2K, D]: the gradients by q, k and v, side by side."""
    B, T, H, D = q_BTHD.shape
    K = k_BTKD.shape[2]
    inputs = [contiguous_rows(x) for x in (q_BTHD, k_BTKD, v_BTKD)]
    out_BTHD, grad_BTHD, logs_BHT = contiguous_rows(out_BTHD), contiguous_rows(grad_BTHD), logs_BHT.contiguous()
    grads_BTGD = torch.empty(B, T, H + 2 * K, D, device=q_BTHD.device, dtype=q_BTHD.dtype)
    inner_BHT = torch.empty(B, H, T, device=q_BTHD.device)
    documents = logs_BHT if documents_BT is None else documents_BT.contiguous()
    flags = {"CAUSAL": causal, "DOCUMENTS": documents_BT is not None, "SCALE": D**-0.5, "D": D, "WIDTH": _width(D)}
    M, N, warps, stages = _BLOCKS["queries"][_width(D)]
    wrap_triton(_query_grad)[(B * H * triton.cdiv(T, M),)](
        *inputs, out_BTHD, grad_BTHD, logs_BHT, documents, grads_BTGD, inner_BHT,
        *_strides(*inputs, out_BTHD, grad_BTHD), T, H, K,
        **flags, M=M, N=N, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    M, N, warps, stages = _BLOCKS["keys"][_width(D)]
    wrap_triton(_key_value_grad)[(B * K * triton.cdiv(T, N),)](
        *inputs, grad_BTHD, logs_BHT, documents, grads_BTGD, inner_BHT,
        *_strides(*inputs, grad_BTHD), T, H, K,
        **flags, M=M, N=N, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return grads_BTGD


# Queries and keys that a program has at once, its warps, and how many iterations ahead it loads; by the head's width.
# The quickest of ten on an H200 (docs/log.md).
_BLOCKS: dict[str, dict[int, tuple[int, int, int, int]]] = {
    "forward": dict.fromkeys((16, 32, 64, 128), (64, 64, 4, 2)),
    "queries": {**dict.fromkeys((16, 32, 64), (64, 64, 4, 3)), 128: (64, 64, 4, 2)},
    "keys": {**dict.fromkeys((16, 32, 64), (64, 64, 4, 2)), 128: (32, 64, 4, 2)},
}


def _width(D: int) -> int:
    """The next power of two, from the least that a GPU's matrix units take."""
    return max(16, 1 << (D - 1).bit_length())


def _strides(*tensors: Tensor) -> list[int]:
    """Of batch, token and head."""
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


@triton.jit
def _forward(
    q, k, v, documents, out, logs,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, T, H, GROUP: tl.constexpr,
    SCALE: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(T, M)
    block = blocks - 1 - tl.program_id(0) % blocks  # those with the most keys first
    head = tl.program_id(0) // blocks
    b, h = (head // H).to(tl.int64), head % H
    k += b * k_b + h // GROUP * k_h
    v += b * v_b + h // GROUP * v_h
    documents += b * T
    t = block * M + tl.arange(0, M)
    x_q = _rows(q + b * q_b + h * q_h, t, q_t, T, D, WIDTH)
    document = tl.load(documents + t, mask=t < T, other=-1)
    largest = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    attended = tl.zeros((M, WIDTH), tl.float32)
    for first in tl.range(0, tl.minimum(block * M + M, T), N, num_stages=STAGES):
        s = first + tl.arange(0, N)
        x_k = _rows(k, s, k_t, T, D, WIDTH)
        x_v = _rows(v, s, v_t, T, D, WIDTH)
        visible = (t[:, None] >= s[None, :]) & (
            document[:, None] == tl.load(documents + s, mask=s < T, other=-2)[None, :]
        )
        scores = tl.where(visible, tl.dot(x_q, tl.trans(x_k)) * (SCALE * _LOG2_E), float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        reference = tl.where(larger == float("-inf"), 0.0, larger)  # nothing was seen yet
        p = tl.exp2(scores - reference[:, None])
        before = tl.exp2(largest - reference)
        total = total * before + tl.sum(p, 1)
        attended = attended * before[:, None] + tl.dot(p.to(x_v.dtype), x_v)
        largest = larger
    d = tl.arange(0, WIDTH)
    inside = (t < T)[:, None] & (d < D)[None, :]
    out += (b * T + t[:, None]) * H * D + h * D + d[None, :]
    tl.store(out, attended / total[:, None], mask=inside)
    tl.store(logs + head.to(tl.int64) * T + t, (largest + tl.log2(total)) / _LOG2_E, mask=t < T)


@triton.jit
def _query_grad(
    q, k, v, out, grad, logs, documents, grads, inners,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, o_b, o_t, o_h, g_b, g_t, g_h, T, H, K,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, SCALE: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of M queries, by all keys that they saw; and grad · out of each, which the other kernel reads."""
    blocks = tl.cdiv(T, M)
    block = blocks - 1 - tl.program_id(0) % blocks  # those with the most keys first
    head = tl.program_id(0) // blocks
    b, h = (head // H).to(tl.int64), head % H
    of_key = h // (H // K)
    k += b * k_b + of_key * k_h
    v += b * v_b + of_key * v_h
    t = block * M + tl.arange(0, M)
    x_q = _rows(q + b * q_b + h * q_h, t, q_t, T, D, WIDTH)
    g = _rows(grad + b * g_b + h * g_h, t, g_t, T, D, WIDTH)
    x_out = _rows(out + b * o_b + h * o_h, t, o_t, T, D, WIDTH)
    inner = tl.sum(g.to(tl.float32) * x_out.to(tl.float32), 1)
    row = head.to(tl.int64) * T + t
    tl.store(inners + row, inner, mask=t < T)
    log = tl.load(logs + row, mask=t < T, other=float("inf")) * _LOG2_E  # beyond T all probabilities are 0
    total = tl.zeros((M, WIDTH), tl.float32)
    whole = block * M // N * N if CAUSAL else tl.cdiv(T, N) * N  # keys in blocks that all these queries see
    for first in tl.range(0, whole, N, num_stages=STAGES):
        total = _add_query_grad(
            total, x_q, g, inner, log, k, v, documents + b * T, t, first, k_t, v_t, T,
            False, DOCUMENTS, SCALE, D, WIDTH, N,
        )  # fmt: skip
    if CAUSAL:
        for first in tl.range(whole, tl.minimum(block * M + M, T), N, num_stages=STAGES):
            total = _add_query_grad(
                total, x_q, g, inner, log, k, v, documents + b * T, t, first, k_t, v_t, T,
                True, DOCUMENTS, SCALE, D, WIDTH, N,
            )  # fmt: skip
    _store(grads, total * SCALE, b * T + t, h, H + 2 * K, t < T, D, WIDTH)


@triton.jit
def _add_query_grad(
    total, x_q, g, inner, log, k, v, documents, t, first, k_t, v_t, T,
    MASKED: tl.constexpr, DOCUMENTS: tl.constexpr, SCALE: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    s = first + tl.arange(0, N)
    x_k = _rows(k, s, k_t, T, D, WIDTH)  # beyond T it is 0, and so is what it adds
    x_v = _rows(v, s, v_t, T, D, WIDTH)
    p = tl.exp2(tl.dot(x_q, tl.trans(x_k)) * (SCALE * _LOG2_E) - log[:, None])
    if MASKED:
        p = tl.where(t[:, None] >= s[None, :], p, 0.0)
    if DOCUMENTS:
        p = tl.where(_alike(documents, t, s, T), p, 0.0)
    slope = p * (tl.dot(g, tl.trans(x_v)) - inner[:, None])
    return total + tl.dot(slope.to(x_k.dtype), x_k)


@triton.jit
def _key_value_grad(
    q, k, v, grad, logs, documents, grads, inners,
    q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, g_b, g_t, g_h, T, H, K,
    CAUSAL: tl.constexpr, DOCUMENTS: tl.constexpr, SCALE: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradients of N keys and their values, by all queries that saw them, head after head."""
    blocks = tl.cdiv(T, N)
    block = tl.program_id(0) % blocks  # those with the most queries first
    head = tl.program_id(0) // blocks
    b, of_key = (head // K).to(tl.int64), head % K
    s = block * N + tl.arange(0, N)
    x_k = _rows(k + b * k_b + of_key * k_h, s, k_t, T, D, WIDTH)
    x_v = _rows(v + b * v_b + of_key * v_h, s, v_t, T, D, WIDTH)
    by_k = tl.zeros((N, WIDTH), tl.float32)
    by_v = tl.zeros((N, WIDTH), tl.float32)
    start = block * N // M * M if CAUSAL else 0
    whole = tl.minimum(tl.cdiv(block * N + N, M) * M, tl.cdiv(T, M) * M) if CAUSAL else 0
    for h in range(of_key * (H // K), (of_key + 1) * (H // K)):
        x_q = q + b * q_b + h * q_h
        g = grad + b * g_b + h * g_h
        base = (b * H + h) * T
        if CAUSAL:
            for first in tl.range(start, whole, M, num_stages=STAGES):
                by_k, by_v = _add_key_value_grad(
                    by_k, by_v, x_k, x_v, x_q, g, logs + base, inners + base, documents + b * T, s, first, q_t, g_t,
                    T, True, DOCUMENTS, SCALE, D, WIDTH, M,
                )  # fmt: skip
        for first in tl.range(whole, T, M, num_stages=STAGES):
            by_k, by_v = _add_key_value_grad(
                by_k, by_v, x_k, x_v, x_q, g, logs + base, inners + base, documents + b * T, s, first, q_t, g_t,
                T, False, DOCUMENTS, SCALE, D, WIDTH, M,
            )  # fmt: skip
    _store(grads, by_k * SCALE, b * T + s, H + of_key, H + 2 * K, s < T, D, WIDTH)
    _store(grads, by_v, b * T + s, H + K + of_key, H + 2 * K, s < T, D, WIDTH)


@triton.jit
def _add_key_value_grad(
    by_k, by_v, x_k, x_v, q, grad, logs, inners, documents, s, first, q_t, g_t, T,
    MASKED: tl.constexpr, DOCUMENTS: tl.constexpr, SCALE: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    M: tl.constexpr,
):  # fmt: skip
    t = first + tl.arange(0, M)
    x_q = _rows(q, t, q_t, T, D, WIDTH)
    g = _rows(grad, t, g_t, T, D, WIDTH)
    log = tl.load(logs + t, mask=t < T, other=float("inf")) * _LOG2_E  # beyond T all probabilities are 0
    inner = tl.load(inners + t, mask=t < T, other=0.0)
    p = tl.exp2(tl.dot(x_k, tl.trans(x_q)) * (SCALE * _LOG2_E) - log[None, :])
    if MASKED:
        p = tl.where(t[None, :] >= s[:, None], p, 0.0)
    if DOCUMENTS:
        p = tl.where(_alike(documents, s, t, T), p, 0.0)
    by_v += tl.dot(p.to(g.dtype), g)
    slope = p * (tl.dot(x_v, tl.trans(g)) - inner[None, :])
    by_k += tl.dot(slope.to(x_q.dtype), x_q)
    return by_k, by_v


@triton.jit
def _alike(documents, t, s, T):
    """Are the tokens of the same document?"""
    of_t = tl.load(documents + t, mask=t < T, other=-1)
    of_s = tl.load(documents + s, mask=s < T, other=-2)
    return of_t[:, None] == of_s[None, :]


@triton.jit
def _rows(x, t, stride, T, D: tl.constexpr, WIDTH: tl.constexpr):
    """A head's numbers of these tokens, 0 beyond T and D."""
    d = tl.arange(0, WIDTH)
    inside = (t < T)[:, None]
    if D < WIDTH:
        inside = inside & (d < D)[None, :]
    return tl.load(x + t[:, None] * stride + d[None, :], mask=inside, other=0.0)


@triton.jit
def _store(grads, values, row, head, heads, inside, D: tl.constexpr, WIDTH: tl.constexpr):
    d = tl.arange(0, WIDTH)
    targets = grads + (row[:, None] * heads + head) * D + d[None, :]
    tl.store(targets, values, mask=inside[:, None] & (d < D)[None, :])
