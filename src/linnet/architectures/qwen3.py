"""Qwen3: a llama that norms the heads of queries and keys (qk-norm) before it rotates them, by halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from linnet.architectures.checks import require
from linnet.architectures.description import Architecture, Transformers
from linnet.architectures.qwen2 import QwenFields
from linnet.architectures.rotary import ROTARY_NAMES, rotary_fields, rotary_keys, rotary_sizes


@dataclass(frozen=True)
class Qwen3Config(QwenFields):
    """A Qwen3: a llama with qk-norm, an RMSNorm over each head of queries and keys."""

    arch: ClassVar[str] = "qwen3"
    qkv_bias: ClassVar[bool] = False


def _from_transformers(config: Any) -> Qwen3Config:
    require(config, "use_sliding_window", False)
    require(config, "attention_bias", False)
    return Qwen3Config(**rotary_fields(config))


QWEN3 = Architecture(
    name="qwen3",
    model="Qwen3",
    config=Qwen3Config,
    task="text",
    # The head size is always said: transformers takes 128 for a file that does not.
    keys=rotary_keys(lambda config: int(config.head_size)),
    parameters="""
        token_embd.weight            vocab d    ~0.02  token_embd.weight
        output_norm.weight           d          1      output_norm.weight
        output.weight?!tied          vocab d    ~0.02  output.weight
        blocks.#.attn_norm.weight    d          1      blk.#.attn_norm.weight
        blocks.#.attn_qkv.weight     q+kv+kv d  ~/d    blk.#.attn_{q,k,v}.weight
        blocks.#.attn_q_norm.weight  head       1      blk.#.attn_q_norm.weight
        blocks.#.attn_k_norm.weight  head       1      blk.#.attn_k_norm.weight
        blocks.#.attn_output.weight  d q        ~/d    blk.#.attn_output.weight
        blocks.#.ffn_norm.weight     d          1      blk.#.ffn_norm.weight
        blocks.#.ffn_gate_up.weight  ff+ff d    ~/d    blk.#.ffn_{gate,up}.weight
        blocks.#.ffn_down.weight     d ff       ~/ff   blk.#.ffn_down.weight
    """,
    sizes=rotary_sizes,
    presets={
        "qwen3-0.6b": Qwen3Config(
            vocab=151936, d_model=1024, n_heads=16, n_kv=8, d_ff=3072, n_layers=28, ctx=40960, head_dim=128
        ),
    },
    transformers=Transformers(
        _from_transformers,
        f"""
        {ROTARY_NAMES}
        blocks.#.attn_q_norm  model.layers.#.self_attn.q_norm
        blocks.#.attn_k_norm  model.layers.#.self_attn.k_norm
        """,
    ),
    rope="halves",
)
