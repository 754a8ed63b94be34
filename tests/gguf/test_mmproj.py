"""llama.cpp's own vision code, given our tensors under the names we write, sees in an image what we see."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from linnet import gguf
from linnet.gguf.tokenizer_write import tokenizer_block
from linnet.models import LlamaConfig, ViTConfig, build
from tests.gguf.mmproj import ask, write_mmproj

CLASSES = 8


def tiny_text_model(path: Path) -> Path:
    """Its embeddings are as long as there are classes: llama.cpp puts the two together or refuses."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|endoftext|>": 0} | {letter: number for number, letter in enumerate(letters, 1)}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    keys = gguf.MetadataBlock.of(tokenizer_block(tokenizer, eos="<|endoftext|>", rows=len(vocab)))
    config = LlamaConfig(len(vocab), d_model=CLASSES, n_heads=2, n_kv=2, d_ff=16, n_layers=1, ctx=64)
    return gguf.write(config, build(config).params(), path, "text", 1, tokenizer=keys)


@pytest.mark.skipif(find_spec("cyllama") is None, reason="cyllama has no wheel for this Python")
def test_llama_cpp_sees_what_we_see(tmp_path: Path) -> None:
    config = ViTConfig(image_size=32, patch_size=4, d_model=48, n_heads=3, d_ff=96, n_layers=3, num_classes=CLASSES)
    model = build(config, seed=2, mimetic=True)
    with torch.no_grad():
        model.head.weight.mul_(40)  # a new head says next to nothing
    made = np.random.default_rng(0)
    images = [made.integers(0, 256, (3, 32, 32), dtype=np.uint8) for _ in range(4)]
    theirs = np.array(
        ask(tiny_text_model(tmp_path / "text.gguf"), write_mmproj(tmp_path / "mmproj.gguf", model), images)
    )
    with torch.no_grad():
        ours = (model(torch.from_numpy(np.stack(images))) - model.head.bias).numpy()
    assert np.abs(theirs - ours).max() < 2e-3 * np.abs(ours).max()
    assert np.array_equal(theirs.argmax(1), ours.argmax(1))
