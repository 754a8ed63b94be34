"""Adapters on the command line: beside a model, of a run, merged, looked at, and those that do not belong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import linnet
from linnet.files import sha256_of
from linnet.gguf import AdapterFile, GGMLType, GGUFFile, GGUFWriter, MetadataBlock, write, write_adapter
from linnet.models import LlamaConfig, build, load
from linnet.models.adapter_shape import AdapterShape, parse_targets
from linnet.models.adapters import add_adapter
from tests.conftest import Printed, Said
from tests.data.chats import write_jsonl
from tests.gguf import tiny
from tests.gguf.small_files import lens_file, vit_file

CONFIG = LlamaConfig(vocab=tiny.VOCAB, d_model=64, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=64)
GREEDY = ("--prompt", "the", "--temperature", "0", "--max-tokens", "12")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    block = tiny.byte_level_tokenizer()
    params = build(CONFIG, seed=1, init_scale=3.0).params()
    return write(CONFIG, params, tmp_path / "base.gguf", "base", 1, tokenizer=block, name="Base of the tests")


def an_adapter(path: Path, base: Path, config: LlamaConfig = CONFIG, seed: int = 0) -> Path:
    """One that changes much, made for the base."""
    shape = AdapterShape(parse_targets(["q", "down"], config), 2, 4.0)
    parameters = add_adapter(build(config), shape, seed).parameters()
    dice = torch.Generator().manual_seed(seed)
    values = {name: 0.5 * torch.randn(p.shape, generator=dice) for name, p in parameters.items()}
    named = {"base": "Base of the tests", "base_sha256": sha256_of(base), "name": path.stem}
    return write_adapter(config, values, path, "run", 1, alpha=4.0, **named)  # type: ignore[arg-type]


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    return an_adapter(tmp_path / "notes.gguf", base)


def test_adapters_are_added_with_their_scales(base: Path, adapter: Path, printed: Printed, tmp_path: Path) -> None:
    other = an_adapter(tmp_path / "style.gguf", base, seed=1)
    plain = printed("generate", str(base), *GREEDY)
    assert printed("generate", str(base), "--adapter", f"{adapter}:0", *GREEDY) == plain
    both = ("--adapter", f"{adapter}:0.5", "--adapter", f"{other}:-1")
    changed = printed("generate", str(base), *both, *GREEDY)
    assert changed != plain
    out = tmp_path / "merged.gguf"
    said = printed("merge", str(base), f"{adapter}:0.5", f"{other}:-1", str(out))
    assert "base.gguf + notes × 0.5, style × -1 →" in said and said.endswith(", f32)\n")
    assert printed("generate", str(out), *GREEDY) == changed
    model = linnet.load(base, adapter=[f"{adapter}:0.5", f"{other}:-1"])
    assert model.generate("the", temperature=0, max_tokens=12) in changed
    assert "with notes × 0.5, style × -1" in repr(model)
    assert linnet.generate(base, "the", temperature=0, max_tokens=12, adapter=f"{adapter}:0") in plain


def test_eval_scores_with_adapters_and_says_so(base: Path, adapter: Path, printed: Printed, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("these are the letters that the model has to guess " * 20)
    words = ("eval", str(base), "--corpus", str(text), "--cache", str(tmp_path / "cache"), "--json")
    plain, adapted, none = (
        json.loads(printed(*words, *more)) for more in ((), ("--adapter", str(adapter)), ("--adapter", f"{adapter}:0"))
    )
    assert plain["loss"] == none["loss"] != adapted["loss"]
    assert adapted["adapters"] == [{"file": str(adapter), "scale": 1.0}] and adapted["base"] == str(base)
    assert f"adapter     {adapter}" in printed(*words[:-1], "--adapter", str(adapter))


def test_inspect_tells_what_an_adapter_changes(base: Path, adapter: Path, printed: Printed) -> None:
    out = printed("inspect", str(adapter))
    assert "rank 2 · alpha 4 · of attn_q, ffn_down" in out and "Base of the tests (sha256 " in out
    card = json.loads(printed("inspect", str(adapter), "--json"))
    assert card["kind"] == "adapter" and card["adapter"]["base_sha256"] == sha256_of(base)
    assert "llama.cpp applies it to its base" in printed("check", str(adapter))


def test_what_is_no_model_is_no_base(base: Path, adapter: Path, said: Said) -> None:
    out, rows = base.with_name("out.gguf"), base.with_name("rows.jsonl")
    write_jsonl(rows, [{"prompt": "a", "choices": ["b", "c"], "answer": 0}])
    lens, vit = lens_file(base.with_name("lens.gguf")), vit_file(base.with_name("vit.gguf"))
    for path in (lens, vit):
        for words in (
            ("generate", str(path), "--prompt", "a", "--adapter", str(adapter)),
            ("chat", str(path), "--adapter", str(adapter)),
            ("eval", str(path), "--choices", str(rows), "--adapter", str(adapter)),
            ("merge", str(path), str(adapter), str(out)),
            ("merge", str(base), str(path), str(out)),
        ):
            code, _, err = said(*words)
            assert code in (1, 2) and err.count("\n") == 1 and str(path) in err, words
    code, _, err = said("merge", str(adapter), str(adapter), str(out))
    assert code == 2 and err.count("\n") == 1 and "is an adapter" in err
    assert not out.exists()


def test_a_merged_model_has_the_type_that_was_asked_for(base: Path, adapter: Path, printed: Printed) -> None:
    out = base.with_name("out.gguf")
    for type in ("f16", "q8_0"):
        assert f", {type})" in printed("merge", str(base), str(adapter), str(out), "--type", type, "--force")
    with GGUFFile.open(out) as file:
        assert file.metadata["general.name"] == "Base of the tests"
        assert "general.run_id" not in file.metadata  # of the base: this is another model


def test_an_adapter_alone_asks_for_its_model(adapter: Path, said: Said) -> None:
    for command in ("generate", "eval"):
        code, _, err = said(command, str(adapter), "--prompt", "the")
        assert code == 2 and err.count("\n") == 1
        assert "is an adapter of Base of the tests" in err and f"beside it (--adapter {adapter})" in err


def test_an_adapter_of_another_base_is_named_and_may_be_forced(
    base: Path, adapter: Path, said: Said, printed: Printed
) -> None:
    other = base.with_name("other.gguf")
    write(CONFIG, build(CONFIG, seed=2).params(), other, "other", 1, tokenizer=tiny.byte_level_tokenizer())
    out = base.with_name("out.gguf")
    rows = write_jsonl(base.with_name("rows.jsonl"), [{"prompt": "a", "choices": ["b", "c"], "answer": 0}])
    beside = ("--adapter", str(adapter))
    for words in (
        ("generate", str(other), *beside),
        ("chat", str(other), *beside),
        ("eval", str(other), "--prompt", "a", *beside),
        ("eval", str(other), "--choices", str(rows), *beside),
        ("merge", str(other), str(adapter), str(out)),
    ):
        code, _, err = said(*words)
        assert code == 1 and err.count("\n") == 1
        assert "the adapter was made for another base; expected Base of the tests (sha256" in err
        assert "apply it all the same with --any-base" in err
    assert not out.exists()
    printed("merge", str(other), str(adapter), str(out), "--any-base")
    out.unlink()
    wider = LlamaConfig(vocab=tiny.VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=64)
    write(wider, build(wider).params(), other, "other", 1, tokenizer=tiny.byte_level_tokenizer())
    for words in (("generate", str(other), *beside), ("merge", str(other), str(adapter), str(out))):
        code, _, err = said(*words, "--any-base", *(("--force",) if words[0] == "merge" else ()))
        assert code == 1 and err.count("\n") == 1
        assert "expected a base with one of [64, 64], found one of [32, 32] in" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["merge", "BASE", "OUT"], "there is no adapter to add to"),
        (["merge", "BASE"], "merge: name the file to write: linnet merge MODEL ADAPTER OUT.gguf"),
        (["merge", "BASE", "BASE", "OUT"], "is no adapter; expected 'adapter', found 'model'"),
        (["merge", "BASE", "ADAPTER", "ADAPTER"], "is there already; say --force to replace it"),
        (["merge", "BASE", "ADAPTER", "BASE", "--force"], "is a file to be read; name another"),
        (["merge", "BASE", "ADAPTER:nan", "OUT"], "cannot be applied with the scale nan: give a finite number"),
        (["generate", "BASE", "--adapter", "ADAPTER:1e300"], "cannot be applied with the scale 1e300: give a finite"),
        (["merge", "BASE", "ADAPTER:1e38", "ADAPTER:1e38", "OUT"], "it has numbers that are not finite; expected fin"),
        (["generate", "BASE", "--adapter", "none.gguf"], "there is no file none.gguf"),
        (["convert", "BASE", "OUT"], "convert: --type needs a value: f32, f16, bf16 or q8_0"),
        (["convert", "BASE", "OUT", "--type", "f16", "--base", "BASE"], "--base is for adapters of peft"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    base: Path, adapter: Path, said: Said, words: list[str], expected: str
) -> None:
    names = {"BASE": str(base), "ADAPTER": str(adapter), "OUT": str(base.with_name("out.gguf"))}
    before = {path: path.read_bytes() for path in (base, adapter)}
    parted = (word.partition(":") for word in words)
    code, _, err = said(*(names.get(name, name) + colon + scale for name, colon, scale in parted))
    assert code in (1, 2) and err.count("\n") == 1 and expected in err
    assert not base.with_name("out.gguf").exists()
    assert {path: path.read_bytes() for path in before} == before


def test_peft_and_back_on_the_command_line(base: Path, adapter: Path, printed: Printed, said: Said) -> None:
    folder, back = base.with_name("theirs"), base.with_name("back.gguf")
    assert "an adapter for peft" in printed("convert", str(adapter), str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    code, _, err = said("convert", str(folder), str(back))
    assert code == 2 and "which does not say what its base is like: give it, --base" in err
    assert "an adapter)" in printed("convert", str(folder), str(back), "--base", str(base))
    one, other = AdapterFile.read(adapter), AdapterFile.read(back)
    ids = torch.arange(12)[None]
    with torch.no_grad():
        logits = [load(base, task="text", adapters=[(file, 1.0)])(ids) for file in (one, other)]
    assert torch.allclose(*logits, atol=1e-6)
    code, _, err = said("convert", str(adapter), str(folder))
    assert code == 2 and "is there already" in err


def test_pairs_of_several_ranks_are_ones_that_peft_knows(base: Path, printed: Printed, said: Said) -> None:
    """As other tools write them, without an alpha; and peft's folder is no MODEL."""
    dice, path = np.random.default_rng(0), base.with_name("mixed.gguf")
    metadata = MetadataBlock().text("general.architecture", "llama").text("general.type", "adapter")
    metadata.text("adapter.type", "lora").u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 2)
    writer = GGUFWriter(metadata)
    for name, rank in (("blk.0.attn_output.weight", 4), ("blk.1.attn_output.weight", 2)):
        for half, shape in (("lora_a", (rank, 64)), ("lora_b", (64, rank))):
            writer.add(f"{name}.{half}", dice.standard_normal(shape, np.float32), GGMLType.F32)
    writer.write(path)
    folder, back = base.with_name("theirs"), base.with_name("back.gguf")
    printed("convert", str(path), str(folder))
    settings = json.loads((folder / "adapter_config.json").read_text())
    lower = {"model.layers.1.self_attn.o_proj": 2}
    assert (settings["r"], settings["rank_pattern"], settings["alpha_pattern"]) == (4, lower, lower)
    printed("convert", str(folder), str(back), "--base", str(base))
    ids = torch.arange(12)[None]
    with torch.no_grad():
        adapters = [[(AdapterFile.read(file), 1.0)] for file in (path, back)]
        logits = [load(base, task="text", adapters=adapter)(ids) for adapter in adapters]
    assert torch.allclose(*logits, atol=1e-6)
    code, _, err = said("generate", str(base), "--adapter", str(folder))
    assert code == 2 and err.count("\n") == 1 and "is an adapter of peft: make a GGUF of it first" in err


