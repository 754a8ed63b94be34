"""Sums over all tensors and heads of a model on a CPU, in as few passes as they take.

A look reads all weights and gradients. They are read some rows at a time, which stay in a core's cache while all that
is asked of them is worked out row by row, in memory that is used again for the next; rows belong to tensors and to
heads, so figures of these are sums of a few thousand numbers. What is not finite is counted only where a sum says that
there is something. Of torch's operations those are taken that a CPU does several times as quickly as others that mean
the same, as a comparison into floats for a count (docs/log.md has the times).

Shapes: N rows of all parameters, and behind them the columns of those whose heads are columns; R figures, a tensor's
and then its heads'. The two operations for gradients and updates are torch's, so that a step that is repeated from a
recording has each whole, with its questions to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linnet.train.inspection.pieces import TensorPiece

_AT_ONCE = 1 << 16  # numbers: with as many of another tensor and of a result they fit a core's cache

Numbers: TypeAlias = NDArray[np.float64]


class RowTable:
    """Where the rows of some tensors are among those of all their parameters, and which rows are whose."""

    def __init__(self, pieces: Sequence[TensorPiece], parameters: Mapping[str, Tensor]) -> None:
        self._parameters = list(dict.fromkeys(piece.parameter for piece in pieces))
        starts: dict[str, int] = {}
        count = 0
        for name in self._parameters:
            starts[name], count = count, count + len(parameters[name])
        columns = {piece.parameter: piece for piece in pieces if piece.by_columns}
        self.by_columns = [name in columns for name in self._parameters]
        column_starts: dict[str, int] = {}
        for name in (name for name in self._parameters if name in columns):
            assert columns[name].shape == tuple(parameters[name].shape), "heads are columns of a whole parameter"
            column_starts[name], count = count, count + columns[name].shape[1]
        ranges: list[tuple[int, int]] = []
        whole: list[int] = []
        sizes: list[int] = []
        for piece in pieces:
            start = starts[piece.parameter] + (piece.rows.start or 0)
            whole.append(len(ranges))
            ranges.append((start, start + piece.shape[0]))
            sizes.append(torch.Size(piece.shape).numel())
            if piece.heads:
                each = (piece.shape[1] if piece.by_columns else piece.shape[0]) // piece.heads
                begin = column_starts[piece.parameter] if piece.by_columns else start
                ranges += [(begin + head * each, begin + (head + 1) * each) for head in range(piece.heads)]
                sizes += [sizes[-1] // piece.heads] * piece.heads
        self.ranges_R2 = torch.tensor(ranges, dtype=torch.int64).reshape(-1, 2)
        self.sizes_R = torch.tensor(sizes, dtype=torch.float64)
        self.whole = dict(zip((piece.tensor for piece in pieces), whole, strict=True))  # where a tensor's own row is
        self.starts = starts

    def tensors(self, values: Mapping[str, Tensor]) -> list[Tensor]:
        """The parameters, as rows."""
        return [values[name].detach().reshape(len(values[name]), -1) for name in self._parameters]


class _Rows:
    """Figures of rows, and of columns, on their way."""

    def __init__(self, tensors: Sequence[Tensor], by_columns: Sequence[bool], figures: int) -> None:
        self._tensors, self._by_columns = tensors, by_columns
        rows = sum(map(len, tensors))
        of_columns = sum(x.shape[1] for x, asked in zip(tensors, by_columns, strict=True) if asked)
        self.of_rows = torch.empty(figures, rows)
        self.of_columns = torch.zeros(figures, of_columns)
        self._scratch = torch.empty(max((_AT_ONCE, *(x.shape[1] for x in tensors))))

    def stretches(self, *others: Sequence[Tensor]) -> Iterator[tuple[list[Tensor], Tensor, Tensor, Tensor | None]]:
        """Some rows of each tensor and of others of its shape; memory for as many; where their figures belong."""
        row = column = 0
        for x, asked, *alike in zip(self._tensors, self._by_columns, *others, strict=True):
            length, width = x.shape
            at_once = max(1, _AT_ONCE // max(1, width))
            columns = self.of_columns[:, column : column + width] if asked else None
            for start in range(0, length, at_once):
                stop = min(length, start + at_once)
                part = [tensor if stop - start == length else tensor[start:stop] for tensor in (x, *alike)]
                scratch = self._scratch[: (stop - start) * width].view(stop - start, width)
                yield part, scratch, self.of_rows[:, row + start : row + stop], columns
            row, column = row + length, column + (width if asked else 0)


def _norms(x: Tensor, of_rows: Tensor, of_columns: Tensor | None, scratch: Tensor) -> None:
    torch.linalg.vector_norm(x, dim=1, out=of_rows)
    if of_columns is not None:
        of_columns += torch.mul(x, x, out=scratch).sum(0)


def _sums(x: Tensor, of_rows: Tensor, of_columns: Tensor | None) -> None:
    torch.sum(x, 1, out=of_rows)
    if of_columns is not None:
        of_columns += x.sum(0)


def _by_range(of_rows_N: Tensor, of_columns_C: Tensor, ranges_R2: Tensor, *, norms: bool = False) -> Numbers:
    """[R]: what the rows or columns of each range add up to; of norms of rows their squares."""
    rows = of_rows_N.numpy().astype(np.float64)
    numbers = np.concatenate((np.square(rows) if norms else rows, of_columns_C.numpy(), np.zeros(1)))
    totals: Numbers = np.add.reduceat(numbers, ranges_R2.numpy().ravel())[::2]
    return totals


@torch.library.custom_op("linnet::gradient_figures", mutates_args=(), device_types="cpu")
def gradient_figures(gradients: list[Tensor], by_columns: list[bool], ranges_R2: Tensor, sizes_R: Tensor) -> Tensor:
    """[R, 3]: norm, mean size, and how many numbers are not finite."""
    rows = _Rows(gradients, by_columns, 3)
    for (gradient,), scratch, of_rows, of_columns in rows.stretches():
        size = torch.abs(gradient, out=scratch)
        columns = (None, None) if of_columns is None else (of_columns[0], of_columns[1])
        _sums(size, of_rows[1], columns[1])
        _norms(size, of_rows[0], columns[0], scratch)
    figures = np.zeros((len(ranges_R2), 3))
    with np.errstate(over="ignore", invalid="ignore"):
        figures[:, 0] = np.sqrt(_by_range(rows.of_rows[0], rows.of_columns[0], ranges_R2, norms=True))
        figures[:, 1] = _by_range(rows.of_rows[1], rows.of_columns[1], ranges_R2) / sizes_R.numpy()
    if not np.isfinite(figures[:, :2]).all():
        for (gradient,), _, of_rows, of_columns in rows.stretches():
            odd = torch.isfinite(gradient).logical_not().float()
            _sums(odd, of_rows[2], None if of_columns is None else of_columns[2])
        figures[:, 2] = _by_range(rows.of_rows[2], rows.of_columns[2], ranges_R2)
    return torch.from_numpy(figures).float()


@torch.library.custom_op("linnet::update_figures", mutates_args=(), device_types="cpu")
def update_figures(
    weights: list[Tensor], before: list[Tensor], by_columns: list[bool], ranges_R2: Tensor, sizes_R: Tensor
) -> Tensor:
    """[R, 2]: the length of each update by that of the weights, and the share of them that was not zero."""
    rows = _Rows(weights, by_columns, 3)
    for (now, then), scratch, of_rows, of_columns in rows.stretches(before):
        columns = (None, None) if of_columns is None else (of_columns[0], of_columns[1])
        _norms(then, of_rows[0], columns[0], scratch)
        torch.sum(torch.ne(then, 0.0, out=scratch), 1, out=of_rows[2])
        _norms(torch.sub(now, then, out=scratch), of_rows[1], columns[1], scratch)
    figures = np.empty((len(ranges_R2), 2))
    with np.errstate(all="ignore"):
        norms, moved = (_by_range(rows.of_rows[n], rows.of_columns[n], ranges_R2, norms=True) for n in (0, 1))
        figures[:, 0] = np.sqrt(moved) / np.sqrt(norms)
        figures[:, 1] = _by_range(rows.of_rows[2], rows.of_columns[2], ranges_R2) / sizes_R.numpy()
    return torch.from_numpy(figures).float()


class Distances:
    """Distance and cosine of tensors, and of each of their rows, from what they were at first."""

    def __init__(self, table: RowTable, first: Mapping[str, Tensor]) -> None:
        self._table, self._first = table, table.tensors(first)
        rows = _Rows(self._first, table.by_columns, 1)
        for (tensor,), scratch, of_rows, of_columns in rows.stretches():
            _norms(tensor, of_rows[0], None if of_columns is None else of_columns[0], scratch)
        self._norm_N = rows.of_rows[0]
        self._norm_R = np.sqrt(_by_range(rows.of_rows[0], rows.of_columns[0], table.ranges_R2, norms=True))

    def figures(
        self, now: Mapping[str, Tensor], cosine: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """[R, 2] of tensors and [N, 2] of rows: cosine, by the products and both norms, and distance."""
        rows, ranges_R2 = _Rows(self._first, self._table.by_columns, 3), self._table.ranges_R2
        for (first, own), scratch, of_rows, of_columns in rows.stretches(self._table.tensors(now)):
            columns = (None, None, None) if of_columns is None else of_columns.unbind()
            _norms(own, of_rows[1], columns[1], scratch)
            _sums(torch.mul(own, first, out=scratch), of_rows[0], columns[0])
            _norms(torch.sub(own, first, out=scratch), of_rows[2], columns[2], scratch)
        dot_N, norm_N, distance_N = rows.of_rows
        of_rows_N2 = torch.stack((cosine(dot_N, norm_N, self._norm_N), distance_N), 1)
        with np.errstate(all="ignore"):
            dot_R = _by_range(dot_N, rows.of_columns[0], ranges_R2)
            norm_R, distance_R = (
                np.sqrt(_by_range(rows.of_rows[n], rows.of_columns[n], ranges_R2, norms=True)) for n in (1, 2)
            )
        dot, norm, first_norm, distance = map(torch.from_numpy, (dot_R, norm_R, self._norm_R, distance_R))
        return torch.stack((cosine(dot, norm, first_norm), distance), 1).float(), of_rows_N2
