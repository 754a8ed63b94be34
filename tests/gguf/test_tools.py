"""The card, the check, the conversion and the search: what the command line shows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gguf
from linnet.gguf import (
    AdapterFile,
    GGMLType,
    GGUFError,
    GGUFFile,
    GGUFWriter,
    MetadataBlock,
    Provenance,
    ValueType,
    donor_keys,
    find_models,
    read_card,
    rebuild_tokenizer,
    tokenizer_block,
    train_tokenizer,
    write,
    write_adapter,
    write_step,
)
from linnet.gguf.check import check
from linnet.gguf.convert import convert
from linnet.gguf.toy import Tensors
from linnet.models import ViTConfig, build
from tests.gguf import tiny
from tests.gguf.llama_client import ask


def checkpoint(path: Path, **options: object) -> Path:
    cfg = tiny.llama_config()
    options.setdefault("tokenizer", tiny.byte_level_tokenizer())
    return write(cfg, tiny.llama(cfg)[1], path, "llama-20260531-001", 200, **options)  # type: ignore[arg-type]


def test_checkpoint_says_where_it_comes_from(tmp_path: Path) -> None:
    origin = Provenance(
        recipe="from_scratch",
        seed=7,
        tokens_seen=1 << 40,
        train_loss=2.5,
        validation_loss=float("nan"),
        config_fingerprint="c0ffee",
        data_fingerprint="da7a",
        git_sha="0" * 40,
    )
    extra = MetadataBlock().text("linnet.note", "hello")
    path = checkpoint(tmp_path / "m.gguf", provenance=origin, extra=extra, name="A linnet", type="bf16")
    with GGUFFile.open(path) as file:
        metadata = dict(file.metadata.items())
        kinds = {key: file.metadata.label(key) for key in metadata}
    expected = {
        "general.architecture": ("string", "llama"),
        "general.type": ("string", "model"),
        "general.name": ("string", "A linnet"),
        "general.file_type": ("u32", 32),
        "general.run_id": ("string", "llama-20260531-001"),
        "general.step": ("u32", 200),
        "llama.vocab_size": ("u32", 288),
        "llama.embedding_length": ("u32", 64),
        "llama.feed_forward_length": ("u32", 96),
        "llama.block_count": ("u32", 2),
        "llama.attention.head_count": ("u32", 4),
        "llama.attention.head_count_kv": ("u32", 2),
        "llama.context_length": ("u32", 256),
        "llama.rope.dimension_count": ("u32", 16),
        "llama.rope.freq_base": ("f32", 10000.0),
        "toy.checkpoint_format": ("string", "toy-from-scratch/v1"),
        "toy.n_params_written": ("u32", 21),
        "toy.ggml_native": ("bool", True),
        "linnet.recipe": ("string", "from_scratch"),
        "linnet.seed": ("i64", 7),
        "linnet.tokens_seen": ("i64", 1 << 40),
        "linnet.train_loss": ("f64", 2.5),
        "linnet.config_fingerprint": ("string", "c0ffee"),
        "linnet.data_fingerprint": ("string", "da7a"),
        "linnet.git_sha": ("string", "0" * 40),
        "linnet.note": ("string", "hello"),
    }
    assert {key: (kinds[key], metadata[key]) for key in expected} == expected
    assert kinds["llama.attention.layer_norm_rms_epsilon"] == "f32"
    assert metadata["linnet.validation_loss"] != metadata["linnet.validation_loss"]  # NaN, said as it is


def test_toys_label_is_on_whole_llamas_alone(tmp_path: Path) -> None:
    llama, gpt2 = tiny.llama_config(), tiny.gpt2_config()
    pair = {"blocks.0.attn_q.lora_a": np.zeros((2, 64)), "blocks.0.attn_q.lora_b": np.zeros((64, 2))}
    vit = ViTConfig(image_size=8, patch_size=2, d_model=32, n_heads=2, d_ff=64, n_layers=1, num_classes=3)
    files = {
        "llama": checkpoint(tmp_path / "llama.gguf"),
        "gpt2": write(gpt2, tiny.gpt2(gpt2)[1], tmp_path / "gpt2.gguf", "run", 1),
        "vit": write(vit, build(vit).params(), tmp_path / "vit.gguf", "run", 1),
        "adapter": write_adapter(llama, pair, tmp_path / "adapter.gguf", "run", 1, alpha=4, base="m.gguf"),
    }
    labels = {}
    for kind, path in files.items():
        with GGUFFile.open(path) as file:
            labels[kind] = file.metadata.get("toy.checkpoint_format")
            assert file.metadata["toy.n_params_written"] == len(file.tensors)
    assert labels == {"llama": "toy-from-scratch/v1", "gpt2": None, "vit": None, "adapter": None}


def test_gguf_py_reads_our_checkpoint_equal(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m.gguf", type="q8_0")
    reader = gguf.GGUFReader(path)
    with GGUFFile.open(path) as file:
        for tensor in reader.tensors:
            theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            assert np.array_equal(file.tensors[tensor.name].read(), theirs.reshape(file.tensors[tensor.name].shape))
        for key, value in file.metadata.items():
            theirs = reader.fields[key].contents()
            assert value == (tuple(theirs) if isinstance(theirs, list) else theirs)


def test_token_list_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="expected 288 tokens, found 300 tokens"):
        checkpoint(tmp_path / "m.gguf", tokenizer=tiny.byte_level_tokenizer(300))


def test_card_of_the_real_model(smollm2: Path) -> None:
    card = read_card(smollm2)
    assert (card.arch, card.kind, card.file_type, card.tied) == ("llama", "model", "q4_1", True)
    assert card.parameters == 134_515_008
    assert card.sizes["vocab"] == 49152 and card.sizes["n_layers"] == 30 and card.sizes["n_kv"] == 3
    assert [share.type for share in card.types] == ["q4_1", "q8_0", "f32"]
    assert sum(share.tensors for share in card.types) == card.tensors == 272
    assert card.tokenizer is not None
    assert (card.tokenizer.model, card.tokenizer.pre, card.tokenizer.tokens) == ("gpt2", "smollm", 49152)
    assert card.tokenizer.marks["eos"] == 2 and card.tokenizer.chat_template
    assert card.tokenizer.chat_format == "chatml"


def test_card_of_our_checkpoint_and_adapter(tmp_path: Path) -> None:
    card = read_card(checkpoint(tmp_path / "m.gguf", provenance=Provenance(recipe="lora", seed=1)))
    assert card.provenance["linnet.recipe"] == "lora" and card.provenance["general.step"] == 200
    pair = {
        "blocks.0.attn_q.lora_a": np.zeros((2, 64), np.float32),
        "blocks.0.attn_q.lora_b": np.zeros((64, 2), np.float32),
    }
    adapter = write_adapter(tiny.llama_config(), pair, tmp_path / "a.gguf", "run", 1, alpha=4, base="m.gguf")
    card = read_card(adapter)
    assert (card.kind, card.tied, card.tensors) == ("adapter", None, 2)
    assert card.provenance["linnet.adapter.base"] == "m.gguf" and card.provenance["linnet.adapter.rank"] == 2


@pytest.mark.parametrize(
    ("tensors", "alpha", "expected"),
    [
        ({"blk.0.attn_q.weight.lora_a": (2, 64)}, 4.0, "the other half of the pair is missing"),
        (
            {"blk.0.attn_q.weight.lora_a": (2, 64), "blk.0.attn_q.weight.lora_b": (64,)},
            4.0,
            "the other half of the pair",
        ),
        ({"blk.0.attn_q.weight.lora_a": (2, 64), "blk.0.attn_q.weight.lora_b": (64, 3)}, 4.0, "have different ranks"),
        ({"blk.0.attn_q.weight": (64, 64)}, 4.0, "not a part of a LoRA pair"),
        ({"blk.0.attn_norm.weight": (64,)}, 4.0, "there is no LoRA pair"),
        ({"blk.0.attn_q.weight.lora_a": (2, 64)}, math.nan, "'adapter.lora.alpha': the value is wrong"),
    ],
)
def test_an_adapter_that_is_not_whole_is_not_read(
    tmp_path: Path, tensors: dict[str, tuple[int, ...]], alpha: float, expected: str
) -> None:
    metadata = MetadataBlock().text("general.architecture", "llama").text("general.type", "adapter")
    metadata.text("adapter.type", "lora").f32("adapter.lora.alpha", alpha)
    writer = GGUFWriter(metadata)
    for name, shape in tensors.items():
        writer.add(name, np.ones(shape, np.float32))
    writer.write(tmp_path / "a.gguf")
    with pytest.raises(GGUFError, match=expected):
        AdapterFile.read(tmp_path / "a.gguf")


def test_adapter_with_half_a_pair_is_refused(tmp_path: Path) -> None:
    half = {"blocks.0.attn_q.lora_b": np.zeros((64, 2), np.float32)}
    with pytest.raises(GGUFError, match=r"attn_q.lora_a': the parameter is missing"):
        write_adapter(tiny.llama_config(), half, tmp_path / "a.gguf", "run", 1, alpha=4, base="m.gguf")
    with pytest.raises(GGUFError, match="there is no LoRA pair"):
        write_adapter(tiny.llama_config(), {}, tmp_path / "a.gguf", "run", 1, alpha=4, base="m.gguf")


def rewritten(
    path: Path,
    *,
    without: str = "",
    block: MetadataBlock | None = None,
    tensors: Callable[[GGUFWriter], None] = lambda writer: None,
    dropped: str = "",
) -> Path:
    """The file again without a key or tensor, with other keys or tensors."""
    out = path.with_name("changed.gguf")
    with GGUFFile.open(path) as file:
        given = set(block or ())
        metadata = MetadataBlock().copy(
            file.metadata, (key for key in file.metadata if key != without and key not in given)
        )
        writer = GGUFWriter(metadata.extend(block or MetadataBlock()))
        for name, tensor in Tensors(file).items():
            if name != dropped:
                writer.add(name, tensor, tensor.type)
        tensors(writer)
        return writer.write(out)


def block_of(key: str, kind: ValueType, value: object) -> MetadataBlock:
    if isinstance(value, list):
        return MetadataBlock().add_array(key, kind, value)
    return MetadataBlock().add(key, kind, value)  # type: ignore[arg-type]


TOKENS = [f"t{n}" for n in range(288)]
FAULTS: dict[str, tuple[dict[str, object], str]] = {
    "no architecture": ({"without": "general.architecture"}, "general.architecture"),
    "no context length": ({"without": "llama.context_length"}, "llama.context_length"),
    "no epsilon": ({"without": "llama.attention.layer_norm_rms_epsilon"}, "layer_norm_rms_epsilon"),
    "no block count": ({"without": "llama.block_count"}, "llama.block_count"),
    "no tokenizer": ({"without": "tokenizer.ggml.model"}, "tokenizer.ggml.model"),
    "no tokens": ({"without": "tokenizer.ggml.tokens"}, "tokenizer.ggml.tokens"),
    "no merges": ({"without": "tokenizer.ggml.merges"}, "tokenizer.ggml.merges"),
    "a u64 count": ({"block": block_of("llama.block_count", ValueType.U64, 2)}, "expected u32, found u64"),
    "an f64 epsilon": (
        {"block": block_of("llama.attention.layer_norm_rms_epsilon", ValueType.F64, 1e-5)},
        "expected f32",
    ),
    "a u8 flag": (
        {"block": block_of("tokenizer.ggml.add_bos_token", ValueType.U8, 0)},
        "expected bool, found u8",
    ),
    "an i32 token id": (
        {"block": block_of("tokenizer.ggml.eos_token_id", ValueType.I32, 1)},
        "expected u32, found i32",
    ),
    "u32 token types": (
        {"block": block_of("tokenizer.ggml.token_type", ValueType.U32, [1] * 288)},
        "expected array of i32, found array of u32",
    ),
    "a token twice": (
        {"block": block_of("tokenizer.ggml.tokens", ValueType.STRING, [*TOKENS[:287], "t0"])},
        "there twice",
    ),
    "too few tokens": (
        {"block": block_of("tokenizer.ggml.tokens", ValueType.STRING, TOKENS[:100])},
        "expected 288 tokens",
    ),
    "a wrong rope dimension": (
        {"block": block_of("llama.rope.dimension_count", ValueType.U32, 8)},
        "the head size 16",
    ),
    "a word for rope": (
        {"block": block_of("llama.rope.scaling.type", ValueType.STRING, "llama3")},
        "llama.rope.scaling.type",
    ),
    "a missing tensor": ({"dropped": "blk.1.ffn_up.weight"}, "blk.1.ffn_up.weight"),
    "an extra tensor": (
        {"tensors": lambda writer: writer.add("optimizer.m", np.zeros((2, 2), np.float32))},
        "refuses extra ones",
    ),
    "a tensor of another shape": (
        {
            "dropped": "output_norm.weight",
            "tensors": lambda writer: writer.add("output_norm.weight", np.zeros(65, np.float32)),
        },
        "expected [64], found [65]",
    ),
}


def test_check_refuses_what_llama_cpp_refuses(tmp_path: Path) -> None:
    """Each fault is found by the check, and each of these files is indeed refused by llama.cpp."""
    good = checkpoint(tmp_path / "good.gguf")
    assert check(good) == []
    files = []
    for name, (changes, words) in FAULTS.items():
        path = rewritten(good, **changes)  # type: ignore[arg-type]
        refusals = [str(finding) for finding in check(path) if finding.refused]
        assert any(words in line for line in refusals), f"{name}: {refusals}"
        files.append(path.rename(tmp_path / f"{name.replace(' ', '-')}.gguf"))
    for path, answer in zip(files, ask(*files, prompts=tiny.prompts()[:1], vocab=tiny.VOCAB), strict=True):
        assert answer.refused, f"llama.cpp runs {path.name}"


def test_check_finds_a_half_precision_norm(tmp_path: Path) -> None:
    """Our writer refuses to make one; gguf-py does not."""
    path = tmp_path / "half.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("output_norm.weight", np.ones(64, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert any("must be f32" in finding.problem and finding.refused for finding in check(path))


def test_check_of_a_broken_file_is_a_finding_not_an_exception(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF\3\0\0\0")
    (finding,) = check(path)
    assert finding.refused and finding.place == "header"


def test_check_warns_of_values_that_are_not_finite(tmp_path: Path) -> None:
    cfg = tiny.llama_config()
    params = tiny.llama(cfg)[1]
    params["output_norm.weight"] = params["output_norm.weight"].clone()
    params["output_norm.weight"][3] = float("nan")
    path = write(cfg, params, tmp_path / "nan.gguf", "run", 1, tokenizer=tiny.byte_level_tokenizer())
    assert check(path) == []
    (finding,) = check(path, values=True)
    assert not finding.refused and "1 of 64 values" in finding.problem


def test_real_model_passes_the_check(smollm2: Path) -> None:
    assert check(smollm2) == []


def test_real_model_converted_goes_on_with_the_same_words(tmp_path: Path, smollm2: Path) -> None:
    full, small = tmp_path / "f32.gguf", tmp_path / "q8_0.gguf"
    convert(smollm2, full, "f32")
    convert(full, small, "q8_0")
    with GGUFFile.open(smollm2) as one, GGUFFile.open(full) as other:
        assert other.metadata["general.file_type"] == 0
        assert other.metadata.raw("tokenizer.ggml.tokens") == one.metadata.raw("tokenizer.ggml.tokens")
        for name in ("token_embd.weight", "blk.29.ffn_down.weight", "output_norm.weight"):
            assert np.array_equal(other.tensors[name].read(slice(0, 64)), one.tensors[name].read(slice(0, 64)))
    assert [finding for path in (full, small) for finding in check(path)] == []
    prompt = [504, 3575, 282, 4649, 314]  # The capital of France is
    original, as_f32, as_q8 = ask(smollm2, full, small, prompts=[prompt], vocab=0, greedy=24)
    assert as_f32.greedy == original.greedy and len(original.greedy[0]) == 24
    assert as_q8.greedy[0][0] == original.greedy[0][0]


def test_conversion_to_an_unknown_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="expected f32 or f16 or bf16 or q8_0, found 'q4_k'"):
        convert(checkpoint(tmp_path / "m.gguf"), tmp_path / "out.gguf", "q4_k")


def test_tensors_already_of_the_type_go_over_as_they_are(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "one.gguf", type="q8_0")
    two = convert(one, tmp_path / "two.gguf", "q8_0")
    with GGUFFile.open(one) as first, GGUFFile.open(two) as second:
        assert list(first.tensors) == list(second.tensors)
        assert all((first.tensors[name].raw() == second.tensors[name].raw()).all() for name in first.tensors)
        assert first.tensors["blk.0.attn_q.weight"].type is GGMLType.Q8_0


def test_models_are_found_where_programs_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME", "LLAMA_CACHE", "LINNET_RUNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    model = checkpoint(tmp_path / "m.gguf").read_bytes()

    def put(path: Path, content: bytes = model) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    hub = home / ".cache/huggingface/hub/models--acme--tiny-GGUF"
    blob = put(hub / "blobs/abc")
    link = hub / "snapshots/rev/q8/tiny.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    put(home / ".ollama/models/blobs/sha256-123")
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:123"},
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:456"},
    ]
    manifest = json.dumps({"layers": layers}).encode()
    put(home / ".ollama/models/manifests/registry.ollama.ai/library/smol/135m", manifest)
    put(home / ".ollama/models/manifests/registry.ollama.ai/library/bad/latest", b"{not json")
    put(home / ".ollama/models/manifests/stray", manifest)  # nobody's: not below owner and model
    put(home / ".lmstudio/models/acme/tiny/tiny.gguf")
    put(here / "mine.gguf")
    put(here / "not-one.gguf", b"text")
    write_step(tiny.llama_config(), tiny.llama(tiny.llama_config())[1], here / "runs/a/weights", "a", 200)
    found = find_models(here)
    assert [(model.place, model.name) for model in found] == [
        ("run", "a@200"),
        ("here", "mine.gguf"),
        ("huggingface", "acme/tiny-GGUF/q8/tiny.gguf"),
        ("ollama", "smol:135m"),
        ("lmstudio", "acme/tiny/tiny.gguf"),
    ]
    assert all(model.bytes == model.path.stat().st_size for model in found)


def test_tokenizer_trained_here_goes_into_the_checkpoint(tmp_path: Path) -> None:
    trained = train_tokenizer(["a linnet is a small finch"] * 50, 280)
    block = MetadataBlock.of(tokenizer_block(trained, eos="<|endoftext|>", rows=tiny.VOCAB))
    path = checkpoint(tmp_path / "m.gguf", tokenizer=block)
    assert check(path) == []
    with GGUFFile.open(path) as file:
        again = rebuild_tokenizer(file.metadata)
        copied = MetadataBlock().copy(file.metadata, donor_keys(file.metadata))
    assert again.encode("a small linnet").ids == trained.encode("a small linnet").ids
    assert copied.to_bytes() == block.to_bytes()
