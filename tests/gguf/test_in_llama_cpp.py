"""The real client decides: llama.cpp loads what our writer makes and computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.gguf import GGUFFile, GGUFWriter, MetadataBlock, RopeScaling, write, write_adapter
from linnet.gguf.check import check
from tests.gguf import tiny
from tests.gguf.llama_client import ask

LLAMAS = {
    "untied": ({}, {}),
    "tied": ({}, {"tied": True}),
    "every head its own key": ({"n_kv": 4}, {}),
    "one key for all heads": ({"n_kv": 1}, {}),
    "biases": ({}, {"bias": True}),
    "wide heads": ({"head_dim": 32}, {}),
    "linear rope scaling": ({"rope_scaling": RopeScaling("linear", 4.0)}, {}),
    "llama3 rope scaling": ({"rope_scaling": RopeScaling("llama3", 8.0, 16), "rope_base": 5e5}, {}),
    "yarn rope scaling": ({"rope_scaling": RopeScaling("yarn", 4.0, 64)}, {}),
}


def test_llamas_compute_what_transformers_computes(tmp_path: Path) -> None:
    models, files = {}, []
    for name, (sizes, options) in LLAMAS.items():
        cfg = tiny.llama_config(**sizes)
        models[name], params = tiny.llama(cfg, **options)
        path = tmp_path / f"{name.replace(' ', '-')}.gguf"
        files.append(write(cfg, params, path, "run-1", 10, tokenizer=tiny.byte_level_tokenizer()))
        assert check(path) == []
    answers = ask(*files, prompts=tiny.prompts(), vocab=tiny.VOCAB)
    for name, answer in zip(models, answers, strict=True):
        assert not answer.refused, f"{name}: {answer.refused}"
        difference = np.abs(np.array(answer.logprobs) - tiny.reference(models[name], tiny.prompts())).max()
        assert difference < 1e-4, f"{name}: {difference}"


def test_gpt2_computes_what_transformers_computes(tmp_path: Path) -> None:
    cfg = tiny.gpt2_config()
    model, params = tiny.gpt2(cfg)
    path = write(cfg, params, tmp_path / "gpt2.gguf", "run-1", 10, tokenizer=tiny.byte_level_tokenizer())
    assert check(path) == []
    (answer,) = ask(path, prompts=tiny.prompts(), vocab=tiny.VOCAB)
    assert not answer.refused
    # ggml looks GELU up in a half-precision table: that, not the file, is most of the difference.
    assert np.abs(np.array(answer.logprobs) - tiny.reference(model, tiny.prompts())).max() < 5e-3


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_smaller_types_agree_on_the_next_token(tmp_path: Path, architecture: str) -> None:
    cfg = tiny.llama_config() if architecture == "llama" else tiny.gpt2_config()
    model, params = tiny.llama(cfg) if architecture == "llama" else tiny.gpt2(cfg)
    files = [
        write(
            cfg,
            params,
            tmp_path / f"{kind}.gguf",
            "run-1",
            10,
            type=kind,
            tokenizer=tiny.byte_level_tokenizer(),
        )
        for kind in ("f16", "bf16", "q8_0")
    ]
    assert [finding for path in files for finding in check(path)] == []
    expected = tiny.reference(model, tiny.prompts())
    for path, answer in zip(files, ask(*files, prompts=tiny.prompts(), vocab=tiny.VOCAB), strict=True):
        assert not answer.refused, f"{path.name}: {answer.refused}"
        assert np.array(answer.logprobs).argmax(1).tolist() == expected.argmax(1).tolist(), path.name
        assert np.abs(np.array(answer.logprobs) - expected).max() < 0.5, path.name


def test_adapter_acts_as_merged_weights(tmp_path: Path) -> None:
    cfg = tiny.llama_config()
    model, params = tiny.llama(cfg)
    base = write(cfg, params, tmp_path / "base.gguf", "run-1", 0, tokenizer=tiny.byte_level_tokenizer())
    rank, alpha, pairs = 4, 8.0, {}
    shapes = {"attn_v": (32, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)}
    for block in range(cfg.n_layers):
        layer = model.model.layers[block]
        bases = {
            "attn_v": layer.self_attn.v_proj,
            "ffn_up": layer.mlp.up_proj,
            "ffn_down": layer.mlp.down_proj,
        }
        for target, (out, into) in shapes.items():
            a, b = torch.randn(rank, into) * 0.1, torch.randn(out, rank) * 0.1
            pairs[f"blocks.{block}.{target}.lora_a"], pairs[f"blocks.{block}.{target}.lora_b"] = a, b
            bases[target].weight.data += alpha / rank * b @ a
    adapter = write_adapter(cfg, pairs, tmp_path / "adapter.gguf", "run-2", 5, alpha=alpha, base="base.gguf")
    assert check(adapter) == []
    (answer,) = ask(base, prompts=tiny.prompts(), vocab=tiny.VOCAB, adapter=adapter)
    assert not answer.refused
    assert np.abs(np.array(answer.logprobs) - tiny.reference(model, tiny.prompts())).max() < 1e-4


def test_llama_cpp_loads_a_file_without_tokenizer_and_its_server_aborts(tmp_path: Path) -> None:
    cfg = tiny.llama_config()
    path = write(cfg, tiny.llama(cfg)[1], tmp_path / "ids-only.gguf", "run-1", 0)
    (finding,) = check(path)
    assert (finding.refused, finding.aborts) == (False, True)
    assert "runs it on token ids only" in finding.problem
    unsized = tmp_path / "unsized.gguf"
    with GGUFFile.open(path) as file:
        keys = (key for key in file.metadata if key != "llama.vocab_size")
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, keys))
        for name, tensor in file.tensors.items():
            writer.add(name, tensor)
        writer.write(unsized)
    assert [str(finding) for finding in check(unsized) if finding.refused] == [
        "refused: metadata 'llama.vocab_size': expected 288, the rows of the embedding, found none"
    ]
    aborted, refused = ask(path, unsized, prompts=tiny.prompts()[:1], vocab=0)
    assert "GGML_ASSERT(type != LLAMA_VOCAB_TYPE_NONE) failed" in aborted.refused
    assert "Failed to init server" in refused.refused
