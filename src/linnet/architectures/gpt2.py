"""GPT-2: LayerNorm, learned positions, GELU, a bias on every matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from linnet.architectures.checks import check_counts, check_heads, check_positive, require
from linnet.architectures.description import TEXT_KEYS, Architecture, Key, Transformers


@dataclass(frozen=True)
class GPT2Config:
    """A GPT-2: LayerNorm, learned positions, GELU, biases everywhere."""

    arch: ClassVar[str] = "gpt2"
    vocab: int
    d_model: int
    n_heads: int
    d_ff: int
    n_layers: int
    ctx: int
    norm_eps: float = 1e-5
    tied: bool = True  # the output head is the embedding

    def __post_init__(self) -> None:
        check_counts(self, "vocab", "d_model", "n_heads", "d_ff", "n_layers", "ctx")
        check_positive(self, "norm_eps")
        check_heads(self)

    @property
    def n_kv(self) -> int:
        """Every head has keys and values of its own."""
        return self.n_heads

    @property
    def head_size(self) -> int:
        """Values of one attention head."""
        return self.d_model // self.n_heads


def _sizes(config: Any) -> dict[str, int]:
    d = config.d_model
    return {"vocab": config.vocab, "ctx": config.ctx, "d": d, "3d": 3 * d, "ff": config.d_ff}


def _from_transformers(config: Any) -> GPT2Config:
    require(config, "activation_function", "gelu_new", "gelu_pytorch_tanh")
    require(config, "scale_attn_by_inverse_layer_idx", False)
    return GPT2Config(
        config.vocab_size,
        config.n_embd,
        config.n_head,
        config.n_inner or 4 * config.n_embd,
        config.n_layer,
        config.n_positions,
        config.layer_norm_epsilon,
        tied=config.tie_word_embeddings,
    )


GPT2 = Architecture(
    name="gpt2",
    model="GPT2",
    config=GPT2Config,
    task="text",
    keys=(*TEXT_KEYS, Key("attention.layer_norm_epsilon", "norm_eps", "f32", required=True)),
    parameters="""
        token_embd.weight             vocab d     ~0.02  token_embd.weight
        position_embd.weight          ctx d       ~0.02  position_embd.weight
        output_norm.weight            d           1      output_norm.weight
        output_norm.bias              d           0      output_norm.bias
        output.weight?!tied           vocab d     ~0.02  output.weight
        blocks.#.attn_norm.weight     d           1      blk.#.attn_norm.weight
        blocks.#.attn_norm.bias       d           0      blk.#.attn_norm.bias
        blocks.#.attn_qkv.weight      3d d        ~/d    blk.#.attn_qkv.weight
        blocks.#.attn_qkv.bias        3d          0      blk.#.attn_qkv.bias
        blocks.#.attn_output.weight   d d         ~/d    blk.#.attn_output.weight
        blocks.#.attn_output.bias     d           0      blk.#.attn_output.bias
        blocks.#.ffn_norm.weight      d           1      blk.#.ffn_norm.weight
        blocks.#.ffn_norm.bias        d           0      blk.#.ffn_norm.bias
        blocks.#.ffn_up.weight        ff d        ~/d    blk.#.ffn_up.weight
        blocks.#.ffn_up.bias          ff          0      blk.#.ffn_up.bias
        blocks.#.ffn_down.weight      d ff        ~/ff   blk.#.ffn_down.weight
        blocks.#.ffn_down.bias        d           0      blk.#.ffn_down.bias
    """,
    sizes=_sizes,
    presets={"gpt2-124m": GPT2Config(vocab=50257, d_model=768, n_heads=12, d_ff=3072, n_layers=12, ctx=1024)},
    transformers=Transformers(
        _from_transformers,
        """
        token_embd            transformer.wte
        position_embd         transformer.wpe
        output_norm           transformer.ln_f
        output                lm_head
        blocks.#.attn_norm    transformer.h.#.ln_1
        blocks.#.attn_qkv     transformer.h.#.attn.c_attn
        blocks.#.attn_output  transformer.h.#.attn.c_proj
        blocks.#.ffn_norm     transformer.h.#.ln_2
        blocks.#.ffn_up       transformer.h.#.mlp.c_fc
        blocks.#.ffn_down     transformer.h.#.mlp.c_proj
        """,
        transposed=True,
    ),
    tied_by_copy=True,  # files of 2024
)
