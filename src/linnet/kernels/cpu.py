"""Operations that a CPU does faster by other means than torch's usual ones, for eager training in float32.

Each is here because it gains several per cent of a whole step (docs/log.md). `attention_is_faster` and
`matmul_is_faster` say where it is taken.

Causal attention is done block by block. Shapes: B batch, T tokens, H heads, K key/value heads, G = H / K, D size.
torch's kernel for it makes every probability twice, once for the backward pass, and its matmuls are small. Here they
are kept (T²/2 a head), a block of queries meets only the keys it may see, and the queries of the G heads that share
keys are rows of one matmul.

Matmuls in float32 are done by oneDNN where that is quicker than the BLAS torch was built with: MKL takes its lesser
kernels on processors that are not Intel's, and with AVX-512 oneDNN is 7 to 10 % ahead there. Which one is used depends
on the machine alone, so a run computes the same bits every time.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LEAST_TOKENS = 64  # of more than one block of queries; below it torch's one attention beats a dozen small operations
LEAST_MULTIPLICATIONS = 1 << 22  # below it a call of oneDNN costs more than it saves
_BLOCK = 32  # queries; 16 to 64 are within 5 %
MOST_BYTES = 64 << 20  # bytes of probabilities kept for a layer


def attention_is_faster(q_BHTD: Tensor, k_BKSD: Tensor) -> bool:
    """Is this training on a CPU in float32, and of a length for which torch's kernel is slower?"""
    B, H, T, _ = q_BHTD.shape
    return (
        q_BHTD.device.type == "cpu"
        and q_BHTD.dtype == torch.float32
        and torch.is_grad_enabled()
        and q_BHTD.requires_grad
        and not torch.compiler.is_compiling()
        and k_BKSD.shape[2] == T
        and (T <= _BLOCK or T >= LEAST_TOKENS)
        and 2 * B * H * T * (T + _BLOCK) <= MOST_BYTES
    )


