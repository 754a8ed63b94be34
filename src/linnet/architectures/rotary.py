"""What llama and its kin share: rotary positions, RMSNorm, grouped-query attention, a gated feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from linnet.architectures.checks import check_counts, check_positive, check_rotary_heads
from linnet.architectures.description import TEXT_KEYS, Key
from linnet.architectures.rope_scaling import RopeScaling, rope_scaling_of


@dataclass(frozen=True)
class RotaryFields:
    """The hyper-parameters of such a model."""

    vocab: int
    d_model: int
    n_heads: int
    n_kv: int
    d_ff: int
    n_layers: int
    ctx: int
    rope_base: float = 10000.0
    rms_eps: float = 1e-5
    head_dim: int = 0  # 0: d_model / n_heads
    rope_scaling: RopeScaling | None = None
    tied: bool = True  # the output head is the embedding

    def __post_init__(self) -> None:
        check_counts(self, "vocab", "d_model", "n_heads", "n_kv", "d_ff", "n_layers", "ctx")
        check_positive(self, "rope_base", "rms_eps")
        check_rotary_heads(self)
        rope_scaling_of(self)

    @property
    def head_size(self) -> int:
        """Values of one attention head."""
        return self.head_dim or self.d_model // self.n_heads


def head_size_unless_shared(config: Any) -> int | None:
    """The head size where it is not the width shared out: llama.cpp divides where a file does not say."""
    return config.head_size if config.head_size * config.n_heads != config.d_model else None


def rotary_keys(stated_head: Callable[[Any], int | None] = head_size_unless_shared) -> tuple[Key, ...]:
    """The metadata keys; `stated_head` says which head size is written, or None to leave it out."""
    return (
        *TEXT_KEYS,
        Key("attention.head_count_kv", "n_kv", per_layer=True, default=lambda known: known["n_heads"]),
        Key("attention.layer_norm_rms_epsilon", "rms_eps", "f32", required=True),
        Key("rope.freq_base", "rope_base", "f32"),
        Key("rope.dimension_count", value=lambda config: config.head_size),
        Key(
            "attention.key_length",
            "head_dim",
            value=stated_head,
            default=lambda known: known["d_model"] // known["n_heads"],
        ),
        Key("attention.value_length", value=stated_head),
    )


def rotary_sizes(config: Any) -> dict[str, int]:
    """The words of the shapes."""
    head = config.head_size
    return {
        "vocab": config.vocab,
        "d": config.d_model,
        "ff": config.d_ff,
        "q": config.n_heads * head,
        "kv": config.n_kv * head,
        "head": head,
        "head/2": head // 2,
    }
