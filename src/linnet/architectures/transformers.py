"""What a description says of the same model in the library `transformers`; that library is not imported.

It turns the first half of a head against the second where ggml turns neighbours, so rows of Q and K may change places;
its GPT-2 keeps matrices the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from linnet.architectures.rope_scaling import RopeScaling
from linnet.errors import UsageError


@dataclass(frozen=True)
class Transformers:
    """How to take over a model of the type (`model_type`) that is named as the architecture.

    - `config`: its config as ours; what our models cannot do is refused by name.
    - `names`: a table, a line each, of our modules and theirs; `{q,k,v}` for several stacked by rows.
    - `transposed`: the matrices of blocks are [in, out].
    """

    config: Callable[[Any], Any]
    names: str
    transposed: bool = False


# The modules of a model with rotary positions, RMSNorm and a gated feed-forward.
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
    """The fields of a config with rotary positions, RMSNorm and a gated feed-forward."""
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


def require(config: Any, field: str, *known: object) -> None:
    """Refuse a value of a field that our models do not know; a field that is not there has the first one."""
    found = getattr(config, field, known[0])
    if found not in known:
        raise UsageError(f"{field} {found!r} cannot be taken over: only {' or '.join(map(str, known))}")


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
