"""What a call of torch gives on the `meta` device, where nothing but shape and dtype is asked for.

torch computes those itself, but by its own operations written again in Python. The first of them loads these, sympy and
the compiler: two seconds before the first step of a training that needs none of them. So the calls of which the models
are made have a rule here; torch is asked of all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def result_by_rule(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """The tensor without numbers that a call returns; None: no rule is known for it."""
    rule = _RULES.get(getattr(func, "__name__", "").removeprefix("__").removesuffix("__"))
    if rule is None or "out" in kwargs or not (args and _is_meta(args[0], kwargs)):
        return None
    try:
        return rule(*args, **kwargs)
    except TypeError:  # it is called in a way that the rule does not know
        return None


def _is_meta(first: Any, kwargs: dict[str, Any]) -> bool:
    if isinstance(first, tuple | list) and first and isinstance(first[0], Tensor):
        first = first[0]
    return first.is_meta if isinstance(first, Tensor) else str(kwargs.get("device")) == "meta"


def _empty(shape: Sequence[int], dtype: torch.dtype | None) -> Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def _of_two(x: Tensor, y: Tensor | float) -> Tensor:
    shape = np.broadcast_shapes(x.shape, y.shape if isinstance(y, Tensor) else ())
    return _empty(shape, torch.result_type(x, y))


def _quotient(x: Tensor, y: Tensor | float) -> Tensor:
    result = _of_two(x, y)
    whole = not (result.is_floating_point() or result.is_complex())
    return _empty(result.shape, None) if whole else result


def _comparison(x: Tensor, y: Tensor | float) -> Tensor:
    return _empty(_of_two(x, y).shape, torch.bool)


def _activation(x: Tensor, *, approximate: str = "none", inplace: bool = False) -> Tensor | None:
    return None if inplace else _empty(x.shape, x.dtype)


def _clamp(x: Tensor, *, min: int) -> Tensor | None:
    return None if x.is_floating_point() else _empty(x.shape, x.dtype)


def _norm(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float | None = None) -> Tensor:
    return _empty(x.shape, x.dtype)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _empty((*x.shape[:-1], weight.shape[0]), x.dtype)


def _embedding(ids: Tensor, weight: Tensor, **_: Any) -> Tensor:
    return _empty((*ids.shape, weight.shape[1]), weight.dtype)


def _attention(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    return _empty((*q.shape[:-1], v.shape[-1]), q.dtype)


def _cross_entropy(logits: Tensor, targets: Tensor, *, reduction: str = "mean", **_: Any) -> Tensor | None:
    if targets.is_floating_point():
        return None
    return _empty(targets.shape if reduction == "none" else (), logits.dtype)


def _joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor | None:
    first = tensors[0]
    if any(x.dtype != first.dtype or x.ndim != first.ndim for x in tensors):
        return None
    shape = list(first.shape)
    shape[dim] = sum(x.shape[dim] for x in tensors)
    return _empty(shape, first.dtype)


def _sum(x: Tensor) -> Tensor:
    return _empty((), x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)


def _mean(x: Tensor, dim: int) -> Tensor:
    return _empty(_without(x.shape, dim), x.dtype)


def _argmax(x: Tensor, dim: int) -> Tensor:
    return _empty(_without(x.shape, dim), torch.int64)


def _without(shape: Sequence[int], dim: int) -> list[int]:
    if not isinstance(dim, int):
        raise TypeError("several dimensions")
    kept = list(shape)
    del kept[dim]
    return kept


def _zeros(shape: Sequence[int], *, device: Any, dtype: torch.dtype | None = None) -> Tensor:
    return _empty(shape, dtype)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor | None:
    """None for a cast to what it is: that returns the same tensor, which is no operation."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError("a device")
    return None if x.dtype == dtype else _empty(x.shape, dtype)


def _float(x: Tensor) -> Tensor | None:
    return _cast(x, torch.float32)


def _flat(x: Tensor, first: int = 0, last: int = -1) -> Tensor | None:
    """None for one that is a view."""
    first, last = first % x.ndim, last % x.ndim
    if x.is_contiguous():
        return None
    return _empty((*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]), x.dtype)


# By the names of torch's functions: `add` for a + b too; not `add_`, which returns what it was given.
_RULES: dict[str, Callable[..., Tensor | None]] = {
    **dict.fromkeys(("add", "sub", "mul"), _of_two),
    **dict.fromkeys(("div", "truediv"), _quotient),
    **dict.fromkeys(("ge", "eq"), _comparison),
    **dict.fromkeys(("silu", "gelu"), _activation),
    **dict.fromkeys(("rms_norm", "layer_norm"), _norm),
    "clamp": _clamp,
    "linear": _linear,
    "embedding": _embedding,
    "scaled_dot_product_attention": _attention,
    "cat": _joined,
    "cross_entropy": _cross_entropy,
    "sum": _sum,
    "mean": _mean,
    "argmax": _argmax,
    "zeros": _zeros,
    "to": _cast,
    "float": _float,
    "flatten": _flat,
}
