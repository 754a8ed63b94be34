"""How the parts of a model are computed: as they stand, or each kind of part compiled once.

A model is compiled by its parts, not whole: its layers are alike, so one compiled layer serves them all, and the first
step comes after seconds instead of a minute. What fusion across layers would save was measured: nothing (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

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
        if kind not in self._compiled:
            self._compiled[kind] = torch.compile(function, fullgraph=True, dynamic=False)
        return self._compiled[kind](*arguments)
