"""A step as one CUDA graph: the GPU is handed the whole step at once instead of a thousand kernels one by one."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.kernels.recording import Work, kinds

_PLAIN_CALLS = 3  # compile, make the optimiser's state, let libraries choose their kernels: none of it may be captured


class Graph:
    """A function of tensors that does the same every time. The first calls run it eagerly; later ones replay it.

    What the function writes to (weights, moments) must keep its place in memory from the first capture on. Results are
    overwritten by the next call. Inputs of another kind than those captured are worked on eagerly.
    """

    def __init__(self, work: Work, plain_calls: int = _PLAIN_CALLS) -> None:
        self._work = work
        self._plain_calls = plain_calls
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor | None, ...] = ()
        self._results: tuple[Tensor, ...] = ()
        self._stream = torch.cuda.Stream()

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Do the work on these inputs, which nearly always have the same shapes."""
        if not self._calls:
            self._inputs = tuple(None if given is None else given.contiguous().clone() for given in inputs)
        if kinds(inputs) != kinds(self._inputs):
            return self._eagerly(inputs)
        for kept, given in zip(self._inputs, inputs, strict=True):
            if kept is not None and given is not None:
                kept.copy_(given)
        self._calls += 1
        if self._calls <= self._plain_calls:
            return self._eagerly(self._inputs)
        if self._graph is None:
            self._graph = self._capture()
        self._graph.replay()
        return self._results

    def _eagerly(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
        """On the stream that is captured later, so that autograd's own bookkeeping belongs to it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            results = self._work(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return results

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on meanwhile: a checkpoint may be on its way to the host.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._results = self._work(*self._inputs)
        return graph
