"""Modules whose products read weights that are cast once a step, together, not one by one as they are met."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from linnet.models.layers import Linear


class WorkingCopies:
    """For each module a twin that shares everything with it but the parameters of its products, which have `dtype`.

    A step begins with `refresh`; after each backward pass `collect` adds the twins' gradients to the modules' own, in
    float32. Handing out a cast for every matrix, and another for its gradient, is a fifth of a small model's kernels.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._twins: dict[nn.Module, nn.Module] = {}
        self._own: list[Tensor] = []
        self._working: list[Tensor] = []

    def twin(self, module: nn.Module) -> nn.Module:
        """The module's twin; the module itself where there is nothing to cast."""
        if module not in self._twins:
            self._twins[module] = self._made(module)
        return self._twins[module]

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast all weights anew."""
        if self._own:
            torch._foreach_copy_(self._working, self._own)

    @torch.no_grad()
    def collect(self) -> None:
        """Move the gradients to the parameters that are trained."""
        pairs = zip(self._own, self._working, strict=True)
        reached = [(own, work, work.grad) for own, work in pairs if work.grad is not None]
        if not reached:
            return
        exact = [torch.empty_like(own) for own, _, _ in reached]
        torch._foreach_copy_(exact, [gradient for _, _, gradient in reached])
        for (own, work, _), gradient in zip(reached, exact, strict=True):
            own.grad = gradient if own.grad is None else own.grad.add_(gradient)
            work.grad = None

    def _made(self, module: nn.Module) -> nn.Module:
        shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        cast = {
            id(parameter): parameter
            for part in module.modules()
            if isinstance(part, Linear)
            for parameter in part.parameters(recurse=False)
            if parameter.dtype != self._dtype
        }
        if not cast:
            return module
        for key, own in cast.items():
            working = nn.Parameter(own.detach().to(self._dtype), requires_grad=own.requires_grad)
            shared[key] = working
            self._own.append(own)
            self._working.append(working)
        return copy.deepcopy(module, shared)
