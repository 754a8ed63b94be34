"""Our parameters and the file's tensors: one table, both ways; and what Toy calls them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from linnet.architectures import ViTConfig
from linnet.gguf import (
    GGMLType,
    GGUFError,
    GGUFFile,
    GGUFWriter,
    MetadataBlock,
    RopeScaling,
    adapter_layout,
    config_of,
    layout,
    read_lens,
    read_params,
    write,
)
from linnet.gguf.check import check
from linnet.gguf.config import hyper_parameters
from linnet.gguf.convert import convert
from tests.gguf import tiny
from tests.gguf.llama_client import ask


def test_fused_parameters_are_row_ranges_of_the_files_tensors() -> None:
    plan = layout(tiny.llama_config())  # 4 heads of 16, 2 key heads
    qkv = plan.params["blocks.1.attn_qkv.weight"]
    assert qkv.shape == (128, 64)
    assert [(piece.tensor, piece.start, piece.stop) for piece in qkv.pieces] == [
        ("blk.1.attn_q.weight", 0, 64),
        ("blk.1.attn_k.weight", 64, 96),
        ("blk.1.attn_v.weight", 96, 128),
    ]
    param, piece = plan.tensors["blk.0.ffn_up.weight"]
    assert (param.name, piece.start, piece.stop, piece.shape) == (
        "blocks.0.ffn_gate_up.weight",
        96,
        192,
        (96, 64),
    )


def test_table_is_that_of_the_real_model(smollm2: Path) -> None:
    with GGUFFile.open(smollm2) as file:
        cfg = config_of(file)
        assert (cfg.arch, cfg.vocab, cfg.d_model, cfg.n_layers) == ("llama", 49152, 576, 30)
        plan = layout(cfg)
        needed = {name for name, (param, _) in plan.tensors.items() if not param.optional}
        assert needed == set(file.tensors)
        assert all(file.tensors[name].shape == plan.tensors[name][1].shape for name in needed)


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"bias": True}])
def test_llama_comes_back_from_its_file(tmp_path: Path, options: dict[str, bool]) -> None:
    cfg = tiny.llama_config(head_dim=32, rope_scaling=RopeScaling("llama3", 8.0, 16))
    _, params = tiny.llama(cfg, **options)
    with GGUFFile.open(write(cfg, params, tmp_path / "m.gguf", "run", 3)) as file:
        has_bias = options.get("bias", False)
        biases = {"qkv_bias": has_bias, "output_bias": has_bias, "ffn_bias": has_bias}
        assert config_of(file) == replace(cfg, tied=options.get("tied", False), **biases)
        back = dict(read_params(file))
    assert back.pop("rope_freqs.weight").shape == (16,)
    assert set(back) == set(params)
    assert all(np.array_equal(back[name], params[name]) for name in params)


def test_gpt2_comes_back_from_its_file(tmp_path: Path) -> None:
    cfg = tiny.gpt2_config()
    _, params = tiny.gpt2(cfg)
    with GGUFFile.open(write(cfg, params, tmp_path / "m.gguf", "run", 3)) as file:
        back = dict(read_params(file))
        assert file.tensors["blk.0.attn_qkv.weight"].shape == (192, 64)
    assert set(back) == set(params)
    assert all(np.array_equal(back[name], params[name]) for name in params)


def random_vit(cfg: ViTConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    skipped = {"pre_ln.weight", "pre_ln.bias"} | ({"class_embd"} if cfg.pooling == "mean" else set())
    return {
        name: rng.standard_normal(param.shape).astype(np.float32)
        for name, param in layout(cfg).params.items()
        if name not in skipped
    }


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vit_comes_back_from_its_file(tmp_path: Path, pooling: str) -> None:
    cfg = ViTConfig(
        image_size=8,
        patch_size=2,
        d_model=32,
        n_heads=2,
        d_ff=64,
        n_layers=2,
        num_classes=3,
        num_channels=1,
        pooling=pooling,
        norm_eps=0.5,
        image_mean=(0.5,),
        image_std=(0.25,),
        labels=("cat", "dog", "linnet"),
    )
    params = random_vit(cfg)
    with GGUFFile.open(write(cfg, params, tmp_path / "vit.gguf", "run", 3, type="bf16")) as file:
        assert config_of(file) == cfg
        assert file.tensors["v.position_embd.weight"].shape == (16 + (pooling == "cls"), 32)
        assert file.tensors["v.patch_embd.weight"].type is GGMLType.F32
        assert file.tensors["v.blk.1.attn_k.weight"].type is GGMLType.BF16
        back = dict(read_params(file))
    assert set(back) == set(params)
    assert all(np.allclose(back[name], params[name], rtol=0.01, atol=0.01) for name in params)
    (finding,) = check(tmp_path / "vit.gguf")
    assert finding.refused and "no architecture 'vit'" in finding.problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda params: params | {"optimizer.m": np.zeros(3)},
            "'optimizer.m': the model has no such parameter",
        ),
        (lambda params: params | {"output_norm.weight": np.zeros(3)}, r"expected \[64\], found \[3\]"),
        (
            lambda params: {name: params[name] for name in params if "ffn_down" not in name},
            "ffn_down.weight': the parameter is missing",
        ),
    ],
)
def test_parameters_that_do_not_fit_the_config_are_refused(tmp_path: Path, change: object, problem: str) -> None:
    cfg = tiny.llama_config()
    with pytest.raises(GGUFError, match=problem):
        write(cfg, change(tiny.llama(cfg)[1]), tmp_path / "m.gguf", "run", 1)  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


def test_adapter_pairs_have_llama_cpps_names_and_shapes() -> None:
    plan = adapter_layout(tiny.llama_config(), 4, ["attn_q", "token_embd"])
    assert plan.params["blocks.1.attn_q.lora_a"].shape == (4, 64)
    assert plan.params["blocks.1.attn_q.lora_b"].pieces[0].tensor == "blk.1.attn_q.weight.lora_b"
    assert plan.params["token_embd.lora_a"].shape == (288, 4)
    assert plan.params["token_embd.lora_b"].shape == (64, 4)
    with pytest.raises(GGUFError, match="'attn_z': no such LoRA target; expected attn_k or attn_output or"):
        adapter_layout(tiny.llama_config(), 4, ["attn_z"])


def toy_checkpoint(path: Path, *, changes: dict[str, object] | None = None) -> tuple[dict[str, torch.Tensor], object]:
    """A file as Toy's trainer writes it: its sixteen keys, attention head by head, no tokenizer, no file type.

    `changes` replaces tensors by name; None leaves one out.
    """
    cfg = tiny.llama_config()
    model, params = tiny.llama(cfg)
    keys = MetadataBlock().text("general.architecture", "llama").text("general.name", "toy-from-scratch")
    keys.text("general.run_id", "llama-20260531-001").u32("general.step", 200)
    keys.u32("llama.vocab_size", cfg.vocab).u32("llama.embedding_length", cfg.d_model)
    keys.u32("llama.feed_forward_length", cfg.d_ff).u32("llama.block_count", cfg.n_layers)
    keys.u32("llama.attention.head_count", cfg.n_heads).u32("llama.attention.head_count_kv", cfg.n_kv)
    keys.u32("llama.context_length", cfg.ctx)
    keys.f32("llama.attention.layer_norm_rms_epsilon", cfg.rms_eps).f32("llama.rope.freq_base", cfg.rope_base)
    tensors: dict[str, object] = {}
    for name, (param, piece) in layout(cfg).tensors.items():
        if param.name not in params:
            continue
        values = params[param.name][piece.start : piece.stop]
        stem, _, half = name.rpartition(".")
        if stem[-6:] in ("attn_q", "attn_k", "attn_v"):
            tensors |= {f"{stem}.head_{head}.{half}": rows for head, rows in enumerate(values.split(16))}
        else:
            tensors[name] = values
    tensors = {name: values for name, values in (tensors | (changes or {})).items() if values is not None}
    keys.text("toy.checkpoint_format", "toy-from-scratch/v1").u32("toy.n_params_written", len(tensors))
    writer = GGUFWriter(keys.flag("toy.ggml_native", True))
    for name, values in tensors.items():
        writer.add(name, values)
    writer.write(path)
    return params, model


def tokenizer_file(path: Path, vocab: int = tiny.VOCAB) -> Path:
    return GGUFWriter(tiny.byte_level_tokenizer(vocab)).write(path)


def test_toys_heads_are_joined(tmp_path: Path) -> None:
    params, _ = toy_checkpoint(tmp_path / "toy.gguf")
    with GGUFFile.open(tmp_path / "toy.gguf") as file:
        assert "blk.0.attn_q.head_3.weight" in file.tensors
        back = dict(read_params(file))
    assert set(back) == set(params)
    assert all(np.array_equal(back[name], params[name]) for name in params)


def test_toys_checkpoint_converted_runs_in_llama_cpp(tmp_path: Path) -> None:
    _, model = toy_checkpoint(tmp_path / "toy.gguf")
    assert any(finding.refused for finding in check(tmp_path / "toy.gguf"))
    tokenizer = tokenizer_file(tmp_path / "tokenizer.gguf")
    path = convert(tmp_path / "toy.gguf", tmp_path / "whole.gguf", "f32", tokenizer=tokenizer)
    assert check(path) == []
    (answer,) = ask(path, prompts=tiny.prompts(), vocab=tiny.VOCAB)
    assert np.abs(np.array(answer.logprobs) - tiny.reference(model, tiny.prompts())).max() < 1e-4
    with GGUFFile.open(path) as file:
        assert file.metadata["toy.n_params_written"] == len(file.tensors) == 21


def test_toys_lens_is_folded_by_convert(tmp_path: Path) -> None:
    """The embedding of a warm start is a donor's, 24 wide, and `lens.proj.weight` brings it to the model's width."""
    rng = np.random.default_rng(3)
    donor = rng.standard_normal((288, 24)).astype(np.float32)
    proj = 0.1 * rng.standard_normal((64, 24)).astype(np.float32)
    lens = {"token_embd.weight": donor, "lens.proj.weight": proj}
    _, model = toy_checkpoint(tmp_path / "toy.gguf", changes=lens)
    tokenizer = tokenizer_file(tmp_path / "tokenizer.gguf")
    path = convert(tmp_path / "toy.gguf", tmp_path / "folded.gguf", "f32", tokenizer=tokenizer)
    assert check(path) == []
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.from_numpy(donor @ proj.T))  # type: ignore[attr-defined]
    (answer,) = ask(path, prompts=tiny.prompts(), vocab=tiny.VOCAB)
    assert np.abs(np.array(answer.logprobs) - tiny.reference(model, tiny.prompts())).max() < 1e-4


def test_toys_checkpoint_without_a_tokenizer_given_is_refused(tmp_path: Path) -> None:
    toy_checkpoint(tmp_path / "toy.gguf")
    with pytest.raises(GGUFError, match=r"toy.gguf: .*has no tokenizer.*expected `tokenizer=FILE.gguf`, found none"):
        convert(tmp_path / "toy.gguf", tmp_path / "out.gguf", "f32")
    other = tokenizer_file(tmp_path / "other.gguf", 300)
    with pytest.raises(GGUFError, match=r"other.gguf: .*expected 288 tokens, one for each row.*found 300 tokens"):
        convert(tmp_path / "toy.gguf", tmp_path / "out.gguf", "f32", tokenizer=other)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"token_embd.weight": None, "lens.proj.weight": np.ones((64, 24), np.float32)},
            "a lens without the embedding behind it.*convert the run's last checkpoint",
        ),
        ({"lens.proj.weight": np.ones((64, 24), np.float32)}, r"the lens does not fit; expected .*\[vocab, 24\]"),
        (
            {"token_embd.weight": np.ones((288, 24), np.float32), "lens.proj.weight": np.ones((32, 24), np.float32)},
            r"token_embd.weight': not a whole model: expected \[288, 64\], found \[288, 32\]",
        ),
        ({"blk.1.ffn_up.weight": None}, r"blk.1.ffn_up.weight': not a whole model: missing; expected \[96, 64\]"),
        (
            {"blk.0.attn_q.head_0.lora_a.weight": np.ones((2, 64), np.float32)},
            "lora_a.weight': not a whole model: not a tensor of this architecture",
        ),
    ],
)
def test_toys_checkpoint_that_is_no_whole_model_is_refused(
    tmp_path: Path, changes: dict[str, object], problem: str
) -> None:
    toy_checkpoint(tmp_path / "toy.gguf", changes=changes)
    tokenizer = tokenizer_file(tmp_path / "tokenizer.gguf")
    with pytest.raises(GGUFError, match=problem):
        convert(tmp_path / "toy.gguf", tmp_path / "out.gguf", "f32", tokenizer=tokenizer)
    assert not (tmp_path / "out.gguf").exists()


def test_missing_head_is_an_error(tmp_path: Path) -> None:
    writer = GGUFWriter(
        MetadataBlock().text("general.architecture", "llama").extend(hyper_parameters(tiny.llama_config(n_layers=1)))
    )
    for head in (0, 2):
        writer.add(f"blk.0.attn_q.head_{head}.weight", np.zeros((16, 64), np.float32))
    words = r"attn_q.weight': the heads do not make one tensor.*\[0, 2\]"
    with GGUFFile.open(writer.write(tmp_path / "gap.gguf")) as file, pytest.raises(GGUFError, match=words):
        next(read_params(file))


def test_gpt2_with_separate_q_k_v_is_read_too(tmp_path: Path) -> None:
    cfg = tiny.gpt2_config()
    _, params = tiny.gpt2(cfg)
    writer = GGUFWriter(MetadataBlock().text("general.architecture", "gpt2").extend(hyper_parameters(cfg)))
    for name, (param, _) in layout(cfg).tensors.items():
        if "attn_qkv" in name:
            for each, rows in zip("qkv", params[param.name].split(64), strict=True):
                writer.add(name.replace("qkv", each), rows)
        elif param.name in params:
            writer.add(name, params[param.name])
    with GGUFFile.open(writer.write(tmp_path / "split.gguf")) as file:
        back = dict(read_params(file))
    assert all(np.array_equal(back[name], params[name]) for name in params)


def test_fused_llama_of_other_converters_is_read_too(tmp_path: Path) -> None:
    cfg = tiny.llama_config(n_layers=1)
    _, params = tiny.llama(cfg)
    writer = GGUFWriter(MetadataBlock().text("general.architecture", "llama").extend(hyper_parameters(cfg)))
    for name, (param, piece) in layout(cfg).tensors.items():
        if name == "blk.0.attn_q.weight":
            writer.add("blk.0.attn_qkv.weight", params[param.name])
        elif param.name in params and ".attn_k." not in name and ".attn_v." not in name:
            writer.add(name, params[param.name][piece.start : piece.stop])
    with GGUFFile.open(writer.write(tmp_path / "fused.gguf")) as file:
        back = dict(read_params(file))
    assert all(np.array_equal(back[name], params[name]) for name in params)


def test_lens_file_is_read_and_checked(tmp_path: Path) -> None:
    proj = np.arange(12, dtype=np.float32).reshape(3, 4)
    block = MetadataBlock().text("general.architecture", "lens").u32("lens.donor_d_in", 4).u32("lens.d_model", 3)
    writer = GGUFWriter(block.text("lens.donor_source", "donor.gguf"))
    writer.add("lens.proj.weight", proj)
    lens = read_lens(writer.write(tmp_path / "lens.gguf"))
    assert np.array_equal(lens.proj, proj)
    assert (lens.d_model, lens.donor_d_in, lens.donor_source) == (3, 4, "donor.gguf")
    wrong = GGUFWriter(MetadataBlock().u32("lens.d_model", 5))
    wrong.add("lens.proj.weight", proj)
    with pytest.raises(GGUFError, match=r"'lens.d_model': .*expected 3, found 5"):
        read_lens(wrong.write(tmp_path / "wrong.gguf"))
    with pytest.raises(GGUFError, match="holds no lens"):
        read_lens(GGUFWriter(MetadataBlock()).write(tmp_path / "none.gguf"))


@pytest.mark.parametrize("make", [torch.tensor, np.asarray])
def test_lens_is_folded_into_the_embedding(tmp_path: Path, make: object) -> None:
    cfg = tiny.llama_config()
    _, params = tiny.llama(cfg)
    rng = np.random.default_rng(3)
    donor, proj = (
        rng.standard_normal((288, 24)).astype(np.float32),
        rng.standard_normal((64, 24)).astype(np.float32),
    )
    params |= {"token_embd.weight": make(donor), "lens.proj.weight": make(proj)}  # type: ignore[operator]
    path = write(cfg, params, tmp_path / "folded.gguf", "run", 1, tokenizer=tiny.byte_level_tokenizer())
    assert check(path) == []
    with GGUFFile.open(path) as file:
        assert "lens.proj.weight" not in file.tensors
        assert np.allclose(file.tensors["token_embd.weight"].read(), donor @ proj.T, atol=1e-5)
