"""Rope scaling: how rotary angles are turned for texts longer than before."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from linnet.errors import UsageError

KINDS = ("none", "linear", "yarn", "llama3")


@dataclass(frozen=True)
class RopeScaling:
    """`linear` divides every angle by `factor`; `yarn` and `llama3` leave the quick ones as they are."""

    kind: str
    factor: float
    original_ctx: int = 0  # yarn and llama3: the context before scaling
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise _error("unknown rope scaling", " or ".join(KINDS), ascii(self.kind)[:80])
        if self.kind != "none" and not 0 < self.factor < math.inf:
            raise _error("wrong factor", "above 0", str(self.factor))
        if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor < math.inf:
            expected = "low_freq_factor above 0 and below high_freq_factor"
            raise _error("wrong factors", expected, f"{self.low_freq_factor} and {self.high_freq_factor}")
        if self.kind in ("yarn", "llama3") and self.original_ctx < 1:
            raise _error("no original_ctx", f"the context before scaling, for {self.kind}", str(self.original_ctx))


def rope_scaling_of(config: object) -> RopeScaling | None:
    """The scaling of a config: its `rope_scaling`, where None and "none" mean there is none, as does no such field."""
    scaling: Any = getattr(config, "rope_scaling", None)
    if scaling is None or scaling == "none":
        return None
    if isinstance(scaling, RopeScaling):
        return None if scaling.kind == "none" else scaling
    raise _error("not understood", "a RopeScaling or None", ascii(repr(scaling))[:80])


def _error(problem: str, expected: str, found: str) -> UsageError:
    return UsageError(f"rope_scaling: {problem}; expected {expected}, found {found}")
