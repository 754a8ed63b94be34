"""Where a GGUF file says how rotary angles are scaled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from linnet.architectures.rope_scaling import KINDS, RopeScaling, rope_scaling_of
from linnet.gguf.metadata import Metadata, MetadataBlock

if TYPE_CHECKING:
    from numpy.typing import NDArray

# llama.cpp knows no type "llama3" (it aborts on the word) and would apply a bare factor linearly; the whole
# effect is in the tensor rope_freqs.weight. What it was made from is kept for resuming, under our own keys.
_LLAMA3 = "linnet.rope.llama3."


def rope_divisors(scaling: RopeScaling, head_dim: int, base: float) -> NDArray[np.float32]:
    """For llama3 scaling, what `rope_freqs.weight` [head_dim / 2] holds: the divisor of each pair's angle."""
    angles = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelength = 2 * math.pi / angles
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = np.clip((scaling.original_ctx / wavelength - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / scaling.factor + smooth)).astype(np.float32)


def add_rope_keys(block: MetadataBlock, prefix: str, config: object) -> None:
    """The metadata of a config's scaling; `prefix` is the architecture's, such as `llama`."""
    scaling = rope_scaling_of(config)
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
