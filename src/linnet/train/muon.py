"""`Muon`: momentum made orthogonal (`orthogonal.py`), for the matrices of the blocks.

Queries, keys and values lie in one parameter, and so do gate and up: each of them is a matrix of its own here, a
part of the parameter's rows.

Shapes: N matrices, R rows, C columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from linnet.train.eager_optimizer import EagerOptimizer
from linnet.train.orthogonal import has_kernels, inverse_roots, orthogonal
from linnet.train.process import use_threads
from linnet.train.settings import MuonNorm
from linnet.train.sharded_weights import WholeMatrices
from linnet.train.streams import run_concurrently

_PORTION = 4  # matrices whose small products a CPU's thread does together
_SQUARE = 384  # rows of the square matrix whose updates are of one size by either norm
_HALF, _FLOAT = 2, 4  # bytes of a number
_Origin: TypeAlias = tuple[torch.Size, tuple[int, ...], int]  # a parameter's shape, the rows in it, which of them
_SMALL = 1 << 25  # numbers up to which products of one shape leave a GPU room for those of another


class Muon(EagerOptimizer):
    """Muon for hidden matrices.

    torch's own takes matrices one by one, in bf16 on a CPU too, with a learning rate that only the host knows, so that
    no graph can hold it. On a GPU those of one shape are one batch here. On a CPU each thread takes a few at a time, by
    itself: what becomes of a matrix depends neither on the others nor on the number of threads.

    - `rows`: of parameters that hold several matrices one below the other, the rows of each.
    - `norm`: how large an update is (`_size`).
    - `momentum`: a tensor that changes in place, as the rate does.
    - `grad_scale`: what gradients are divided by, as torch's fused AdamW has it.
    """

    moment = "momentum_buffer"
    grad_scale: Tensor | None = None

    def __init__(
        self,
        matrices: Iterable[Any],
        lr: Tensor,
        *,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        norm: MuonNorm = "rms",
        rows: Mapping[nn.Parameter, tuple[int, ...]] | None = None,
        whole: WholeMatrices | None = None,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})
        # On a CPU with all of its digits, which an operation reads there.
        dtype = torch.float64 if lr.device.type == "cpu" else torch.float32
        self.momentum = torch.tensor(momentum, dtype=dtype, device=lr.device)
        self._norm = norm
        self._rows = dict(rows or {})
        self._whole = whole  # where this rank has some rows of each matrix only
        self._batches: dict[nn.Parameter, _Batch] = {}  # by the first of their matrices
        self._places: dict[torch.Size, tuple[list[int], Tensor]] = {}

    @staticmethod
    def trains(name: str, parameter: nn.Parameter) -> bool:
        """Embeddings and the head are no matrices in Muon's sense: their rows are looked up one by one."""
        return parameter.ndim >= 2 and name.startswith("blocks.")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
            if not matrices:
                continue
            device = matrices[0].device
            if self._whole is None and device.type == "cpu":
                self._move_on_cpu(matrices, group)
            elif self._whole is None and device.type == "cuda" and self._fits_kernels(matrices):
                self._move_by_kernels(matrices, group)
            else:
                for alike in self._by_shape(matrices):
                    self._move(alike, group)
        return None

    def _fits_kernels(self, matrices: list[nn.Parameter]) -> bool:
        """Is Triton there, and does every matrix begin where one may that is read sixteen bytes at a time?"""
        aligned = all(height * matrix.shape[1] % 4 == 0 for matrix in matrices for height in self._rows.get(matrix, ()))
        return aligned and matrices[0].dtype == torch.float32 and has_kernels()

    def _by_shape(self, matrices: list[nn.Parameter]) -> list[list[nn.Parameter]]:
        """Those of one shape, and the same rows of each matrix within, together."""
        alike: dict[object, list[nn.Parameter]] = {}
        for matrix in matrices:
            shape = matrix.shape if self._whole is None else self._whole.shapes[matrix]
            alike.setdefault((shape, self._rows_of(matrix, shape)), []).append(matrix)
        return list(alike.values())

    def _rows_of(self, matrix: nn.Parameter, shape: torch.Size) -> tuple[int, ...]:
        return self._rows.get(matrix) or (shape[0],)

    def _move_on_cpu(self, matrices: list[nn.Parameter], group: dict[str, Any]) -> None:
        rows = [self._rows_of(matrix, matrix.shape) for matrix in matrices]
        sizes = [
            _size((height, matrix.shape[1]), self._norm)
            for matrix, of in zip(matrices, rows, strict=True)
            for height in of
        ]
        buffers = [self._buffer(matrix) for matrix in matrices]
        torch.ops.linnet.muon(
            matrices,
            buffers,
            [matrix.grad for matrix in matrices],
            [height for of in rows for height in of],
            sizes,
            group["lr"],
            self.grad_scale,
            self.momentum,
            group["weight_decay"],
        )
        torch.autograd.graph.increment_version([*matrices, *buffers])  # they have changed: whoever kept a copy asks

    def _move_by_kernels(self, matrices: list[nn.Parameter], group: dict[str, Any]) -> None:
        """On a GPU: momentum by the parameters' shapes, all else by the shapes of the matrices within."""
        from linnet.kernels.cuda import muon

        aheads: dict[torch.Size, list[Tensor]] = {}
        weights: dict[torch.Size, list[Tensor]] = {}
        for alike in self._by_shape(matrices):
            batch = self._batch(alike)
            ahead_NRC = muon.momentum_ahead(  # no name for the gradients: the copy of the last ones would outlive it
                _stacked([matrix.grad for matrix in alike if matrix.grad is not None]),
                batch.buffers_NRC,
                self.grad_scale,
                self.momentum,
            )
            rows = self._rows_of(alike[0], alike[0].shape)
            for part_NrC, *parts in zip(
                torch.split(ahead_NRC, list(rows), 1),
                *(torch.split(matrix, list(rows)) for matrix in alike),
                strict=True,
            ):
                aheads.setdefault(part_NrC.shape[1:], []).append(part_NrC)
                weights.setdefault(part_NrC.shape[1:], []).extend(parts)

        def move(shape: torch.Size) -> None:
            parts = aheads[shape]
            update_NRC = orthogonal(parts[0].contiguous() if len(parts) == 1 else torch.cat(parts))
            muon.move(
                self._addresses(shape, weights[shape]),
                update_NRC,
                group["lr"],
                group["weight_decay"],
                _size(shape, self._norm),
            )

        works = {str(tuple(shape)): partial(move, shape) for shape in aheads}
        if sum(matrix.numel() for matrix in matrices) <= _SMALL:
            run_concurrently(works, matrices[0].device)
            return
        for work in works.values():
            work()

    def _batch(self, matrices: list[nn.Parameter]) -> _Batch:
        """Parameters of one shape; their momentum lies in one tensor, of which their states are parts."""
        batch = self._batches.get(matrices[0])
        buffers = [self._buffer(matrix) for matrix in matrices]
        if batch is None or not batch.is_of(buffers):
            batch = self._batches[matrices[0]] = _Batch(buffers)
            for matrix, buffer in zip(matrices, batch.buffers_NRC, strict=True):
                self.state[matrix][self.moment] = buffer
        return batch

    def _move(self, matrices: list[nn.Parameter], group: dict[str, Any]) -> None:
        lr = group["lr"]
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        if self.grad_scale is not None:
            torch._foreach_div_(gradients, self.grad_scale)
        buffers = [self._buffer(matrix) for matrix in matrices]
        kept = self.momentum.to(buffers[0].dtype).to(buffers[0].device)
        ahead = []
        for buffer, gradient in zip(buffers, gradients, strict=True):
            buffer.lerp_(gradient, 1 - kept)
            ahead.append(torch.lerp(gradient, buffer, kept))
        shape = matrices[0].shape if self._whole is None else self._whole.shapes[matrices[0]]
        whole_NRC = torch.stack(ahead) if self._whole is None else self._whole.gathered(ahead, shape)
        parts = torch.split(whole_NRC, list(self._rows_of(matrices[0], shape)), 1)
        updates = [orthogonal(part.contiguous()).float() * (-_size(part.shape[1:], self._norm) * lr) for part in parts]
        update_NRC = torch.cat(updates, 1)
        if self._whole is not None:
            update_NRC = self._whole.rows(update_NRC)
        tensors: list[Tensor] = list(matrices)
        torch._foreach_mul_(tensors, 1 - lr * group["weight_decay"])
        torch._foreach_add_(tensors, update_NRC.unbind())

    def _addresses(self, shape: torch.Size, weights: list[Tensor]) -> Tensor:
        """Where weights of one shape are, on the device: made before a capture, which may copy nothing from here."""
        places = [weight.data_ptr() for weight in weights]
        known = self._places.get(shape)
        if known is None or known[0] != places:
            known = self._places[shape] = (places, torch.tensor(places, device=weights[0].device))
        return known[1]

    def _buffer(self, matrix: nn.Parameter) -> Tensor:
        state = self.state[matrix]
        if self.moment not in state:
            state[self.moment] = torch.zeros_like(matrix)
        buffer: Tensor = state[self.moment]
        return buffer


