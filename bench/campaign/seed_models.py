"""Sound GGUF files, tiny and always the same: what the campaign of hostile files mutates."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from linnet.architectures import GPT2Config, LlamaConfig, ViTConfig
from linnet.gguf import MetadataBlock, layout, write
from linnet.gguf.metadata import ValueType
from linnet.gguf.tensor import GGMLType

VOCAB = 288
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
# Types that only a reader knows, on rows of 256 values: their blocks are filled with random bytes.
_READ_ONLY = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")


def seed_models() -> dict[str, Callable[[Path], None]]:
    """What writes each file, by name. `vit…` tell images apart, `lens` is a donor's axes, the others write text."""
    llama = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=64, n_layers=2, ctx=64)
    wide = LlamaConfig(vocab=VOCAB, d_model=256, n_heads=4, n_kv=2, d_ff=256, n_layers=1, ctx=64)
    gpt2 = GPT2Config(vocab=VOCAB, d_model=32, n_heads=4, d_ff=64, n_layers=2, ctx=64)
    vit = ViTConfig(
        image_size=8, patch_size=4, d_model=32, n_heads=4, d_ff=64, n_layers=2, num_classes=3, num_channels=1
    )
    cls = ViTConfig(
        image_size=8, patch_size=4, d_model=32, n_heads=4, d_ff=64, n_layers=1, num_classes=3, pooling="cls"
    )
    found: dict[str, Callable[[Path], None]] = {
        "llama": lambda path: _write(llama, path, tokenizer=byte_pairs()),
        "llama-spm": lambda path: _write(llama, path, tokenizer=pieces()),
        "llama-bf16": lambda path: _write(llama, path, tokenizer=byte_pairs(), type="bf16"),
        "llama-q8_0": lambda path: _write(llama, path, tokenizer=byte_pairs(), type="q8_0"),
        "llama-bare": lambda path: _write(llama, path),
        "gpt2": lambda path: _write(gpt2, path, tokenizer=byte_pairs()),
        "gpt2-f16": lambda path: _write(gpt2, path, tokenizer=byte_pairs(), type="f16"),
        "vit": lambda path: _write(vit, path),
        "vit-cls": lambda path: _write(cls, path, also="class_embd"),
        "lens": _write_lens,
    }
    for name in _READ_ONLY:
        found[f"llama-{name.lower()}"] = lambda path, name=name: _write_blocks(wide, path, GGMLType[name])
    return found


def byte_pairs() -> MetadataBlock:
    """A byte-level BPE of 256 bytes, some merges of two letters, and one end mark."""
    others = [byte for byte in range(256) if byte not in _PRINTABLE]
    letters = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    merges = [f"{a} {b}" for a in "etaoinsr" for b in "htsdlmu"][: VOCAB - 257]
    tokens = [letters[byte] for byte in range(256)] + [merge.replace(" ", "") for merge in merges]
    block = MetadataBlock().text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2")
    block.texts("tokenizer.ggml.tokens", [*tokens, "<|endoftext|>"])
    block.add_array("tokenizer.ggml.token_type", ValueType.I32, [1] * (VOCAB - 1) + [3])
    block.texts("tokenizer.ggml.merges", merges)
    block.u32("tokenizer.ggml.bos_token_id", VOCAB - 1).u32("tokenizer.ggml.eos_token_id", VOCAB - 1)
    return block.flag("tokenizer.ggml.add_bos_token", False)


def pieces() -> MetadataBlock:
    """A SentencePiece vocabulary: three marks, 256 bytes, some letters and syllables with scores."""
    marks = ["<unk>", "<s>", "</s>"]
    words = [*"▁etaoinsrhl", *(a + b for a in "▁te" for b in "haonisre")][: VOCAB - 259]
    tokens = [*marks, *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    block = MetadataBlock().text("tokenizer.ggml.model", "llama").text("tokenizer.ggml.pre", "default")
    block.texts("tokenizer.ggml.tokens", tokens)
    block.add_array("tokenizer.ggml.scores", ValueType.F32, [0.0] * 259 + [-float(n) for n in range(len(words))])
    block.add_array("tokenizer.ggml.token_type", ValueType.I32, [2, 3, 3] + [6] * 256 + [1] * len(words))
    block.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2)
    return block.u32("tokenizer.ggml.unknown_token_id", 0).flag("tokenizer.ggml.add_bos_token", True)


def _write(cfg: Any, path: Path, also: str = "", **options: Any) -> None:
    """Random weights; `also`: a parameter that not every model of the kind has."""
    chance = np.random.default_rng(0)
    shapes = {name: param.shape for name, param in layout(cfg).params.items() if name == also or not param.optional}
    params = {name: chance.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    write(cfg, params, path, "seed", 1, **options)


def _write_lens(path: Path) -> None:
    from linnet.gguf import Lens, write_lens

    write_lens(Lens(np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32), "donor.gguf"), path)


def _write_blocks(cfg: LlamaConfig, path: Path, kind: GGMLType) -> None:
    from bench.campaign.gguf_parts import GGUFParts

    _write(cfg, path, tokenizer=byte_pairs())
    parts = GGUFParts.of(path.read_bytes())
    chance = np.random.default_rng(0)
    for tensor in parts.tensors:
        if len(tensor.dims) == 2:
            blocks = tensor.dims[0] * tensor.dims[1] // kind.block_values
            raw = chance.integers(0, 256, (blocks, kind.block_bytes), dtype=np.uint8)
            scale = struct.pack("<e", 0.01)
            raw[:, :2] = np.frombuffer(scale, np.uint8)  # most types keep a scale here: no NaN in the sound file
            tensor.kind, tensor.data = int(kind), raw.tobytes()
    path.write_bytes(parts.to_bytes())
