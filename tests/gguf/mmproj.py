"""A mean-pooled classifier as a projector file (`mmproj`), run by llama.cpp's own vision code in a process of its own.

llama.cpp knows no class head. Its `idefics3` projector joins each square of four tokens and multiplies what it has:
with the head laid beside itself four times and divided by four, the mean of its outputs is the logits, less the bias.
Run as a script it is that process: a job comes in on standard input as JSON, the outputs go out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

SCALE = 2  # tokens along a side of what is joined


def write_mmproj(path: Path, model: Any) -> Path:
    """The file, from a `linnet.models.ViT` with mean pooling and three channels."""
    from linnet import gguf
    from linnet.architectures import layout
    from linnet.gguf.metadata import ValueType
    from linnet.gguf.tensor import GGMLType
    from linnet.gguf.writer import GGUFWriter

    config, params = model.config, model.params()
    assert (config.pooling, config.num_channels, config.act) == ("mean", 3, "gelu")
    block = gguf.MetadataBlock().text("general.architecture", "clip").text("general.type", "mmproj")
    block.flag("clip.has_vision_encoder", True).text("clip.projector_type", "idefics3").flag("clip.use_gelu", True)
    block.u32("general.file_type", 0).u32("clip.vision.projector.scale_factor", SCALE)
    block.u32("clip.vision.image_size", config.image_size).u32("clip.vision.patch_size", config.patch_size)
    block.u32("clip.vision.preproc_image_size", config.image_size)
    block.u32("clip.vision.embedding_length", config.d_model).u32("clip.vision.feed_forward_length", config.d_ff)
    block.u32("clip.vision.block_count", config.n_layers).u32("clip.vision.attention.head_count", config.n_heads)
    block.u32("clip.vision.projection_dim", config.num_classes)
    block.f32("clip.vision.attention.layer_norm_epsilon", config.norm_eps)
    block.add_array("clip.vision.image_mean", ValueType.F32, config.mean)
    block.add_array("clip.vision.image_std", ValueType.F32, config.std)
    writer = GGUFWriter(block)
    for name, param in layout(config).params.items():
        if name.startswith("head.") or name not in params:
            continue
        for piece in param.pieces:
            writer.add(piece.tensor, params[name][piece.start : piece.stop].contiguous(), GGMLType.F32)
    head_KD = params["head.weight"].numpy()
    writer.add("mm.model.fc.weight", np.tile(head_KD, (1, SCALE**2)) / SCALE**2, GGMLType.F32)
    return writer.write(path)


def ask(text_model: Path, mmproj: Path, images: list[np.ndarray]) -> list[list[float]]:
    """For each image [3, H, W] the mean of the projector's outputs."""
    job = {
        "text": str(text_model),
        "mmproj": str(mmproj),
        "images": [image.transpose(1, 2, 0).tolist() for image in images],
    }
    done = subprocess.run(
        [sys.executable, __file__], input=json.dumps(job), capture_output=True, text=True, timeout=120
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
    assert lines, f"exit {done.returncode}: {done.stderr[-3000:]}"
    return json.loads(lines[0].removeprefix("answer "))


def _serve() -> None:
    from cyllama.llama.llama_cpp import LlamaModel, LlamaModelParams
    from cyllama.llama.mtmd import MtmdBitmap, MtmdContext, MtmdContextParams, MtmdInputChunkType

    job = json.load(sys.stdin)
    model = LlamaModel(job["text"], LlamaModelParams())
    context = MtmdContext(job["mmproj"], model, MtmdContextParams(use_gpu=False, print_timings=False, n_threads=1))
    outputs = []
    for pixels in job["images"]:
        array = np.array(pixels, np.uint8)
        bitmap = MtmdBitmap.create_image(array.shape[1], array.shape[0], array.tobytes())
        chunks = context.tokenize("<__media__>", [bitmap], False, True)
        found = [chunk for chunk in chunks if chunk.type == MtmdInputChunkType.IMAGE]
        assert context.encode_chunk(found[-1]) == 0  # the whole image; before it comes the only slice of it
        rows = np.array(context.get_output_embeddings(found[-1].n_tokens, model.n_embd))
        outputs.append(rows.mean(0).tolist())
    print("answer " + json.dumps(outputs), flush=True)


if __name__ == "__main__":
    _serve()
