"""The GGUF file: parse, write, tensor names, tokenizer block, quantised blocks. No torch at import.

`blocks`, `card`, `check`, `convert` and `tokenizer` are modules; the other names live in them.
"""

from linnet._lazy import lazy as _lazy

_HOMES = {
    "Card": "linnet.gguf.card",
    "Finding": "linnet.gguf.check",
    "Found": "linnet.gguf.locate",
    "GGMLType": "linnet.gguf.types",
    "GGUFError": "linnet.gguf.errors",
    "GGUFFile": "linnet.gguf.file",
    "GGUFWriter": "linnet.gguf.writer",
    "GPT2": "linnet.gguf.architecture",
    "Layout": "linnet.gguf.names",
    "Llama": "linnet.gguf.architecture",
    "MetadataBlock": "linnet.gguf.metadata",
    "Provenance": "linnet.gguf.checkpoint",
    "RopeScaling": "linnet.gguf.rope",
    "TensorInfo": "linnet.gguf.tensor",
    "ValueType": "linnet.gguf.values",
    "ViT": "linnet.gguf.architecture",
    "adapter_layout": "linnet.gguf.names",
    "architecture_of": "linnet.gguf.architecture",
    "blocks": "linnet.gguf.blocks",
    "card": "linnet.gguf.card",
    "check": "linnet.gguf.check",
    "convert": "linnet.gguf.convert",
    "dequantize": "linnet.gguf.blocks",
    "donor_keys": "linnet.gguf.tokenizer",
    "find_models": "linnet.gguf.locate",
    "layout": "linnet.gguf.names",
    "point_link": "linnet.gguf.link",
    "quantize_q8_0": "linnet.gguf.blocks",
    "read_card": "linnet.gguf.card",
    "read_lens": "linnet.gguf.toy",
    "read_params": "linnet.gguf.checkpoint",
    "rebuild_tokenizer": "linnet.gguf.tokenizer",
    "resolve_link": "linnet.gguf.link",
    "tokenizer": "linnet.gguf.tokenizer",
    "tokenizer_block": "linnet.gguf.tokenizer_write",
    "train_tokenizer": "linnet.gguf.tokenizer_write",
    "write": "linnet.gguf.checkpoint",
    "write_adapter": "linnet.gguf.checkpoint",
    "write_step": "linnet.gguf.checkpoint",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = _lazy(__name__, _HOMES)
