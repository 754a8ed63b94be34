"""A step captured once and replayed: a CUDA graph on a GPU (`Graph`), a list of operations on a CPU (`Recording`).

A small step spends its time in Python, autograd and the allocator, not in arithmetic. A graph hands the GPU the whole
step at once instead of a thousand kernels one by one. A recording watches one step below Python and autograd, where
only operations on tensors are left; later steps do those again, on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Work = Callable[..., tuple[Tensor, ...]]
_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Graph:
    """A function of tensors as a CUDA graph. The first calls run it eagerly; later ones replay it.

    What the function writes to (weights, moments) must keep its place in memory from the first capture on. Results are
    overwritten by the next call. Inputs of other shapes than those captured are worked on eagerly.
    """

    def __init__(self, work: Work, plain_calls: int = 3) -> None:
        self._work = work
        self._plain_calls = plain_calls  # they compile, make the optimizer's state, let libraries choose their kernels
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor | None, ...] = ()
        self._results: tuple[Tensor, ...] = ()
        self._stream = _capture_stream(torch.cuda.current_device())

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Do the work on these inputs, which nearly always have the same shapes."""
        if not self._calls:
            self._inputs = tuple(None if tensor is None else tensor.contiguous().clone() for tensor in inputs)
        if _kinds(inputs) != _kinds(self._inputs):
            return self._eagerly(inputs)
        _copy_into(self._inputs, inputs)
        self._calls += 1
        if self._calls <= self._plain_calls:
            return self._eagerly(self._inputs)
        if self._graph is None:
            self._graph = self._capture()
        self._graph.replay()
        return self._results

    def uncaptured(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Do the work once without the graph, for somebody who looks at what Python does."""
        return self._eagerly(inputs)

    def _eagerly(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
        """On the stream that is captured later, so that autograd's own bookkeeping belongs to it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            results = self._work(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return results

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # Other threads may go on meanwhile: a checkpoint may be on its way to the host.
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._results = self._work(*self._inputs)
        except BaseException:
            torch.cuda.set_stream(current)  # torch stays on its own where a capture that broke off cannot be ended
            raise
        return graph


@cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """The one stream that everything is captured on: cuBLAS keeps a workspace of 34 MB for each that it ever saw."""
    return torch.cuda.Stream(device)


class Recording:
    """The same on a CPU. The first calls run eagerly, the next one is recorded, later ones repeat its operations.

    They are the same kernels on the same numbers, so the results are the same to the bit. Every intermediate result
    keeps its memory, so this is for small work.
    """

    def __init__(self, work: Work, plain_calls: int = 1) -> None:
        self._work = work
        self._plain_calls = plain_calls  # in the first an optimizer makes its state, which must be there before
        self._calls = 0
        self._recorded: list[_Call] = []
        self._inputs: tuple[Tensor | None, ...] = ()
        self._results: tuple[Tensor, ...] = ()

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Do the work on these inputs, which nearly always have the same shapes."""
        self._calls += 1
        if self._calls <= self._plain_calls:
            return self._work(*inputs)
        if not self._recorded:
            self._inputs = tuple(None if tensor is None else tensor.clone() for tensor in inputs)
            recorder = _Recorder()
            with recorder:
                self._results = self._work(*self._inputs)
            self._recorded = recorder.calls()  # now: had the work broken off, the next call would record it anew
            return self._results
        if _kinds(inputs) != _kinds(self._inputs):
            return self._work(*inputs)
        with torch.inference_mode():
            _copy_into(self._inputs, inputs)
            for operation, arguments, named in self._recorded:
                operation(*arguments, **named)
        return self._results

    def uncaptured(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Do the work once without the recording, for somebody who looks at what Python does."""
        return self._work(*inputs)


def _copy_into(buffers: tuple[Tensor | None, ...], inputs: tuple[Tensor | None, ...]) -> None:
    for buffer, tensor in zip(buffers, inputs, strict=True):
        if buffer is not None and tensor is not None:
            buffer.copy_(tensor)


def _kinds(tensors: Iterable[Tensor | None]) -> list[tuple[torch.Size, torch.dtype] | None]:
    """Shape and dtype of each. A copy into memory of another shape may well succeed, and mean something else."""
    return [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors]


class _Recorder(TorchDispatchMode):
    """Keeps each operation with the tensors it read and wrote, while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[_Call] = []
        self._constants: dict[int, Tensor] = {}  # by the index of the call that fills them
        self._written: set[int] = set()  # memory that an operation changes

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch asks this; to be left out of what is compiled would load the compiler, and nothing here is."""
        return False

    def calls(self) -> list[_Call]:
        """What was done. A constant that nothing writes to is filled already."""
        filled = {
            index
            for index, tensor in self._constants.items()
            if tensor.untyped_storage().data_ptr() not in self._written
        }
        return [call for index, call in enumerate(self._calls) if index not in filled]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        if func.namespace == "profiler":  # marks for whoever watches
            return result
        if func._schema.is_mutable:
            self._calls.append((func._op, args, named))
            self._written |= {tensor.untyped_storage().data_ptr() for tensor in _written(func, args, named)}
            return result
        results = list(_tensors(result))
        assert results, f"{func} gives the host a number: such work cannot be recorded"
        name = func.overloadpacket.__name__
        if not name.startswith(_EMPTY) and not _is_view(results, _tensors((args, named))):
            constant = (
                name.endswith("_like") or name.startswith("new_") or not any(True for _ in _tensors((args, named)))
            )
            if constant and torch.Tag.nondeterministic_seeded not in func.tags:
                # Its numbers are known, but later operations may write over them.
                for tensor in results:
                    self._constants[len(self._calls)] = tensor
                    self._calls.append((tensor.copy_, (tensor.clone(),), {}))
            else:
                self._calls.append(_into(result, func, args, named))
        return result


_EMPTY = ("empty", "new_empty")  # memory without numbers: there is nothing to do again


def _written(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation changes."""
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[index] if index < len(args) else named.get(argument.name))


def _tensors(values: Any) -> Iterator[Tensor]:
    return (value for value in tree_leaves(values) if isinstance(value, Tensor))


def _is_view(results: list[Tensor], inputs: Iterable[Tensor]) -> bool:
    """Does a result lie in an input's memory? Then it changes with it, and nothing needs to be done."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in inputs if tensor.numel()}
    return any(result.untyped_storage().data_ptr() in storages for result in results if result.numel())


def _into(result: Any, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> _Call:
    """The operation, writing into the results it had: by its form with `out=`, else by a copy.

    An operation is called by the function that torch wraps in Python: half a microsecond less, of two.
    """
    results = [result] if isinstance(result, Tensor) else list(result)
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    # What nobody asked for, as the gradient of a frozen norm, is None, and `out=` wants a tensor for it.
    forms = () if any(kept is None for kept in results) else func.overloadpacket.overloads()
    for name in forms:
        form = getattr(func.overloadpacket, name)
        outs = [a for a in form._schema.arguments if a.is_out]
        arguments = [(a.name, str(a.type)) for a in form._schema.arguments if not a.is_out]
        if arguments == wanted and [str(out.type) for out in outs] == ["List[Tensor]"]:
            return form._op, args, {**named, outs[0].name: results}
        if arguments == wanted and len(outs) == len(results):
            return form._op, args, {**named, **{out.name: kept for out, kept in zip(outs, results, strict=True)}}

    call, several = func._op, not isinstance(result, Tensor)

    def call_and_copy() -> None:
        output = call(*args, **named)
        _copy_into(tuple(results), output if several else (output,))

    return call_and_copy, (), {}
