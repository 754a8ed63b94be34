"""Small sound GGUF files of every kind, and copies of them that state something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from linnet.gguf import GGUFFile, GGUFWriter, Lens, MetadataBlock, write, write_lens
from linnet.gguf.metadata import ValueType
from linnet.models import GPT2Config, LlamaConfig, ViTConfig, build
from tests.gguf.tiny import VOCAB, byte_level_tokenizer

SPM_VOCAB = 288
_WORDS = [*"helo", "he", "ll", "hel", "hell", "hello", "▁", "▁h", "▁hello", "é", "▁▁"]


def sentence_piece_tokenizer(extra: tuple[str, ...] = ()) -> MetadataBlock:
    """A SentencePiece vocabulary of 256 bytes, a few words, and `extra`; unused tokens fill it up."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *_WORDS, *extra]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(_WORDS) + len(extra))]
    unused = SPM_VOCAB - len(tokens)
    tokens += [f"[PAD{n}]" for n in range(unused)]
    types += [5] * unused
    block = MetadataBlock().text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens)
    block.add_array("tokenizer.ggml.scores", ValueType.F32, [float(-n) for n in range(len(tokens))])
    block.add_array("tokenizer.ggml.token_type", ValueType.I32, types)
    return block.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2)


def llama_file(path: Path, seed: int = 0) -> Path:
    """A llama with a byte-level vocabulary."""
    config = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=64)
    return write(config, build(config, seed).params(), path, "tiny", 1, tokenizer=byte_level_tokenizer())


def sentence_piece_file(path: Path, seed: int = 0, tokenizer: MetadataBlock | None = None) -> Path:
    """A llama with a SentencePiece vocabulary."""
    config = LlamaConfig(vocab=SPM_VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=1, ctx=64)
    tokens = tokenizer or sentence_piece_tokenizer()
    return write(config, build(config, seed).params(), path, "tiny", 1, tokenizer=tokens)


def gpt2_file(path: Path) -> Path:
    """A GPT-2 with a byte-level vocabulary."""
    config = GPT2Config(vocab=VOCAB, d_model=32, n_heads=4, d_ff=48, n_layers=1, ctx=64)
    return write(config, build(config).params(), path, "tiny", 1, tokenizer=byte_level_tokenizer())


def vit_file(path: Path, labels: tuple[str, ...] = ("cat", "dog", "owl")) -> Path:
    """A vision transformer for images of 8 × 8."""
    sizes = {"image_size": 8, "patch_size": 4, "d_model": 32, "n_heads": 4, "d_ff": 48, "n_layers": 1}
    config = ViTConfig(**sizes, num_classes=len(labels), num_channels=1, labels=labels)
    return write(config, build(config).params(), path, "tiny", 1)


def lens_file(path: Path) -> Path:
    """A lens as Toy's are."""
    return write_lens(Lens(np.eye(16, 32, dtype=np.float32), "donor.gguf"), path)


def restated(source: Path, path: Path, **changes: tuple[str, Any] | None) -> Path:
    """A copy of a file in which some keys (written with `__` for a dot) have another type and value, or are gone."""
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    with GGUFFile.open(source) as file:
        block = MetadataBlock().copy(file.metadata, (key for key in file.metadata if key not in changed))
        block.extend(MetadataBlock.of({key: value for key, value in changed.items() if value is not None}))
        writer = GGUFWriter(block)
        for name, tensor in file.tensors.items():
            writer.add(name, tensor.read())
        return writer.write(path)
