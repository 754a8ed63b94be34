"""What llama and its kin share: rotary positions, RMSNorm, grouped-query attention, a gated feed-forward."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from linnet.architectures.checks import check_counts, check_positive, check_rotary_heads, require
from linnet.architectures.description import TEXT_KEYS, Config, Key, unless
from linnet.errors import UsageError

# ruff: noqa: D102 (the attributes of the protocol are described where they are defined, in the configs)

ROPE_SCALINGS = ("none", "linear", "yarn", "llama3")


@dataclass(frozen=True)
class RopeScaling:
    """Rotary angles for longer texts: `linear` divides all by `factor`; `yarn` and `llama3` spare the quick ones."""

    kind: str
    factor: float
    original_ctx: int = 0  # yarn and llama3: the context before scaling
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3

    def __post_init__(self) -> None:
        if self.kind not in ROPE_SCALINGS:
            raise _scaling_error("unknown rope scaling", " or ".join(ROPE_SCALINGS), ascii(self.kind)[:80])
        if self.kind != "none" and not 0 < self.factor < math.inf:
            raise _scaling_error("wrong factor", "above 0", str(self.factor))
        if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor < math.inf:
            expected = "low_freq_factor above 0 and below high_freq_factor"
            raise _scaling_error("wrong factors", expected, f"{self.low_freq_factor} and {self.high_freq_factor}")
        if self.kind in ("yarn", "llama3") and self.original_ctx < 1:
            expected = f"the context before scaling, for {self.kind}"
            raise _scaling_error("no original_ctx", expected, str(self.original_ctx))


def rope_scaling_of(config: object) -> RopeScaling | None:
    """The scaling of a config: its `rope_scaling`, where None and "none" mean there is none, as does no such field."""
    scaling: Any = getattr(config, "rope_scaling", None)
    if scaling is None or scaling == "none":
        return None
    if isinstance(scaling, RopeScaling):
        return None if scaling.kind == "none" else scaling
    raise _scaling_error("not understood", "a RopeScaling or None", ascii(repr(scaling))[:80])


def _scaling_error(problem: str, expected: str, found: str) -> UsageError:
    return UsageError(f"rope_scaling: {problem}; expected {expected}, found {found}")


class RotaryConfig(Config, Protocol):
    """The hyper-parameters of a language model with rotary positions, RMSNorm and a gated feed-forward."""

    @property
    def rope_base(self) -> float: ...
    @property
    def rms_eps(self) -> float: ...
    @property
    def rope_scaling(self) -> RopeScaling | None: ...
    @property
    def qkv_bias(self) -> bool: ...
    @property
    def output_bias(self) -> bool: ...
    @property
    def ffn_bias(self) -> bool: ...


@dataclass(frozen=True)
class RotaryFields:
    """The fields of every such config; those with a help text here are flags of `linnet train`.

    Args:
        vocab: Tokens; a tokenizer of so many is trained, unless one is given.
        d_model: Width.
        n_layers: Depth.
        n_heads: Attention heads.
        n_kv: Heads of keys and values.
        d_ff: Width of the feed-forward part.
        ctx: Tokens of a sequence.
        head_dim: Size of a head; d_model / n_heads by default.
        rope_base: Base of the rotary angles.
        rms_eps: Added under the root of the norm.
    """

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
    # The output head is the embedding.
    tied: bool = unless("untied", "Give the output a matrix of its own instead of the embedding's.")

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


def _shared_head(known: Mapping[str, Any]) -> int:
    return int(known["d_model"] // known["n_heads"])


def rotary_keys(stated_head: Callable[[Any], int | None] = head_size_unless_shared) -> tuple[Key, ...]:
    """The metadata keys; `stated_head` says which head size is written, or None to leave it out."""
    return (
        *TEXT_KEYS,
        Key("attention.head_count_kv", "n_kv", per_layer=True, default=lambda known: known["n_heads"]),
        Key("attention.layer_norm_rms_epsilon", "rms_eps", "f32", required=True),
        Key("rope.freq_base", "rope_base", "f32"),
        Key("rope.dimension_count", value=lambda config: config.head_size),
        Key("attention.key_length", "head_dim", value=stated_head, default=_shared_head),
        Key("attention.value_length", value=stated_head),
    )


def rotary_sizes(config: Any) -> dict[str, int]:
    """The words of the shapes."""
    head = config.head_size
    widths = {"vocab": config.vocab, "d": config.d_model, "ff": config.d_ff}
    return widths | {"q": config.n_heads * head, "kv": config.n_kv * head, "head": head, "head/2": head // 2}


# -- the same model in the library `transformers` ---------------------------------------------------------------------

ROTARY_NAMES = """
    token_embd            model.embed_tokens
    output_norm           model.norm
    output                lm_head
    blocks.#.attn_norm    model.layers.#.input_layernorm
    blocks.#.attn_qkv     model.layers.#.self_attn.{q,k,v}_proj
    blocks.#.attn_output  model.layers.#.self_attn.o_proj
    blocks.#.ffn_norm     model.layers.#.post_attention_layernorm
    blocks.#.ffn_gate_up  model.layers.#.mlp.{gate,up}_proj
    blocks.#.ffn_down     model.layers.#.mlp.down_proj
"""


def rotary_fields(config: Any) -> dict[str, Any]:
    """The fields of `RotaryFields` out of a config of `transformers`."""
    require(config, "hidden_act", "silu")
    base, scaling = _rope(config)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "vocab": config.vocab_size,
        "d_model": config.hidden_size,
        "n_heads": config.num_attention_heads,
        "n_kv": config.num_key_value_heads,
        "d_ff": config.intermediate_size,
        "n_layers": config.num_hidden_layers,
        "ctx": config.max_position_embeddings,
        "rope_base": base,
        "rms_eps": config.rms_norm_eps,
        "head_dim": 0 if head * config.num_attention_heads == config.hidden_size else head,
        "rope_scaling": scaling,
        "tied": config.tie_word_embeddings,
    }


def _rope(config: Any) -> tuple[float, RopeScaling | None]:
    """Base and scaling; from version 5 on both are in `rope_parameters`."""
    stated = getattr(config, "rope_parameters", None) or {}
    base = float(stated.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0)
    scaling = stated or getattr(config, "rope_scaling", None) or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return base, None
    if kind == "linear":
        return base, RopeScaling("linear", float(scaling["factor"]))
    if kind == "llama3":
        original = int(scaling["original_max_position_embeddings"])
        low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
        return base, RopeScaling("llama3", float(scaling["factor"]), original, low, high)
    raise UsageError(f"rope scaling {kind!r} cannot be taken over: only linear and llama3 can")