def causal_attention(q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
    """softmax(q kᵀ / √D) v, where token t sees tokens 0…t; it lies in memory as [B, T, H, D]."""
    T = q_BHTD.shape[2]
    out_BHTD: Tensor = (_AttentionInOneBlock if T <= _BLOCK else _AttentionByBlocks).apply(q_BHTD, k_BKTD, v_BKTD)
    return out_BHTD


@cache
def _unseen() -> Tensor:
    """[block, 1, block]: the keys that a query of the same block does not see."""
    return torch.ones(_BLOCK, _BLOCK, dtype=torch.bool).triu_(1)[:, None]


class _AttentionInOneBlock(torch.autograd.Function):
    """All tokens at once, in few operations: recorded (replay.py) they take half the time of torch's one call."""

    @staticmethod
    def forward(ctx: Any, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        (B, H, T, D), K = q_BHTD.shape, k_BKTD.shape[1]
        G = H // K
        q = q_BHTD.unflatten(1, (K, G)).transpose(2, 3).reshape(B * K, T * G, D)
        k, v = k_BKTD.reshape(B * K, T, D), v_BKTD.reshape(B * K, T, D)
        p = _scaled_matmul(q, k.transpose(1, 2), D)
        p.view(B * K, T, G, T).masked_fill_(_unseen()[:T, :, :T], -torch.inf)
        torch.softmax(p, -1, out=p)
        ctx.save_for_backward(q, k, v, p)
        ctx.shape = (B, K, G, T, D)
        out_BTKGD = torch.bmm(p, v).view(B, K, T, G, D).transpose(1, 2).contiguous()
        return out_BTKGD.view(B, T, H, D).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, p = ctx.saved_tensors
        B, K, G, T, D = ctx.shape
        grad = gradients[0].unflatten(1, (K, G)).transpose(2, 3).reshape(B * K, T * G, D)
        grad_p = torch.bmm(grad, v.transpose(1, 2))
        torch.ops.aten._softmax_backward_data.out(grad_p, p, -1, torch.float32, grad_input=grad_p)
        grad_q_BKGTD = _scaled_matmul(grad_p, k, D).view(B, K, T, G, D).transpose(2, 3)
        grad_k = _scaled_matmul(grad_p.transpose(1, 2), q, D)
        grad_v = torch.bmm(p.transpose(1, 2), grad)
        return grad_q_BKGTD.flatten(1, 2), grad_k.view(B, K, T, D), grad_v.view(B, K, T, D)


def _scaled_matmul(a: Tensor, b: Tensor, D: int) -> Tensor:
    """a b / √D."""
    into = a.new_empty(a.shape[0], a.shape[1], b.shape[2])
    return torch.baddbmm(into, a, b, beta=0, alpha=D**-0.5)


class _AttentionByBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        (B, H, T, D), K = q_BHTD.shape, k_BKTD.shape[1]
        G = H // K
        q = (q_BHTD.unflatten(1, (K, G)).transpose(2, 3) * D**-0.5).reshape(B * K, T * G, D)
        k, v = k_BKTD.reshape(B * K, T, D), v_BKTD.reshape(B * K, T, D)
        unseen = _unseen()
        out = torch.empty_like(q)
        blocks = []
        for start in range(0, T, _BLOCK):
            end = min(start + _BLOCK, T)
            size, rows = end - start, slice(start * G, end * G)
            p = torch.bmm(q[:, rows], k[:, :end].transpose(1, 2))
            p.view(B * K, size, G, end)[..., start:].masked_fill_(unseen[:size, :, :size], -torch.inf)
            torch.softmax(p, -1, out=p)
            out[:, rows] = torch.bmm(p, v[:, :end])
            blocks.append(p)
        ctx.save_for_backward(q, k, v, *blocks)
        ctx.shape = (B, K, G, T, D)
        out_BTKGD = out.view(B, K, T, G, D).transpose(1, 2).contiguous()
        return out_BTKGD.view(B, T, H, D).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, *blocks = ctx.saved_tensors
        B, K, G, T, D = ctx.shape
        grad = gradients[0].unflatten(1, (K, G)).transpose(2, 3).reshape(B * K, T * G, D)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for p, start in zip(blocks, range(0, T, _BLOCK), strict=True):
            end = min(start + _BLOCK, T)
            rows = slice(start * G, end * G)
            grad_p = torch.bmm(grad[:, rows], v[:, :end].transpose(1, 2))
            # In place: what it reads of a row, it has read before it writes there.
            torch.ops.aten._softmax_backward_data.out(grad_p, p, -1, torch.float32, grad_input=grad_p)
            grad_q[:, rows] = torch.bmm(grad_p, k[:, :end])
            # Not baddbmm_: on a part of a tensor it does one small matmul after another.
            grad_k[:, :end] += torch.bmm(grad_p.transpose(1, 2), q[:, rows])
            grad_v[:, :end] += torch.bmm(p.transpose(1, 2), grad[:, rows])
        grad_q_BKGTD = (grad_q * D**-0.5).view(B, K, T, G, D).transpose(2, 3)
        return grad_q_BKGTD.flatten(1, 2), grad_k.view(B, K, T, D), grad_v.view(B, K, T, D)


@cache
def mkl_is_slow() -> bool:
    """Does torch multiply by MKL, with AVX-512, on a processor that is not Intel's?"""
    if not torch.backends.mkl.is_available() or "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def matmul_is_faster(x_NK: Tensor, weight_MK: Tensor) -> bool:
    """Is oneDNN faster for x Wᵀ?"""
    return (
        x_NK.device.type == "cpu"
        and x_NK.dtype == weight_MK.dtype == torch.float32
        and x_NK.numel() * weight_MK.shape[0] >= LEAST_MULTIPLICATIONS
        and not torch.compiler.is_compiling()
        and mkl_is_slow()
        and torch.backends.mkldnn.is_available()
    )


def onednn_linear(x_NK: Tensor, weight_MK: Tensor) -> Tensor:
    """x Wᵀ, by oneDNN; W may be a transposed view."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x_NK, weight_MK, None, "none", [], "")
    return y


class Matmul(torch.autograd.Function):
    """x Wᵀ with its gradients. That of W stays with torch: oneDNN would have to transpose x first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_MK: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight_MK)
        return onednn_linear(x, weight_MK)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight_MK = ctx.saved_tensors
        grad = gradients[0]
        by_x = onednn_linear(grad, weight_MK.T) if ctx.needs_input_grad[0] else None
        by_weight = grad.flatten(0, -2).T @ x.flatten(0, -2) if ctx.needs_input_grad[1] else None
        return by_x, by_weight