def passing_bytes(parameters: Iterable[tuple[torch.Size, tuple[int, ...]]]) -> int:
    """Bytes that a step by kernels holds for a while, of parameters by their shapes and the rows of each matrix within.

    All momentum looks ahead before the first batch of matrices is made orthogonal. Of a batch there are then a copy,
    unless it is one parameter's, X before a round and after it, and two to four of the size of the Gram matrix.
    """
    numbers = 0
    stacked: Counter[torch.Size] = Counter()  # gradients, side by side
    batches: dict[tuple[int, int], Counter[_Origin]] = {}  # how many matrices of a shape come from where
    for shape, rows in parameters:
        numbers += shape.numel()
        stacked[shape] += _FLOAT * shape.numel()
        for place, height in enumerate(rows):
            batches.setdefault((height, shape[1]), Counter())[shape, rows, place] += 1
    orthogonal_batches = []
    for (height, width), origins in batches.items():
        x, gram = _HALF * height * width, _HALF * min(height, width) ** 2
        is_copy = len(origins) > 1 or any(len(rows) > 1 for _, rows, _ in origins)
        orthogonal_batches.append(origins.total() * (is_copy * x + max(2 * x + 2 * gram, x + 4 * gram)))
    at_once = sum if numbers <= _SMALL else max
    return _HALF * numbers + max(at_once(orthogonal_batches), *stacked.values()) if numbers else 0


