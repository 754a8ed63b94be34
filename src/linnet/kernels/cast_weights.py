"""`CastWeights`: the weights of linear layers in a lower precision, cast once a step and all together."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


class CastWeights:
    """For each module a copy that shares everything with it but the parameters of its linear layers, in `dtype`.

    A step begins with `refresh`; after each backward pass `collect` adds the copies' gradients to those of the
    parameters, in float32. A cast for each matrix, and one for its gradient, is a fifth of a small model's kernels.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._copies: dict[nn.Module, nn.Module] = {}
        self._masters: list[Tensor] = []
        self._cast: list[Tensor] = []

    def copy_of(self, module: nn.Module) -> nn.Module:
        """The module with cast weights; the module itself where there is nothing to cast."""
        if module not in self._copies:
            self._copies[module] = self._copied(module)
        return self._copies[module]

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast all weights again."""
        if self._masters:
            torch._foreach_copy_(self._cast, self._masters)

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of the cast weights to those of the parameters."""
        pairs = zip(self._masters, self._cast, strict=True)
        reached = [(master, cast, cast.grad) for master, cast in pairs if cast.grad is not None]
        if not reached:
            return
        exact = [torch.empty_like(master) for master, _, _ in reached]
        torch._foreach_copy_(exact, [gradient for _, _, gradient in reached])
        for (master, cast, _), gradient in zip(reached, exact, strict=True):
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            cast.grad = None

    def _copied(self, module: nn.Module) -> nn.Module:
        shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        cast = {
            id(parameter): parameter
            for part in module.modules()
            if isinstance(part, nn.Linear)
            for parameter in part.parameters(recurse=False)
            if parameter.dtype != self._dtype
        }
        if not cast:
            return module
        for key, master in cast.items():
            copied = nn.Parameter(master.detach().to(self._dtype), requires_grad=master.requires_grad)
            shared[key] = copied
            self._masters.append(master)
            self._cast.append(copied)
        return copy.deepcopy(module, shared)
