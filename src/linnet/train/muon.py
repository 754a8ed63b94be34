"""`Muon`: momentum made orthogonal (`orthogonal.py`), for the matrices of the blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from linnet.train.orthogonal import has_kernels, inverse_roots, orthogonal
from linnet.train.process import use_threads
from linnet.train.sharded_weights import WholeMatrices
from linnet.train.streams import run_concurrently

_PORTION = 4  # matrices whose small products a CPU's thread does together
_SMALL = 1 << 25  # numbers up to which products of one shape leave a GPU room for those of another


class Muon(torch.optim.Optimizer):
    """Muon for hidden matrices. One learning rate is right for it and AdamW: updates have the size that AdamW's have.

    torch's own takes matrices one by one, in bf16 on a CPU too, with a learning rate that only the host knows, so that
    no graph can hold it. On a GPU those of one shape are one batch here. On a CPU each thread takes a few at a time, by
    itself: what becomes of a matrix depends neither on the others nor on the number of threads.

    `grad_scale`: what gradients are divided by, as torch's fused AdamW has it.
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
        whole: WholeMatrices | None = None,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self._whole = whole  # where this rank has some rows of each matrix only
        self._batches: dict[nn.Parameter, _Batch] = {}  # by the first of their matrices

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
                gradients = [matrix.grad for matrix in matrices]
                buffers = [self._buffer(matrix) for matrix in matrices]
                settings = group["lr"], self.grad_scale, group["weight_decay"], group["momentum"]
                _move_on_cpu(matrices, buffers, gradients, *settings)
                continue
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in matrices:
                shape = matrix.shape if self._whole is None else self._whole.shapes[matrix]
                by_shape.setdefault(shape, []).append(matrix)
            fits = device.type == "cuda" and self._whole is None and matrices[0].dtype == torch.float32
            move = self._move_by_kernels if fits and has_kernels() else self._move
            works = {str(shape): partial(move, alike, shape, group) for shape, alike in by_shape.items()}
            if fits and sum(matrix.numel() for matrix in matrices) <= _SMALL:
                run_concurrently(works, device)
                continue
            for work in works.values():
                work()
        return None

    def _move_by_kernels(self, matrices: list[nn.Parameter], shape: torch.Size, group: dict[str, Any]) -> None:
        """Matrices of one shape on a GPU; their momentum lies in one tensor, of which their states are parts."""
        from linnet.kernels.cuda import muon

        batch = self._batches.get(matrices[0])
        buffers = [self._buffer(matrix) for matrix in matrices]
        if batch is None or not batch.is_of(matrices, buffers):
            batch = self._batches[matrices[0]] = _Batch(matrices, buffers)
            for matrix, buffer in zip(matrices, batch.buffers_NRC, strict=True):
                self.state[matrix][self.moment] = buffer
        gradients_NRC = _stacked([matrix.grad for matrix in matrices if matrix.grad is not None])
        ahead_NRC = muon.momentum_ahead(gradients_NRC, batch.buffers_NRC, self.grad_scale, group["momentum"])
        update_NRC = orthogonal(ahead_NRC)
        muon.move(batch.addresses_N, update_NRC, group["lr"], group["weight_decay"], _size(shape))

    def _move(self, matrices: list[nn.Parameter], shape: torch.Size, group: dict[str, Any]) -> None:
        lr, momentum = group["lr"], group["momentum"]
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        if self.grad_scale is not None:
            torch._foreach_div_(gradients, self.grad_scale)
        buffers = [self._buffer(matrix) for matrix in matrices]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)
        if self._whole is None:
            update_NRC = orthogonal(torch.stack(ahead)).float()
        else:
            update_NRC = self._whole.rows(orthogonal(self._whole.gathered(ahead, shape))).float()
        tensors: list[Tensor] = list(matrices)
        torch._foreach_mul_(tensors, 1 - lr * group["weight_decay"])
        torch._foreach_add_(tensors, (update_NRC * (-_size(shape) * lr)).unbind())

    def _buffer(self, matrix: nn.Parameter) -> Tensor:
        state = self.state[matrix]
        if self.moment not in state:
            state[self.moment] = torch.zeros_like(matrix)
        buffer: Tensor = state[self.moment]
        return buffer


