"""`orthogonal`: a matrix with its singular values brought near 1, which is what Muon makes of momentum.

It is f(G) X with G = X Xᵀ on the shorter side and f(λ) ≈ 1/√λ. On a CPU f is a rational function: two inverses of
the size of G, and X is read twice. On a GPU it is a chain of polynomials, products alone. Both are the best of
their kind for singular values from `LEAST` on, against the matrix's Schatten norm of order 4, which no singular value
is above; smaller ones stay in proportion. docs/train.md has the reasons, docs/log.md the figures.

Shapes: N matrices, R rows, C columns, S the shorter of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

LEAST = 0.003  # singular values from here to 1 come out near 1
_TINY = 1e-14  # squares below it are rounding: such matrices stay as small as they are

# Zolotarev's function of type (5, 4): x · (_CONSTANT + Σ weight / (x² + shift)) is within 1 ± 0.13 on [LEAST, 1].
_CONSTANT = 0.9123148
_POLES = ((3.563632e-5, 0.01219064), (0.01272640, 0.2072178))  # shift, weight

# The best quintics, each for what the one before it leaves ("Polar Express", arXiv 2505.16932): 1 ± 0.20 in the end.
_QUINTICS = (
    (8.383674, -24.765913, 18.357088),
    (4.043422, -3.011407, 0.569513),
    (3.505571, -2.626655, 0.525720),
    (2.490116, -1.834275, 0.436835),
)


def orthogonal(matrices_NRC: Tensor) -> Tensor:
    """[N, R, C]: each matrix with its singular values brought near 1; on a GPU in half precision."""
    if matrices_NRC.device.type != "cpu":
        return by_polynomials(matrices_NRC)
    root_NSS, factors = inverse_roots(matrices_NRC.unbind())
    products = matrices_NRC @ root_NSS if _is_tall(matrices_NRC) else root_NSS @ matrices_NRC
    return products.mul_(torch.tensor(factors)[:, None, None])


def inverse_roots(matrices: Sequence[Tensor]) -> tuple[Tensor, list[float]]:
    """[N, S, S] and N factors, which together are (X Xᵀ)^-½, nearly, of matrices with one shorter side. On a CPU.

    With one thread, what becomes of a matrix does not depend on the others.
    """
    grams = [matrix.mT @ matrix if _is_tall(matrix) else matrix @ matrix.mT for matrix in matrices]
    sizes = [max(float(torch.linalg.vector_norm(gram)), _TINY) for gram in grams]
    (near, near_weight), (far, far_weight) = _POLES
    shifted_MSS = torch.stack((*grams, *grams))
    shifts = [shift * size for shift in (near, far) for size in sizes]
    shifted_MSS.diagonal(dim1=1, dim2=2).add_(torch.tensor(shifts)[:, None])
    near_NSS, far_NSS = _inverses(shifted_MSS).chunk(2)
    root_NSS = torch.add(far_NSS, near_NSS, alpha=near_weight / far_weight)
    root_NSS.diagonal(dim1=1, dim2=2).add_(torch.tensor([_CONSTANT / (far_weight * size) for size in sizes])[:, None])
    return root_NSS, [far_weight * math.sqrt(size) for size in sizes]


def by_polynomials(matrices_NRC: Tensor) -> Tensor:
    """`orthogonal` by products alone, on any device."""
    tall = _is_tall(matrices_NRC)
    x = matrices_NRC.bfloat16() if matrices_NRC.is_cuda else matrices_NRC
    gram, x = _normalised(_gram(x.mT if tall else x), x)
    for number, (a, b, c) in enumerate(_QUINTICS):
        if number:
            gram = x.mT @ x if tall else x @ x.mT
        if x.is_cuda and has_kernels():  # with `baddbmm` every sum would be copied first
            factor: Tensor = _kernels().quintic(gram, gram @ gram, a, b, c)
            x = x @ factor if tall else factor @ x
            continue
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, x, factor, beta=a) if tall else torch.baddbmm(x, factor, x, beta=a)
    return x


def _inverses(matrices_NSS: Tensor) -> Tensor:
    """Of symmetric positive definite matrices.

    By LAPACK: inverting by halves takes half of its time, but where a gradient has a low rank the second half is
    rounding, and the inverse millions of times too large.
    """
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(matrices_NSS).L)


def _gram(x_NSL: Tensor) -> Tensor:
    """X Xᵀ in float32: rounded to 16 bits it would lose the small singular values."""
    if x_NSL.is_cuda:
        return torch.bmm(x_NSL, x_NSL.mT, out_dtype=torch.float32)
    return x_NSL @ x_NSL.mT


def _normalised(gram_NSS: Tensor, x_NRC: Tensor) -> tuple[Tensor, Tensor]:
    """Both, scaled so that the Gram matrix's norm is 1; on a GPU in half precision: it has a digit more than bf16."""
    if gram_NSS.is_cuda and has_kernels():
        gram_NSS, scale_N = _kernels().normalised(gram_NSS, _TINY)
        return gram_NSS, _kernels().scaled(x_NRC, scale_N)
    norm_N11 = torch.linalg.vector_norm(gram_NSS, dim=(1, 2), keepdim=True).clamp(min=_TINY)
    gram_NSS, x_NRC = gram_NSS / norm_N11, x_NRC * norm_N11.rsqrt()
    return (gram_NSS.half(), x_NRC.half()) if x_NRC.is_cuda else (gram_NSS, x_NRC)


def _is_tall(matrices: Tensor) -> bool:
    return matrices.shape[-2] > matrices.shape[-1]


@cache
def has_kernels() -> bool:
    """Is Triton there? It has no wheel for some systems."""
    return find_spec("triton") is not None


def _kernels() -> ModuleType:
    from linnet.kernels.cuda import muon

    return muon