class _Batch:
    """The momentum of parameters of one shape on a GPU, in one tensor."""

    def __init__(self, buffers: Sequence[Tensor]) -> None:
        self.buffers_NRC = torch.stack(list(buffers))

    def is_of(self, buffers: Sequence[Tensor]) -> bool:
        """Are these its parts? Those of a state that was loaded before the first step are not."""
        return [buffer.data_ptr() for buffer in self.buffers_NRC] == [buffer.data_ptr() for buffer in buffers]


def _stacked(tensors: list[Tensor]) -> Tensor:
    """Tensors of one shape as one; where they lie next to each other nothing is copied."""
    first = tensors[0]
    memory, size = first.untyped_storage().data_ptr(), first.nbytes
    for number, tensor in enumerate(tensors):
        is_next = tensor.data_ptr() == first.data_ptr() + number * size and tensor.is_contiguous()
        if not is_next or tensor.untyped_storage().data_ptr() != memory:
            return torch.stack(tensors)
    return first.as_strided((len(tensors), *first.shape), (first.numel(), *first.stride()))


def _size(shape: Sequence[int], norm: MuonNorm) -> float:
    """Times an update whose singular values are 1.

    - `rms`: its numbers are as large as AdamW's, on average (0.2), whatever the shape.
    - `spectral`: outputs move alike for inputs of one size, whatever the shape; as by `rms` for 384 × 384.
    """
    rows, columns = shape
    if norm == "rms":
        return 0.2 * math.sqrt(max(rows, columns))
    return 0.2 * math.sqrt(_SQUARE * rows / columns)