def test_a_run_of_an_adapter_means_its_base_with_it(
    base: Path, said: Said, printed: Printed, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text"
    text.mkdir()
    for number in range(20):
        (text / f"{number}.txt").write_text(f"entry {number} of the ledger is closed with blue cord " * 4)
    flags = {"ctx": 32, "batch": 2, "steps": 4, "lr": 1e-2, "eval_tokens": 256, "held_out": 0.3, "device": "cpu"}
    run = linnet.train("lora", base=base, corpus=text, **flags, sample_every=0)
    written = printed("generate", run.id, *GREEDY)
    checkpoint = Path(run.path) / "weights/step_4.gguf"
    assert printed("generate", str(base), "--adapter", run.id, *GREEDY) == written
    assert printed("generate", str(checkpoint), *GREEDY) == written
    scored = json.loads(printed("eval", run.id, "--tokens", "256", "--json"))
    assert scored["loss"] == pytest.approx(run.metrics()["validation/loss"].value[-1], rel=1e-5)
    out = tmp_path / "out.gguf"
    printed("merge", run.id, str(out))
    assert printed("generate", str(out), *GREEDY) == written
    moved = shutil.move(base, base.with_name("moved.gguf"))
    code, _, err = said("generate", run.id, *GREEDY)
    assert code == 2 and err.count("\n") == 1
    assert f"has trained an adapter of {base}, and there is no such file any more" in err
    assert f"with the adapter beside it (--adapter {run.id})" in err
    assert printed("generate", str(moved), "--adapter", run.id, *GREEDY) == written
