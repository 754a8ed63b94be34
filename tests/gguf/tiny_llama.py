"""A tiny random llama round a given vocabulary, written by gguf-py, since llama.cpp only opens models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import gguf

_WIDTH, _HEADS, _HIDDEN = 32, 2, 32


def write_tiny_llama(path: Path, block: Mapping[str, tuple[str, object]], name: str = "tiny") -> None:
    """Write a one-layer llama whose tokenizer is `block`, typed exactly as it says."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(64)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, (kind, value) in block.items():
        array, _, inner = kind.partition(":")
        if inner:
            writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, _gguf_type(inner))
        else:
            writer.add_key_value(key, value, _gguf_type(array))
    tokens = block["tokenizer.ggml.tokens"][1]
    assert isinstance(tokens, list)
    for tensor, shape in _shapes(len(tokens)).items():
        rng = np.random.default_rng(len(tensor))
        writer.add_tensor(tensor, rng.standard_normal(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plain(block: Mapping[str, tuple[str, object]]) -> dict[str, object]:
    """The block as a reader gives it back: values without their types."""
    return {key: value for key, (_, value) in block.items()}


def _gguf_type(name: str) -> gguf.GGUFValueType:
    names = {"u": "UINT", "i": "INT", "f": "FLOAT"}
    return gguf.GGUFValueType[names[name[0]] + name[1:] if name[1:].isdigit() else name.upper()]


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    layer = {
        "attn_norm": (_WIDTH,),
        "ffn_norm": (_WIDTH,),
        "attn_q": (_WIDTH, _WIDTH),
        "attn_k": (_WIDTH, _WIDTH),
        "attn_v": (_WIDTH, _WIDTH),
        "attn_output": (_WIDTH, _WIDTH),
        "ffn_gate": (_HIDDEN, _WIDTH),
        "ffn_up": (_HIDDEN, _WIDTH),
        "ffn_down": (_WIDTH, _HIDDEN),
    }
    return {
        "token_embd.weight": (vocabulary, _WIDTH),
        "output_norm.weight": (_WIDTH,),
        **{f"blk.0.{part}.weight": shape for part, shape in layer.items()},
    }
