"""Sums over many tensors and their heads on a CPU, in as few passes as they take.

A look reads all weights and gradients, tensor by tensor: each stays in a core's cache while all that is asked of it is
added up, in memory that is used again for the next one. Of torch's own operations those are taken that a CPU does
several times as quickly as others that mean the same: a dot product for a sum of squares, a comparison into floats for
a count. What is not finite is counted only where a sum says that there is something (docs/log.md has the times).

Two of them are operations of their own, so that a step that is repeated from a recording has each whole, with the
questions to the host within. Shapes: H heads, M numbers of one, R rows of figures: a tensor's, then its heads'.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

_AT_ONCE = 1 << 16  # numbers that are worked on together: with two more of such stretches they fit a core's cache
_IN_A_ROW = 1 << 14  # squares that are added up by few sums side by side; a dot product has many

Sums = list[float]  # of the heads of a tensor, or of all of it


def signed_heads(heads: int, *, by_columns: bool) -> int:
    """How operations are told of heads: 0 none, below 0 they are columns."""
    return -heads if by_columns else heads


class Scratch:
    """Memory for numbers on their way, for the stretches of some tensors."""

    def __init__(self, tensors: Iterable[Tensor], heads: Iterable[int]) -> None:
        whole = [tensor.numel() for tensor, signed in zip(tensors, heads, strict=True) if signed]
        self._numbers = torch.empty(max((_AT_ONCE, *whole)))

    def like(self, tensor: Tensor) -> Tensor:
        """Room for a result of the shape of a tensor; until the next call."""
        return self._numbers[: tensor.numel()].view(tensor.shape)


def stretches(heads: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of one shape a stretch at a time, or as they are where they have heads, which are small."""
    if heads or tensors[0].numel() <= _AT_ONCE:
        yield tensors
    else:
        yield from zip(*(torch.split(tensor.reshape(-1), _AT_ONCE) for tensor in tensors), strict=True)


def squares(x: Tensor, heads: int, scratch: Scratch) -> Sums:
    """Sums of squares of a stretch."""
    if heads < 0:
        return sums(torch.mul(x, x, out=scratch.like(x)), heads)
    if heads == 0:
        flat = x.reshape(-1)
        return [float(torch.dot(flat, flat))]
    rows = x.reshape(heads, -1)
    if rows.shape[1] <= _IN_A_ROW:
        of_heads: Sums = torch.linalg.vector_norm(rows, dim=1).square().tolist()
        return of_heads
    return [sum([float(torch.dot(part, part)) for part in torch.split(row, _AT_ONCE)]) for row in rows]


def products(x: Tensor, y: Tensor, heads: int, scratch: Scratch) -> Sums:
    """Sums of the products of two stretches."""
    if heads:
        return sums(torch.mul(x, y, out=scratch.like(x)), heads)
    return [float(torch.dot(x.reshape(-1), y.reshape(-1)))]


def sums(x: Tensor, heads: int) -> Sums:
    """Sums of a stretch that lies in one piece."""
    if heads < 0:
        x = x.sum(0).view(-heads, -1)
    elif heads == 0:
        return [float(x.sum())]
    of_heads: Sums = x.view(abs(heads), -1).sum(1).tolist()
    return of_heads


def added(total: Sums, more: Sums) -> Sums:
    """Sums of two stretches together; of the first one its own."""
    return [one + other for one, other in zip(total, more, strict=True)] if total else more


def with_total(of_heads: Sums, heads: int) -> Sums:
    """Of a tensor with heads the sum over all of it stands before theirs."""
    return [sum(of_heads), *of_heads] if heads else of_heads


def sizes(shape: Sequence[int], heads: int) -> Sums:
    """How many numbers each sum is over."""
    count = math.prod(shape)
    return [count, *([count / abs(heads)] * abs(heads))] if heads else [count]


@torch.library.custom_op("linnet::gradient_figures", mutates_args=(), device_types="cpu")
def gradient_figures(gradients: list[Tensor], heads: list[int]) -> Tensor:
    """[R, 3]: norm, mean size, and how many numbers are not finite."""
    scratch = Scratch(gradients, heads)
    columns: tuple[Sums, Sums, Sums] = ([], [], [])
    for gradient, signed in zip(gradients, heads, strict=True):
        totals: Sums = []
        of_squares: Sums = []
        for (part,) in stretches(signed, gradient):
            size = torch.abs(part, out=scratch.like(part))
            totals = added(totals, sums(size, signed))
            of_squares = added(of_squares, squares(size, signed, scratch))
        nonfinite = [0.0] * len(of_squares)
        if not math.isfinite(sum(of_squares)):
            odd = torch.isfinite(gradient).logical_not().float()
            nonfinite = sums(odd.contiguous(), signed)
        counts = sizes(gradient.shape, signed)
        columns[0].extend(map(math.sqrt, with_total(of_squares, signed)))
        columns[1].extend(total / count for total, count in zip(with_total(totals, signed), counts, strict=True))
        columns[2].extend(with_total(nonfinite, signed))
    return torch.tensor(columns).T.contiguous()


@torch.library.custom_op("linnet::update_figures", mutates_args=(), device_types="cpu")
def update_figures(
    weights: list[Tensor], before: list[Tensor], heads: list[int], matrices: list[bool]
) -> tuple[Tensor, Tensor]:
    """[R]: the length of each update by that of the weights; and of each matrix the share that is not zero."""
    scratch = Scratch(weights, heads)
    moved, norms, in_use = Sums(), Sums(), Sums()
    for now, then, signed, is_matrix in zip(weights, before, heads, matrices, strict=True):
        of_updates: Sums = []
        of_weights: Sums = []
        used = 0.0
        for now_part, then_part in stretches(signed, now, then):
            of_weights = added(of_weights, squares(then_part, signed, scratch))
            if is_matrix:
                used += float(torch.ne(then_part, 0.0, out=scratch.like(then_part)).sum())
            update = torch.sub(now_part, then_part, out=scratch.like(now_part))
            of_updates = added(of_updates, squares(update, signed, scratch))
        norms += with_total(of_weights, signed)
        moved += with_total(of_updates, signed)
        in_use += [used / then.numel()] if is_matrix else []
    return (torch.tensor(moved).sqrt() / torch.tensor(norms).sqrt()), torch.tensor(in_use)


def distance_sums(now: Tensor, first: Tensor, heads: int, scratch: Scratch) -> tuple[Sums, Sums, Sums]:
    """Sums of the products of two tensors, of the squares of the first, and of those of their difference."""
    dots, own, moved = Sums(), Sums(), Sums()
    for now_part, first_part in stretches(heads, now, first):
        dots = added(dots, products(now_part, first_part, heads, scratch))
        own = added(own, squares(now_part, heads, scratch))
        moved = added(moved, squares(torch.sub(now_part, first_part, out=scratch.like(now_part)), heads, scratch))
    return with_total(dots, heads), with_total(own, heads), with_total(moved, heads)


def square_sums(x: Tensor, heads: int, scratch: Scratch) -> Sums:
    """Sums of the squares of a tensor."""
    own = Sums()
    for (part,) in stretches(heads, x):
        own = added(own, squares(part, heads, scratch))
    return with_total(own, heads)
