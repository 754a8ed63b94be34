"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from linnet.architectures.description import Architecture, Transformers
from linnet.architectures.rotary import ROTARY_NAMES, RotaryFields, rotary_fields, rotary_keys, rotary_sizes


@dataclass(frozen=True)
class LlamaConfig(RotaryFields):
    """A llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

    Args:
        qkv_bias: Biases on queries, keys and values (llama; a qwen2 has them).
    """

    arch: ClassVar[str] = "llama"
    qkv_bias: bool = False
    output_bias: bool = False  # of the attention's output projection
    ffn_bias: bool = False


def _from_transformers(config: Any) -> LlamaConfig:
    bias = config.attention_bias
    return LlamaConfig(**rotary_fields(config), qkv_bias=bias, output_bias=bias, ffn_bias=config.mlp_bias)


LLAMA = Architecture(
    name="llama",
    model="Llama",
    config=LlamaConfig,
    task="text",
    keys=rotary_keys(),
    parameters="""
        token_embd.weight                      vocab d    ~0.02  token_embd.weight
        output_norm.weight                     d          1      output_norm.weight
        output.weight?!tied                    vocab d    ~0.02  output.weight
        rope_freqs.weight?                     head/2     1      rope_freqs.weight
        blocks.#.attn_norm.weight              d          1      blk.#.attn_norm.weight
        blocks.#.attn_qkv.weight               q+kv+kv d  ~/d    blk.#.attn_{q,k,v}.weight
        blocks.#.attn_qkv.bias?qkv_bias        q+kv+kv    0      blk.#.attn_{q,k,v}.bias
        blocks.#.attn_output.weight            d q        ~/d    blk.#.attn_output.weight
        blocks.#.attn_output.bias?output_bias  d          0      blk.#.attn_output.bias
        blocks.#.ffn_norm.weight               d          1      blk.#.ffn_norm.weight
        blocks.#.ffn_gate_up.weight            ff+ff d    ~/d    blk.#.ffn_{gate,up}.weight
        blocks.#.ffn_gate_up.bias?ffn_bias     ff+ff      0      blk.#.ffn_{gate,up}.bias
        blocks.#.ffn_down.weight               d ff       ~/ff   blk.#.ffn_down.weight
        blocks.#.ffn_down.bias?ffn_bias        d          0      blk.#.ffn_down.bias
    """,
    sizes=rotary_sizes,
    presets={
        # Toy's shape.
        "tiny": LlamaConfig(vocab=627, d_model=64, n_heads=4, n_kv=4, d_ff=128, n_layers=2, ctx=32),
        # 1M: a first look at a text, in seconds.
        "micro": LlamaConfig(vocab=2048, d_model=128, n_heads=4, n_kv=2, d_ff=352, n_layers=4, ctx=256),
        # About 3M at this vocabulary: learns visibly in a minute or two on two cores.
        "demo": LlamaConfig(vocab=4096, d_model=192, n_heads=6, n_kv=2, d_ff=512, n_layers=6, ctx=256),
        "nano": LlamaConfig(vocab=32000, d_model=288, n_heads=6, n_kv=6, d_ff=768, n_layers=6, ctx=512),
        # 50M: what one GPU trains in an hour.
        "small": LlamaConfig(vocab=16384, d_model=512, n_heads=8, n_kv=4, d_ff=1408, n_layers=14, ctx=1024),
        "smollm2-135m": LlamaConfig(
            vocab=49152, d_model=576, n_heads=9, n_kv=3, d_ff=1536, n_layers=30, ctx=8192, rope_base=1e5
        ),
        "smollm2-360m": LlamaConfig(
            vocab=49152, d_model=960, n_heads=15, n_kv=5, d_ff=2560, n_layers=32, ctx=8192, rope_base=1e5
        ),
    },
    transformers=Transformers(_from_transformers, ROTARY_NAMES),
    rope="pairs",
    toy_format="toy-from-scratch/v1",
)