class _Batch:
    """Matrices of one shape on a GPU: where their weights are, and their momentum in one tensor."""

    def __init__(self, matrices: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        self.buffers_NRC = torch.stack(list(buffers))
        self._places = [matrix.data_ptr() for matrix in matrices]
        self.addresses_N = torch.tensor(self._places, device=self.buffers_NRC.device)

    def is_of(self, matrices: Sequence[Tensor], buffers: Sequence[Tensor]) -> bool:
        """Is all of that where it was? A state that was loaded before the first step is not."""
        own = [buffer.data_ptr() for buffer in self.buffers_NRC]
        return own == [buffer.data_ptr() for buffer in buffers] and self._places == [m.data_ptr() for m in matrices]


def _stacked(tensors: list[Tensor]) -> Tensor:
    """Tensors of one shape as one; where they lie next to each other nothing is copied."""
    first = tensors[0]
    memory, size = first.untyped_storage().data_ptr(), first.nbytes
    for number, tensor in enumerate(tensors):
        is_next = tensor.data_ptr() == first.data_ptr() + number * size and tensor.is_contiguous()
        if not is_next or tensor.untyped_storage().data_ptr() != memory:
            return torch.stack(tensors)
    return first.as_strided((len(tensors), *first.shape), (first.numel(), *first.stride()))


def _size(shape: torch.Size) -> float:
    """Of an update: its numbers are as large as AdamW's, on average."""
    return 0.2 * math.sqrt(max(shape))


# One operation, so that a step that is repeated from a recording has it whole, threads and numbers for the host within.
@torch.library.custom_op("linnet::muon", mutates_args=("weights", "buffers"), device_types="cpu")
def _move_on_cpu(
    weights: list[Tensor],
    buffers: list[Tensor],
    gradients: list[Tensor],
    lr: Tensor,
    grad_scale: Tensor | None,
    weight_decay: float,
    momentum: float,
) -> None:
    rate, shrink = float(lr), 1.0 if grad_scale is None else 1 / float(grad_scale)

    def move(together: list[_Triple]) -> None:
        aheads = []
        for _, buffer, gradient in together:
            buffer.mul_(momentum).add_(gradient, alpha=(1 - momentum) * shrink)
            # Nesterov's: the momentum of the step to come, up to a factor, which makes no difference.
            aheads.append(torch.add(gradient, buffer, alpha=momentum / ((1 - momentum) * shrink)))
        for (weight, *_), ahead, root_SS, factor in zip(together, aheads, *inverse_roots(aheads), strict=True):
            factors = (ahead, root_SS) if weight.shape[0] > weight.shape[1] else (root_SS, ahead)
            weight.addmm_(*factors, beta=1 - rate * weight_decay, alpha=-rate * _size(weight.shape) * factor)

    threads = torch.get_num_threads()
    portions = _portions(list(zip(weights, buffers, gradients, strict=True)), threads)

    def move_all() -> None:
        while portions:
            try:
                portion = portions.pop()
            except IndexError:  # another thread was quicker
                return
            move(portion)

    # This thread is one of them: it is awake.
    others = [_pool(threads - 1).submit(_without_gradients, move_all) for _ in range(threads - 1)]
    torch.set_num_threads(1)
    try:
        move_all()
    finally:
        torch.set_num_threads(threads)
    for other in others:
        other.result()


_Triple = tuple[Tensor, Tensor, Tensor]  # weights, momentum, gradient


def _portions(matrices: list[_Triple], threads: int) -> list[list[_Triple]]:
    """A few matrices with one shorter side each, alike in their work, for each thread as many such portions."""
    by_side: dict[int, list[_Triple]] = {}
    for matrix in sorted(matrices, key=lambda tensors: -tensors[0].numel()):
        by_side.setdefault(min(matrix[0].shape), []).append(matrix)
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
