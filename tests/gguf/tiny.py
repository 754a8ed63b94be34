"""Tiny models with random weights: a transformers model, and the same weights as Linnet keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from linnet.gguf import MetadataBlock, RopeScaling
from linnet.gguf.metadata import ValueType
from linnet.models import GPT2Config as OurGPT2Config
from linnet.models import LlamaConfig as OurLlamaConfig

VOCAB = 288


def byte_level_tokenizer(vocab: int = VOCAB) -> MetadataBlock:
    """A byte-level BPE of 256 bytes, some merges of two letters, and one end mark."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    merges = [f"{a} {b}" for a in "etaoinsr" for b in "htsdlmu"][: vocab - 257]
    tokens = [letters[byte] for byte in range(256)] + [merge.replace(" ", "") for merge in merges]
    tokens += [f"[PAD{n}]" for n in range(vocab - 1 - len(tokens))] + ["<|endoftext|>"]
    block = MetadataBlock().text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2")
    block.texts("tokenizer.ggml.tokens", tokens)
    block.add_array("tokenizer.ggml.token_type", ValueType.I32, [1] * (vocab - 1) + [3])
    block.texts("tokenizer.ggml.merges", merges)
    block.u32("tokenizer.ggml.bos_token_id", vocab - 1).u32("tokenizer.ggml.eos_token_id", vocab - 1)
    return block.flag("tokenizer.ggml.add_bos_token", False)


def prompts() -> list[list[int]]:
    """Token ids for short texts; every one is a printable byte or a merge."""
    return [[72, 101, 108, 108, 111], list(range(65, 90)), [116, 104, 101, 256, 257, 270]]


def llama_config(**changes: Any) -> OurLlamaConfig:
    sizes: dict[str, Any] = {
        "vocab": VOCAB,
        "d_model": 64,
        "n_heads": 4,
        "n_kv": 2,
        "d_ff": 96,
        "n_layers": 2,
        "ctx": 256,
    }
    return OurLlamaConfig(**(sizes | changes))


def llama(cfg: OurLlamaConfig, *, tied: bool = False, bias: bool = False, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """A random llama in transformers, and its parameters under our names."""
    torch.manual_seed(seed)
    head = cfg.head_dim or cfg.d_model // cfg.n_heads
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": cfg.rope_base}
    if cfg.rope_scaling:
        rope |= _hf_scaling(cfg.rope_scaling)
    config = LlamaConfig(
        vocab_size=cfg.vocab,
        hidden_size=cfg.d_model,
        intermediate_size=cfg.d_ff,
        num_hidden_layers=cfg.n_layers,
        num_attention_heads=cfg.n_heads,
        num_key_value_heads=cfg.n_kv,
        head_dim=head,
        max_position_embeddings=cfg.ctx,
        rms_norm_eps=cfg.rms_eps,
        rope_parameters=rope,
        tie_word_embeddings=tied,
        attention_bias=bias,
        mlp_bias=bias,
        initializer_range=0.15,
    )
    model = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():  # norms and biases start as ones and zeros: nothing would tell them apart
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            assert name
    weights = model.state_dict()
    params = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    if not tied:
        params["output.weight"] = weights["lm_head.weight"]
    for block in range(cfg.n_layers):
        ours, theirs = f"blocks.{block}.", f"model.layers.{block}."
        params[ours + "attn_norm.weight"] = weights[theirs + "input_layernorm.weight"]
        params[ours + "ffn_norm.weight"] = weights[theirs + "post_attention_layernorm.weight"]
        for half in ("weight", "bias") if bias else ("weight",):
            q, k, v = (weights[f"{theirs}self_attn.{x}_proj.{half}"] for x in "qkv")
            params[ours + f"attn_qkv.{half}"] = torch.cat([interleave(q, head), interleave(k, head), v])
            gate, up = (weights[f"{theirs}mlp.{x}_proj.{half}"] for x in ("gate", "up"))
            params[ours + f"ffn_gate_up.{half}"] = torch.cat([gate, up])
            params[ours + f"attn_output.{half}"] = weights[f"{theirs}self_attn.o_proj.{half}"]
            params[ours + f"ffn_down.{half}"] = weights[f"{theirs}mlp.down_proj.{half}"]
    return model, params


def interleave(rows: torch.Tensor, head: int) -> torch.Tensor:
    """transformers rotates the halves of a head, ggml neighbouring pairs: put those rows side by side."""
    return rows.reshape(-1, 2, head // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _hf_scaling(scaling: RopeScaling) -> dict[str, Any]:
    words: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind in ("yarn", "llama3"):
        words["original_max_position_embeddings"] = scaling.original_ctx
    if scaling.kind == "llama3":
        words |= {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
    return words


def gpt2_config(**changes: Any) -> OurGPT2Config:
    sizes: dict[str, Any] = {
        "vocab": VOCAB,
        "d_model": 64,
        "n_heads": 4,
        "d_ff": 128,
        "n_layers": 2,
        "ctx": 64,
    }
    return OurGPT2Config(**(sizes | changes))


def gpt2(cfg: OurGPT2Config, *, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """A random GPT-2 in transformers (tied, as GPT-2 is), and its parameters under our names."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=cfg.vocab,
        n_positions=cfg.ctx,
        n_embd=cfg.d_model,
        n_layer=cfg.n_layers,
        n_head=cfg.n_heads,
        n_inner=cfg.d_ff,
        layer_norm_epsilon=cfg.norm_eps,
        initializer_range=0.15,
    )
    model = GPT2LMHeadModel(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    weights = model.state_dict()
    names = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight"}
    params = {ours: weights[f"transformer.{theirs}"] for theirs, ours in names.items()}
    pairs = {
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    }
    for half in ("weight", "bias"):
        params[f"output_norm.{half}"] = weights[f"transformer.ln_f.{half}"]
        for block in range(cfg.n_layers):
            for theirs, ours in pairs.items():
                value = weights[f"transformer.h.{block}.{theirs}.{half}"]
                params[f"blocks.{block}.{ours}.{half}"] = value.T if value.ndim == 2 else value  # Conv1D is [in, out]
    return model, params


def reference(model: Any, prompts: list[list[int]]) -> np.ndarray:
    """The log-probabilities of the next token after each prompt, by transformers."""
    with torch.no_grad():
        rows = [model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1) for prompt in prompts]
    return torch.stack(rows).numpy()
