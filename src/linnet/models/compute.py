"""How the parts of a model are computed: as they stand, or each kind of part compiled once.

A model is compiled by its parts, not whole: its layers are alike, so one compiled layer serves them all, and the first
step comes after seconds instead of a minute. What fusion across layers would save was measured: nothing (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
from torch import nn

# What is cheap is made again in the backward pass rather than kept: norms, activations, sums. By default the compiler
# keeps whatever a product reads there.
_RECOMPUTE = {
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
}

Compute = Callable[..., Any]


def plain(part: Callable[..., Any], *arguments: Any) -> Any:
    """The part as it stands."""
    return part(*arguments)


class Compiled:
    """Each kind of module, and each function, compiled when it is first met."""

    def __init__(self) -> None:
        self._compiled: dict[object, Callable[..., Any]] = {}

    def __call__(self, part: Callable[..., Any], *arguments: Any) -> Any:
        """The part, compiled. `part` is a module, or a function of a module's own."""
        if isinstance(part, nn.Module):
            kind, function, arguments = type(part), type(part).forward, (part, *arguments)
        else:
            kind, function = part, part
        if kind in self._compiled:
            return self._compiled[kind](*arguments)
        self._compiled[kind] = torch.compile(function, fullgraph=True, dynamic=False)
        with torch._functorch.config.patch(_RECOMPUTE):
            return self._compiled[kind](*arguments)
