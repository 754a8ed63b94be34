"""A step as a list of operations: what a CUDA graph is to a GPU, for a CPU.

A small step spends its time in Python, autograd and the allocator, not in arithmetic. So one step is watched below
all of them, where only operations on tensors are left; later steps do those again, on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Work = Callable[..., tuple[Tensor, ...]]
_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Recording:
    """A function of tensors that does the same every time. The first calls run it eagerly, the next one is recorded.

    Later calls repeat the recorded operations: the same kernels on the same numbers, so the results are the same to
    the bit. What the function writes to (weights, moments) must keep its place in memory. Results are overwritten by
    the next call. Every intermediate result keeps its memory too, so this is for small work. Inputs of another kind
    than those recorded are worked on eagerly.
    """

    def __init__(self, work: Work, plain_calls: int = 1) -> None:
        self._work = work
        self._plain_calls = plain_calls  # in the first an optimiser makes its state, which must be there before
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
        if kinds(inputs) != kinds(self._inputs):
            return self._work(*inputs)
        with torch.inference_mode():
            for kept, given in zip(self._inputs, inputs, strict=True):
                if kept is not None and given is not None:
                    kept.copy_(given)
            for operation, arguments, named in self._recorded:
                operation(*arguments, **named)
        return self._results


def kinds(tensors: Iterable[Tensor | None]) -> list[tuple[torch.Size, torch.dtype] | None]:
    """Shape and dtype of each. A copy into memory of another shape may well succeed, and mean something else."""
    return [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors]


class _Recorder(TorchDispatchMode):
    """Keeps each operation with the tensors it read and wrote, while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[_Call] = []
        self._constants: dict[int, Tensor] = {}  # by the place of the call that fills them
        self._written: set[int] = set()  # memory that an operation changes

    def calls(self) -> list[_Call]:
        """What was done. A constant that nothing writes to is filled already."""
        constant = {
            place for place, kept in self._constants.items() if kept.untyped_storage().data_ptr() not in self._written
        }
        return [call for place, call in enumerate(self._calls) if place not in constant]

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
                for kept in results:
                    self._constants[len(self._calls)] = kept
                    self._calls.append((kept.copy_, (kept.clone(),), {}))
            else:
                self._calls.append(_into(result, func, args, named))
        return result


_EMPTY = ("empty", "new_empty")  # memory without numbers: there is nothing to do again


def _written(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation changes."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[place] if place < len(args) else named.get(argument.name))


def _tensors(values: Any) -> Iterator[Tensor]:
    return (value for value in tree_leaves(values) if isinstance(value, Tensor))


def _is_view(results: list[Tensor], inputs: Iterable[Tensor]) -> bool:
    """Does a result lie in an input's memory? Then it changes with it, and nothing needs to be done."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in inputs if tensor.numel()}
    return any(result.untyped_storage().data_ptr() in taken for result in results if result.numel())


def _into(result: Any, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> _Call:
    """The operation, writing into the results it had: by its form with `out=`, else by a copy.

    An operation is called by the function that torch wraps in Python: half a microsecond less, of two.
    """
    results = [result] if isinstance(result, Tensor) else list(result)
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments]
    for name in func.overloadpacket.overloads():
        form = getattr(func.overloadpacket, name)
        outs = [a for a in form._schema.arguments if a.is_out]
        taken = [(a.name, str(a.type)) for a in form._schema.arguments if not a.is_out]
        if taken == wanted and [str(out.type) for out in outs] == ["List[Tensor]"]:
            return form._op, args, {**named, outs[0].name: results}
        if taken == wanted and len(outs) == len(results):
            return form._op, args, {**named, **{out.name: kept for out, kept in zip(outs, results, strict=True)}}

    call, several = func._op, not isinstance(result, Tensor)

    def again() -> None:
        found = call(*args, **named)
        for kept, new in zip(results, found if several else (found,), strict=True):
            if new is not None:
                kept.copy_(new)

    return again, (), {}
