"""Qwen2: a llama with biases on queries, keys and values, whose heads are rotated by halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from linnet.architectures.checks import require
from linnet.architectures.description import Architecture, Transformers
from linnet.architectures.rotary import (
    ROTARY_NAMES,
    RotaryFields,
    rope_scaling_of,
    rotary_fields,
    rotary_keys,
    rotary_sizes,
)
from linnet.errors import UsageError


@dataclass(frozen=True)
class QwenFields(RotaryFields):
    """What Qwen2 and Qwen3 share: their defaults, and no biases behind the attention."""

    rope_base: float = 1e6
    rms_eps: float = 1e-6

    arch: ClassVar[str]
    output_bias: ClassVar[bool] = False
    ffn_bias: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # llama.cpp reads no `rope_freqs.weight` of these architectures, in which llama-3's scaling would stand.
        scaling = rope_scaling_of(self)
        if scaling is not None and scaling.kind == "llama3":
            raise UsageError(f"rope_scaling 'llama3' does not belong to a {self.arch}: use linear or none")


@dataclass(frozen=True)
class Qwen2Config(QwenFields):
    """A Qwen2: a llama with biases on queries, keys and values."""

    arch: ClassVar[str] = "qwen2"
    qkv_bias: ClassVar[bool] = True


def _from_transformers(config: Any) -> Qwen2Config:
    require(config, "use_sliding_window", False)
    return Qwen2Config(**rotary_fields(config))


QWEN2 = Architecture(
    name="qwen2",
    model="Qwen2",
    config=Qwen2Config,
    task="text",
    keys=rotary_keys(),
    parameters="""
        token_embd.weight            vocab d    ~0.02  token_embd.weight
        output_norm.weight           d          1      output_norm.weight
        output.weight?!tied          vocab d    ~0.02  output.weight
        blocks.#.attn_norm.weight    d          1      blk.#.attn_norm.weight
        blocks.#.attn_qkv.weight     q+kv+kv d  ~/d    blk.#.attn_{q,k,v}.weight
        blocks.#.attn_qkv.bias       q+kv+kv    0      blk.#.attn_{q,k,v}.bias
        blocks.#.attn_output.weight  d q        ~/d    blk.#.attn_output.weight
        blocks.#.ffn_norm.weight     d          1      blk.#.ffn_norm.weight
        blocks.#.ffn_gate_up.weight  ff+ff d    ~/d    blk.#.ffn_{gate,up}.weight
        blocks.#.ffn_down.weight     d ff       ~/ff   blk.#.ffn_down.weight
    """,
    sizes=rotary_sizes,
    presets={
        "qwen2-0.5b": Qwen2Config(vocab=151936, d_model=896, n_heads=14, n_kv=2, d_ff=4864, n_layers=24, ctx=32768),
    },
    transformers=Transformers(_from_transformers, ROTARY_NAMES),
    rope="halves",
)
