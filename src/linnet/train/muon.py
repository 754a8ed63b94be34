"""`Muon`: momentum made orthogonal (`orthogonal.py`), for the matrices of the blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from linnet.train.orthogonal import has_kernels, inverse_root, orthogonal
from linnet.train.process import use_threads
from linnet.train.sharded_weights import WholeMatrices
from linnet.train.streams import side_by_side

_SMALL = 1 << 25  # numbers up to which products of one shape leave a GPU room for those of another


class Muon(torch.optim.Optimizer):
    """Muon for hidden matrices. One learning rate is right for it and AdamW: updates have the size that AdamW's have.

    torch's own takes matrices one by one, in bf16 on a CPU too, with a learning rate that only the host knows, so that
    no graph can hold it. On a GPU those of one shape are one batch here. On a CPU each thread takes one at a time: what
    becomes of a matrix depends neither on the others nor on the number of threads.

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
                side_by_side(works, device)
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
        gradients_NRC = torch.stack([matrix.grad for matrix in matrices if matrix.grad is not None])
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

    def move(weight: Tensor, buffer: Tensor, gradient: Tensor) -> None:
        buffer.mul_(momentum).add_(gradient, alpha=(1 - momentum) * shrink)
        # Nesterov's: the momentum of the step to come, up to a factor, which makes no difference.
        ahead = torch.add(gradient, buffer, alpha=momentum / ((1 - momentum) * shrink))
        root_SS, factor = inverse_root(ahead)
        factors = (ahead, root_SS) if weight.shape[0] > weight.shape[1] else (root_SS, ahead)
        weight.addmm_(*factors, beta=1 - rate * weight_decay, alpha=-rate * _size(weight.shape) * factor)

    by_work = sorted(zip(weights, buffers, gradients, strict=True), key=lambda triple: -triple[0].numel())
    threads = torch.get_num_threads()
    if threads == 1:
        for triple in by_work:
            move(*triple)
        return
    for moved in [_pool(threads).submit(_without_gradients, move, *triple) for triple in by_work]:
        moved.result()


def _without_gradients(work: Callable[..., None], *arguments: Tensor) -> None:
    with torch.no_grad():  # each thread has its own word on that
        work(*arguments)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="linnet-muon", initializer=use_threads, initargs=(1,))
