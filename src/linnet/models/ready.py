"""A model's matrices in the form in which one token after another reads them fastest.

To decode is to read every weight once a token; the arithmetic hides behind it. So what counts is that the reading goes
at the speed of the memory, and that nothing is read that need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.models.cpu.products import mkl_is_slow
from linnet.models.language_model import LanguageModel
from linnet.models.layers import Linear

_STRIPE = 32


class Stripes:
    """W [N, K] as [N / 32, K, 32], for a CPU: x Wᵀ becomes a batch of products that read straight ahead.

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


class Cast:
    """W in the dtype it is computed in, cast once instead of for every token."""

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._bias = weight_NK.to(dtype), None if bias_N is None else bias_N.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """[…, K] → […, N]."""
        return F.linear(x, self._weight, self._bias)


class Ready:
    """The forms of all matrices of a model, as they are now; a copy of the weights, held beside them."""

    def __init__(self, model: LanguageModel) -> None:
        self._forms: list[tuple[Linear, Callable[[Tensor], Tensor]]] = []
        self._head: Callable[[Tensor], Tensor] | None = None
        make = _maker(model)
        if make is None:
            return
        for module in model.modules():
            if isinstance(module, Linear) and module is not model.output:
                self._forms.append((module, make(module.weight, module.bias)))
        self._head = make(model.head_VD, None)

    @contextmanager
    def used_by(self, model: LanguageModel) -> Iterator[None]:
        """The model's own code reads them for a while; one token at a time."""
        for module, form in self._forms:
            module.ready = form
        model.head_ready = self._head
        try:
            yield
        finally:
            for module, _ in self._forms:
                module.ready = None
            model.head_ready = None


_made: WeakKeyDictionary[LanguageModel, tuple[object, Ready]] = WeakKeyDictionary()


def ready(model: LanguageModel) -> Ready:
    """The model's matrices made ready; those of last time, if no weight has changed since."""
    state = (model.compute_dtype, *_marks(model))
    kept = _made.get(model)
    if kept is None or kept[0] != state:
        _made.pop(model, None)  # before new ones are made: both at once would be a third copy of the weights
        _made[model] = kept = (state, Ready(model))
    return kept[1]


@torch.no_grad()
def _marks(model: LanguageModel) -> Iterator[tuple[int, int, float]]:
    """Of each weight what cannot stay the same when it changes: its place, torch's count of changes, and its sum.

    torch counts no change by a fused optimiser, by a captured step, or in a tensor made in inference mode: for those
    there is the sum, which costs about as much as one token.
    """
    weights = list(model.parameters())
    sums = torch.stack([weight.sum() for weight in weights]).tolist()
    for weight, total in zip(weights, sums, strict=True):
        yield weight.data_ptr(), 0 if weight.is_inference() else weight._version, total


def _maker(model: LanguageModel) -> Callable[[Tensor, nn.Parameter | None], Callable[[Tensor], Tensor]] | None:
    """How to make a form on the model's device; None: the weights are best as they are."""
    dtype = model.compute_dtype
    if dtype != torch.float32:
        return lambda weight, bias: Cast(weight.detach(), bias, dtype)
    if model.device.type == "cpu" and mkl_is_slow():
        return lambda weight, bias: Stripes(weight.detach(), bias)
    return None
