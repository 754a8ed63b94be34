"""Weights of a Llama, GPT-2 or ViT of the library `transformers` under our names; that library is not imported.

It turns the first half of a head against the second where ggml turns neighbours, so rows of Q and K change places;
its GPT-2 keeps matrices the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from linnet.errors import UsageError
from linnet.gguf.rope import RopeScaling
from linnet.models.config import Config, GPT2Config, LlamaConfig
from linnet.models.vit_config import ViTConfig


def from_transformers(model: Any) -> tuple[Config, dict[str, Tensor]]:
    """The config and parameters of a `LlamaForCausalLM` or `GPT2LMHeadModel`, as `linnet.gguf.write` takes them."""
    config = config_from_transformers(model.config)
    return config, params_from_transformers(config, model.state_dict())


def config_from_transformers(config: Any) -> Config:
    """Our config for one of `transformers`; what our models cannot do is refused by name."""
    kind = getattr(config, "model_type", None)
    if kind == "gpt2":
        _require(config, "activation_function", "gelu_new", "gelu_pytorch_tanh")
        _require(config, "scale_attn_by_inverse_layer_idx", False)
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
    if kind != "llama":
        raise UsageError(f"a transformers model of type {kind!r} cannot be taken over: only llama and gpt2 can")
    _require(config, "hidden_act", "silu")
    base, scaling = _rope(config)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return LlamaConfig(
        vocab=config.vocab_size,
        d_model=config.hidden_size,
        n_heads=config.num_attention_heads,
        n_kv=config.num_key_value_heads,
        d_ff=config.intermediate_size,
        n_layers=config.num_hidden_layers,
        ctx=config.max_position_embeddings,
        rope_base=base,
        rms_eps=config.rms_norm_eps,
        head_dim=0 if head * config.num_attention_heads == config.hidden_size else head,
        rope_scaling=scaling,
        tied=config.tie_word_embeddings,
        qkv_bias=config.attention_bias,
        output_bias=config.attention_bias,
        ffn_bias=config.mlp_bias,
    )


def params_from_transformers(config: Config, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A `state_dict` of `transformers` by our names."""
    if isinstance(config, GPT2Config):
        return _gpt2(config, state)
    return _llama(config, state)


def _llama(config: LlamaConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    params = {"token_embd.weight": state["model.embed_tokens.weight"], "output_norm.weight": state["model.norm.weight"]}
    if not config.tied:
        params["output.weight"] = state["lm_head.weight"]
    for layer in range(config.n_layers):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        params[ours + "attn_norm.weight"] = state[theirs + "input_layernorm.weight"]
        params[ours + "ffn_norm.weight"] = state[theirs + "post_attention_layernorm.weight"]
        for kind in ("weight", "bias"):
            if theirs + f"self_attn.q_proj.{kind}" in state:
                q, k, v = (state[theirs + f"self_attn.{name}_proj.{kind}"] for name in "qkv")
                q, k = _neighbours(q, config.n_heads), _neighbours(k, config.n_kv)
                params[ours + f"attn_qkv.{kind}"] = torch.cat((q, k, v))
            if theirs + f"self_attn.o_proj.{kind}" in state:
                params[ours + f"attn_output.{kind}"] = state[theirs + f"self_attn.o_proj.{kind}"]
            if theirs + f"mlp.gate_proj.{kind}" in state:
                gate, up = (state[theirs + f"mlp.{name}_proj.{kind}"] for name in ("gate", "up"))
                params[ours + f"ffn_gate_up.{kind}"] = torch.cat((gate, up))
                params[ours + f"ffn_down.{kind}"] = state[theirs + f"mlp.down_proj.{kind}"]
    return params


def _gpt2(config: GPT2Config, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    params = {
        "token_embd.weight": state["transformer.wte.weight"],
        "position_embd.weight": state["transformer.wpe.weight"],
        "output_norm.weight": state["transformer.ln_f.weight"],
        "output_norm.bias": state["transformer.ln_f.bias"],
    }
    if not config.tied:
        params["output.weight"] = state["lm_head.weight"]
    names = {"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
    for layer in range(config.n_layers):
        ours, theirs = f"blocks.{layer}.", f"transformer.h.{layer}."
        for our, their in {"attn_norm": "ln_1", "ffn_norm": "ln_2"}.items():
            for kind in ("weight", "bias"):
                params[f"{ours}{our}.{kind}"] = state[f"{theirs}{their}.{kind}"]
        for our, their in names.items():
            params[f"{ours}{our}.weight"] = state[f"{theirs}{their}.weight"].T.contiguous()
            params[f"{ours}{our}.bias"] = state[f"{theirs}{their}.bias"]
    return params


def vit_from_transformers(model: Any) -> tuple[ViTConfig, dict[str, Tensor]]:
    """The config and parameters of a `ViTForImageClassification`, as `linnet.gguf.write` takes them."""
    theirs = model.config
    _require(theirs, "model_type", "vit")
    _require(theirs, "hidden_act", "gelu_pytorch_tanh", "gelu_new")
    _require(theirs, "qkv_bias", True)
    names = getattr(theirs, "id2label", None) or {}
    config = ViTConfig(
        image_size=theirs.image_size,
        patch_size=theirs.patch_size,
        d_model=theirs.hidden_size,
        n_heads=theirs.num_attention_heads,
        d_ff=theirs.intermediate_size,
        n_layers=theirs.num_hidden_layers,
        num_classes=theirs.num_labels,
        num_channels=theirs.num_channels,
        pooling="cls",
        norm_eps=theirs.layer_norm_eps,
        labels=tuple(str(names[number]) for number in sorted(names)),
    )
    return config, _vit(config, {name.removeprefix("vit."): tensor for name, tensor in model.state_dict().items()})


def _vit(config: ViTConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    params = {
        "class_embd": state["embeddings.cls_token"].flatten(),
        "position_embd.weight": state["embeddings.position_embeddings"][0],
    }
    names = {
        "patch_embd": "embeddings.patch_embeddings.projection",
        "post_ln": "layernorm",
        "head": "classifier",
    }
    own = {"ln1": "layernorm_before", "attn_out": "attention.o_proj", "ln2": "layernorm_after"}
    own |= {"ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}
    for layer in range(config.n_layers):
        names |= {f"blocks.{layer}.{our}": f"layers.{layer}.{their}" for our, their in own.items()}
        for kind in ("weight", "bias"):
            parts = [state[f"layers.{layer}.attention.{word}_proj.{kind}"] for word in "qkv"]
            params[f"blocks.{layer}.attn_qkv.{kind}"] = torch.cat(parts)
    for our, their in names.items():
        for kind in ("weight", "bias"):
            params[f"{our}.{kind}"] = state[f"{their}.{kind}"]
    return params


def _neighbours(rows: Tensor, heads: int) -> Tensor:
    """Rows of Q or K from half-split to interleaved pairs: row i of each half becomes rows 2i and 2i + 1."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


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


def _require(config: Any, field: str, *known: object) -> None:
    found = getattr(config, field, known[0])
    if found not in known:
        raise UsageError(f"{field} {found!r} cannot be taken over: only {' or '.join(map(str, known))}")
