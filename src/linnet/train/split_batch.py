"""Two halves of a batch side by side, each on half of a CPU's threads.

Threads that share an operation wait for the slowest of them at its end, two thousand times a step. Halves wait for
each other once: 3 to 5 % less time for 2,048 tokens on two threads (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import Tensor, nn

from linnet.kernels import gradients


class SplitBatch:
    """Adds the gradients of two parts at a time to those of the parameters, always in the order of the parts.

    To the bit the same as one part after the other.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], threads: int) -> None:
        self._parameters = parameters
        self._pool = ThreadPoolExecutor(
            2, thread_name_prefix="linnet-half", initializer=_keep_to, initargs=(threads // 2,)
        )

    def __call__(self, parts: Sequence[Callable[[], tuple[Tensor, ...]]]) -> list[tuple[Tensor, ...]]:
        """The metrics of each part, its loss first."""
        metrics: list[tuple[Tensor, ...]] = []
        for start in range(0, len(parts), 2):
            pair = [self._pool.submit(self._worked_out, part) for part in parts[start : start + 2]]
            wait(pair)  # where one fails, the other is no longer at work when that is told
            for shares, by_parameter in [half.result() for half in pair]:
                metrics.append(shares)
                self._add(by_parameter)
        return metrics

    def _worked_out(self, part: Callable[[], tuple[Tensor, ...]]) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
        shares = part()
        return tuple(share.detach() for share in shares), gradients(shares[0], self._parameters)

    @torch.no_grad()
    def _add(self, by_parameter: list[Tensor | None]) -> None:
        """As `backward` does: a parameter's gradient has memory of its own, in the parameter's order."""
        taken: set[int] = set()
        for parameter, gradient in zip(self._parameters, by_parameter, strict=True):
            if gradient is None:
                continue
            memory = gradient.untyped_storage().data_ptr()
            if parameter.grad is not None:
                parameter.grad += gradient
            elif gradient.stride() == parameter.stride() and memory not in taken:
                parameter.grad = gradient
                taken.add(memory)
            else:
                parameter.grad = torch.empty_like(parameter).copy_(gradient)


def _keep_to(threads: int) -> None:
    """Let this thread's operations have so many threads, from now on."""
    torch.get_num_threads()  # else its first large operation would take the number that was set last, by any thread
    torch.set_num_threads(threads)