# One operation, so that a step that is repeated from a recording has it whole, threads and numbers for the host within.
# Not by `torch.library.custom_op`, whose first call loads the compiler (eager_optimizer.py).
_library = torch.library.Library("linnet", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "muon(Tensor(a!)[] weights, Tensor(b!)[] buffers, Tensor[] gradients, int[] rows, float[] sizes, Tensor lr,"
    " Tensor? grad_scale, Tensor momentum, float weight_decay) -> ()"
)


def _move_on_cpu(
    weights: list[Tensor],
    buffers: list[Tensor],
    gradients: list[Tensor],
    rows: list[int],
    sizes: list[float],
    lr: Tensor,
    grad_scale: Tensor | None,
    momentum: Tensor,
    weight_decay: float,
) -> None:
    """`rows`, `sizes`: of every matrix, of which a parameter has one or more."""
    rate, shrink, kept = float(lr), 1.0 if grad_scale is None else 1 / float(grad_scale), float(momentum)

    def move(together: list[_Matrix]) -> None:
        aheads = []
        for matrix in together:
            matrix.buffer.mul_(kept).add_(matrix.gradient, alpha=(1 - kept) * shrink)
            # Nesterov's: the momentum of the step to come, up to a factor, which makes no difference.
            aheads.append(torch.add(matrix.gradient, matrix.buffer, alpha=kept / ((1 - kept) * shrink)))
        for matrix, ahead, root_SS, factor in zip(together, aheads, *inverse_roots(aheads), strict=True):
            weight = matrix.weight
            factors = (ahead, root_SS) if weight.shape[0] > weight.shape[1] else (root_SS, ahead)
            weight.addmm_(*factors, beta=1 - rate * weight_decay, alpha=-rate * matrix.size * factor)

    threads = torch.get_num_threads()
    portions = _portions(_matrices(zip(weights, buffers, gradients, strict=True), rows, sizes), threads)

    def move_all() -> None:
        while portions:
            try:
                portion = portions.pop()
            except IndexError:  # another thread was quicker
                return
            move(portion)

    # This thread is one of them: it is awake.
    helpers = [_pool(threads - 1).submit(_without_gradients, move_all) for _ in range(threads - 1)]
    torch.set_num_threads(1)
    try:
        move_all()
    finally:
        torch.set_num_threads(threads)
    for other in helpers:
        other.result()


_library.impl("muon", _move_on_cpu, "CPU")  # type: ignore[no-untyped-call]


class _Matrix(NamedTuple):
    """A matrix, its momentum and its gradient: some rows of a parameter. `size`: of its update."""

    weight: Tensor
    buffer: Tensor
    gradient: Tensor
    size: float


def _matrices(
    parameters: Iterable[tuple[Tensor, Tensor, Tensor]], rows: list[int], sizes: list[float]
) -> list[_Matrix]:
    """The matrices of all parameters, one after the other."""
    heights, matrices = iter(zip(rows, sizes, strict=True)), []
    for weight, buffer, gradient in parameters:
        start = 0
        while start < len(weight):
            height, size = next(heights)
            within = slice(start, start + height)
            matrices.append(_Matrix(weight[within], buffer[within], gradient[within], size))
            start += height
    return matrices


def _portions(matrices: list[_Matrix], threads: int) -> list[list[_Matrix]]:
    """A few matrices with one shorter side each, alike in their work, for each thread as many such portions."""
    by_side: dict[int, list[_Matrix]] = {}
    for matrix in sorted(matrices, key=lambda matrix: -matrix.weight.numel()):
        by_side.setdefault(min(matrix.weight.shape), []).append(matrix)
    portions = []
    for alike in by_side.values():
        count = -(-len(alike) // (_PORTION * threads)) * threads
        portions += [portion for start in range(count) if (portion := alike[start::count])]
    return portions


def _without_gradients(work: Callable[[], None]) -> None:
    with torch.no_grad():  # each thread has its own word on that
        work()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="linnet-muon", initializer=use_threads, initargs=(1,))
