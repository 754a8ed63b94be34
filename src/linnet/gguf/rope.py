"""Rope scaling: how rotary angles are turned for texts longer than before, and where a GGUF file says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.metadata import Metadata, MetadataBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("none", "linear", "yarn", "llama3")

# llama.cpp knows no type "llama3" (it aborts on the word) and would apply a bare factor linearly; the whole
# effect is in the tensor rope_freqs.weight. What it was made from is kept for resuming, under our own keys.
_LLAMA3 = "linnet.rope.llama3."


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
            found = quoted(str(self.kind))
            raise GGUFError("unknown rope scaling", place="rope_scaling", expected=" or ".join(KINDS), found=found)
        if self.kind != "none" and not 0 < self.factor < math.inf:
            raise GGUFError("wrong factor", place="rope_scaling", expected="above 0", found=str(self.factor))
        if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor < math.inf:
            found = f"{self.low_freq_factor} and {self.high_freq_factor}"
            expected = "low_freq_factor above 0 and below high_freq_factor"
            raise GGUFError("wrong factors", place="rope_scaling", expected=expected, found=found)
        if self.kind in ("yarn", "llama3") and self.original_ctx < 1:
            expected = f"the context before scaling, for {self.kind}"
            raise GGUFError("no original_ctx", place="rope_scaling", expected=expected, found=str(self.original_ctx))


def rope_scaling_of(cfg: Any) -> RopeScaling | None:
    """The scaling of a config: its `rope_scaling`, where None and "none" mean there is none."""
    scaling = getattr(cfg, "rope_scaling", None)
    if scaling is None or scaling == "none":
        return None
    if isinstance(scaling, RopeScaling):
        return None if scaling.kind == "none" else scaling
    found = quoted(repr(scaling))
    raise GGUFError("not understood", place="rope_scaling", expected="a RopeScaling or None", found=found)


def rope_divisors(scaling: RopeScaling, head_dim: int, base: float) -> NDArray[np.float32]:
    """For llama3 scaling, what `rope_freqs.weight` [head_dim / 2] holds: the divisor of each pair's angle."""
    angles = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelength = 2 * math.pi / angles
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = np.clip((scaling.original_ctx / wavelength - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / scaling.factor + smooth)).astype(np.float32)


def add_rope_keys(block: MetadataBlock, prefix: str, scaling: RopeScaling | None) -> None:
    """The metadata of a scaling; `prefix` is the architecture's, such as `llama`."""
    if scaling is None:
        return
    if scaling.kind == "llama3":
        block.f32(_LLAMA3 + "factor", scaling.factor)
        block.f32(_LLAMA3 + "low_freq_factor", scaling.low_freq_factor)
        block.f32(_LLAMA3 + "high_freq_factor", scaling.high_freq_factor)
        block.u32(_LLAMA3 + "original_context_length", scaling.original_ctx)
        return
    block.text(f"{prefix}.rope.scaling.type", scaling.kind)
    block.f32(f"{prefix}.rope.scaling.factor", scaling.factor)
    if scaling.original_ctx:
        block.u32(f"{prefix}.rope.scaling.original_context_length", scaling.original_ctx)


def read_rope_keys(metadata: Metadata, prefix: str) -> RopeScaling | None:
    """The scaling a file states, in our keys, in llama.cpp's, or in those Toy's loader knows for llama3."""
    for home in (_LLAMA3, f"{prefix}.rope.scaling."):
        kind = "llama3" if home == _LLAMA3 else metadata.text(f"{home}type", "linear")
        factor = metadata.get(home + "factor")
        if not isinstance(factor, float) or kind not in KINDS or kind == "none":
            continue
        original = metadata.get(home + "original_context_length", 0)
        low, high = metadata.get(home + "low_freq_factor", 1.0), metadata.get(home + "high_freq_factor", 4.0)
        if isinstance(original, int) and isinstance(low, float) and isinstance(high, float):
            return RopeScaling(kind, factor, original, low, high)
    return None
