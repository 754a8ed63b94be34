"""A llama of `transformers` in the shape of one of ours."""

from typing import Any


def peer_llama(config: Any, ctx: int, **more: Any) -> Any:
    """`LlamaForCausalLM` as a `linnet.models.LlamaConfig` says, for sequences of `ctx`; `more` goes to its config."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv,
            max_position_embeddings=ctx,
            tie_word_embeddings=config.tied,
            **more,
        )
    )
