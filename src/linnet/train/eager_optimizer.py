"""`EagerOptimizer`: an optimizer that is not compiled, and does not load the compiler.

torch wraps an optimizer's methods in hints for `torch.compile`, and the first call of any loads all of it: more than a
second of every start, 40 % of what it takes until a training on a CPU begins. Nothing here compiles an optimizer: a
step of one is captured, recorded or run as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch

_add_param_group: Callable[..., None] = unwrap(torch.optim.Optimizer.add_param_group)
_zero_grad: Callable[..., None] = unwrap(torch.optim.Optimizer.zero_grad)
_adamw_step: Callable[..., float | None] = unwrap(torch.optim.AdamW.step)


class EagerOptimizer(torch.optim.Optimizer):
    """torch's methods without their hints to the compiler."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        _add_param_group(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's."""
        _zero_grad(self, set_to_none)


class AdamW(EagerOptimizer, torch.optim.AdamW):
    """torch's AdamW, to the bit."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        return _adamw_step(self, closure)
