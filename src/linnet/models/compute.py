"""How the parts of a model are computed: as they stand, or each kind of part compiled once.

A model is compiled by its parts, not whole: its layers are alike, so one compiled layer serves them all, and the first
step comes after seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
import torch.compiler.config
from torch import Tensor, nn

from linnet.models.working import WorkingCopies

_AUTOGRAD = {
    # What is cheap is made again in the backward pass rather than kept: norms, activations, sums. By default the
    # compiler keeps whatever a product reads there.
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
    # What was traced is found again by the next process, also with autograd functions of our own: 3 s of its first step
    # on an H200. By default these are left out, since not all of their code need be in the key; see `_sources`.
    "autograd_cache_allow_custom_autograd_functions": True,
}

# Shapes of one function that torch compiles before it gives up. They are counted through the life of the process: a
# notebook or a sweep with nine models would end at its ninth.
_SHAPES = 256


class Compute:
    """The parts as they stand."""

    def __call__(self, part: Callable[..., Any], *arguments: Any) -> Any:
        """What the part makes of the arguments; `part` is a module, or a function of a module's own."""
        return part(*arguments)

    def nothing(self, x: Tensor) -> Tensor | None:
        """What is added to `x` where nothing is: the first layer has none before it."""
        return None

    def before_step(self) -> None:
        """The weights have changed."""

    def after_backward(self) -> None:
        """Gradients have come."""


plain = Compute()


class Compiled(Compute):
    """Each kind of module, and each function, compiled when it is first met. Products read weights in `dtype`."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self._compiled: dict[object, Callable[..., Any]] = {}
        self._met: set[object] = set()  # parts with kinds of arguments
        self._copies = WorkingCopies(dtype)

    def __call__(self, part: Callable[..., Any], *arguments: Any) -> Any:
        """The same, compiled."""
        kind: object = part
        function = part
        if isinstance(part, nn.Module):
            kind, function, arguments = type(part), type(part).forward, (self._copies.twin(part), *arguments)
        if kind not in self._compiled:
            self._compiled[kind] = torch.compile(function, fullgraph=True, dynamic=False)
        # Only what is new is compiled, and to change these settings and back takes 60 µs.
        met = (part, torch.is_grad_enabled(), *map(_kind, arguments))
        if met in self._met:
            return self._compiled[kind](*arguments)
        self._met.add(met)
        with (
            torch._functorch.config.patch(_AUTOGRAD),
            torch._dynamo.config.patch(recompile_limit=_SHAPES),
            torch.compiler.config.patch(cache_key_tag=_sources()),  # type: ignore[attr-defined]
        ):
            return self._compiled[kind](*arguments)

    def nothing(self, x: Tensor) -> Tensor | None:
        """Zeros, with a gradient like any layer's output: the first layer is compiled with the others."""
        return torch.zeros_like(x).requires_grad_(x.requires_grad)

    def before_step(self) -> None:
        """Cast all weights anew."""
        self._copies.refresh()

    def after_backward(self) -> None:
        """Give the gradients to the weights that are trained."""
        self._copies.collect()


@cache
def _sources() -> str:
    """The digest of this room's code: another version of it finds nothing that this one compiled."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return f"linnet {found.hexdigest()}"


def _kind(argument: Any) -> object:
    """What a part is compiled for: of a tensor all but its numbers."""
    if isinstance(argument, Tensor):
        return argument.shape, argument.dtype, argument.requires_grad
    return argument
