"""`DecodeWeights`: a model's matrices in the layout that single-token decoding reads fastest.

To decode is to read every weight once a token; the arithmetic hides behind it. So what counts is that the reading goes
at the speed of the memory, and that nothing is read that need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.kernels.cpu import mkl_is_slow

_STRIPE = 32

Matmul = Callable[[Tensor], Tensor]


class Decodable(Protocol):
    """What is asked of a language model: its modules, and an output head that may be tied to the embedding."""

    compute_dtype: torch.dtype

    def modules(self) -> Iterator[nn.Module]: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...
    def head(self, hidden_BTD: Tensor) -> Tensor: ...
    @property
    def output(self) -> nn.Module | None: ...
    @property
    def plain_head_VD(self) -> Tensor | None: ...  # noqa: N802
    @property
    def device(self) -> torch.device: ...


class StripedMatmul:
    """x Wᵀ + b with W [N, K] kept as [N / 32, K, 32], for a CPU: a batched matmul that reads memory sequentially.

    By MKL on an AMD processor x Wᵀ of one row reaches half of the memory's speed, this nearly all of it.
    """

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None) -> None:
        self._rows, self._bias = weight_NK.shape[0], bias_N
        padded = F.pad(weight_NK, (0, 0, 0, -self._rows % _STRIPE))
        self._stripes = padded.unflatten(0, (-1, _STRIPE)).transpose(1, 2).contiguous()

    def __call__(self, x_11K: Tensor) -> Tensor:
        """[1, 1, K] → [1, 1, N]."""
        y = torch.bmm(x_11K.expand(len(self._stripes), 1, -1), self._stripes).view(1, 1, -1)[..., : self._rows]
        return y if self._bias is None else y + self._bias


class DecodeWeights:
    """A copy of all matrices of a model as they are now, in a layout for decoding; held beside the weights."""

    def __init__(self, model: Decodable) -> None:
        self._linears: list[tuple[nn.Linear, Matmul]] = []
        self._head: Matmul | None = None
        prepare = _layout_for(model)
        if prepare is None:
            return
        for module in model.modules():
            if isinstance(module, nn.Linear) and module is not model.output:
                self._linears.append((module, prepare(module.weight, module.bias)))
        if (head_VD := model.plain_head_VD) is not None:
            self._head = prepare(head_VD, None)

    @contextmanager
    def used_by(self, model: Decodable) -> Iterator[None]:
        """The model's own code reads them for a while, one token at a time: they stand in for `forward` and `head`."""
        for linear, matmul in self._linears:
            vars(linear)["forward"] = matmul
        if self._head is not None:
            vars(model)["head"] = self._head
        try:
            yield
        finally:
            for linear, _ in self._linears:
                del vars(linear)["forward"]
            vars(model).pop("head", None)


_kept: WeakKeyDictionary[Decodable, tuple[object, DecodeWeights]] = WeakKeyDictionary()


def decode_weights(model: Decodable) -> DecodeWeights:
    """The model's matrices for decoding; those of last time, if no weight has changed since."""
    state = (model.compute_dtype, *_fingerprints(model))
    kept = _kept.get(model)
    if kept is None or kept[0] != state:
        _kept.pop(model, None)  # before new ones are made: both at once would be a third copy of the weights
        _kept[model] = kept = (state, DecodeWeights(model))
    return kept[1]


def drop_decode_weights(model: Decodable) -> None:
    """Let go of what is kept for the next text: in a training the weights are others by then."""
    _kept.pop(model, None)


@torch.no_grad()
def _fingerprints(model: Decodable) -> Iterator[tuple[int, int, float]]:
    """Of each weight what cannot stay the same when it changes: its address, torch's version counter, and its sum.

    torch counts no change by a fused optimiser, by a captured step, or in a tensor made in inference mode: for those
    there is the sum, which costs about as much as one token.
    """
    weights = list(model.parameters())
    sums = torch.stack([weight.sum() for weight in weights]).tolist()
    for weight, total in zip(weights, sums, strict=True):
        yield weight.data_ptr(), 0 if weight.is_inference() else weight._version, total


def _layout_for(model: Decodable) -> Callable[[Tensor, Tensor | None], Matmul] | None:
    """How to lay out a matrix on the model's device; None: the weights are best as they are."""
    dtype = model.compute_dtype
    if dtype != torch.float32:  # cast once instead of for every token
        return lambda weight, bias: partial(
            F.linear, weight=weight.detach().to(dtype), bias=None if bias is None else bias.to(dtype)
        )
    if model.device.type == "cpu" and mkl_is_slow():
        return lambda weight, bias: StripedMatmul(weight.detach(), bias)
    return None
