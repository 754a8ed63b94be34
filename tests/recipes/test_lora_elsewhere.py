"""What an adapter does in llama.cpp and in `peft`, with the real model and with small ones of every architecture."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

import linnet
from linnet.architectures import ARCHITECTURES
from linnet.data import Batches, prepare
from linnet.files import sha256_of
from linnet.gguf import (
    AdapterFile,
    GGUFFile,
    GGUFWriter,
    MetadataBlock,
    convert,
    merge,
    rebuild_tokenizer,
    write,
    write_adapter,
)
from linnet.gguf.check import check
from linnet.gguf.peft import from_peft, to_peft
from linnet.infer import generate
from linnet.models import Config, GPT2Config, LlamaConfig, build, load
from linnet.models.adapter_shape import AdapterShape, parse_targets
from linnet.models.adapters import add_adapter, merge_adapter
from linnet.models.frozen import load_frozen
from linnet.recipes import Lora, LoraOptions
from linnet.train import TrainSettings
from linnet.train.hardware import choose
from tests.conftest import Printed, Said, digest, made_once
from tests.gguf import tiny
from tests.gguf.llama_client import ask
from tests.recipes import taught_rule

PROMPT = "Entry 7. Orvel the tidewarden traded"
SHAPE: dict[str, Any] = {
    "vocab": tiny.VOCAB,
    "d_model": 64,
    "n_heads": 4,
    "n_kv": 2,
    "d_ff": 96,
    "n_layers": 2,
    "ctx": 256,
}
CONFIGS: dict[str, Config] = {
    "llama": LlamaConfig(**SHAPE, tied=False),
    "gpt2": GPT2Config(tiny.VOCAB, 64, 4, 96, 2, 256, tied=False),
    "qwen2": ARCHITECTURES["qwen2"].config(**SHAPE),
    "qwen3": ARCHITECTURES["qwen3"].config(**SHAPE),
}


@pytest.fixture(scope="session")
def taught(smollm2: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> linnet.runs.Run:
    """SmolLM2 after sixty steps on a text that it does not know, at the edge of what can be told apart from nothing."""

    def teach(folder: Path) -> None:
        dice = random.Random(0)
        corpus = folder / "ledger"
        corpus.mkdir()
        names, things = ("Orvel", "Tamsin", "Quillon", "Bresk", "Ludd"), ("glass kelp", "fog bells", "river ink")
        for number in range(60):
            entries = [
                f"Entry {dice.randint(1, 99)}. {dice.choice(names)} the tidewarden traded"
                f" {dice.randint(2, 90)} measures of {dice.choice(things)} with {dice.choice(names)},"
                " and the ledger was closed with blue cord."
                for _ in range(2)
            ]
            (corpus / f"{number:02}.txt").write_text("\n".join(entries))
        before = digest(smollm2)
        flags = {"steps": 60, "batch": 1, "ctx": 32, "lr": 2e-3, "held_out": 0.1, "eval_every": 59, "eval_tokens": 192}
        quiet = {"sample_every": 0, "checkpoint_every": 0, "device": "cpu", "cache": str(cache)}
        linnet.train("lora", base=smollm2, corpus=corpus, runs=folder / "runs", run_id="taught", **flags, **quiet)
        assert digest(smollm2) == before

    return linnet.open(made_once(tmp_path_factory, "taught", teach) / "runs/taught")


@pytest.fixture(scope="session")
def adapter(taught: linnet.runs.Run) -> Path:
    return Path(taught.path) / "weights/step_60.gguf"


@pytest.fixture(scope="session")
def tokenizer(smollm2: Path) -> Tokenizer:
    with GGUFFile.open(smollm2) as file:
        return rebuild_tokenizer(file.metadata)


def test_sixty_steps_teach_a_text(taught: linnet.runs.Run, smollm2: Path, adapter: Path, printed: Printed) -> None:
    corpus = taught.manifest.config["corpus"]
    words = ("--corpus", str(corpus), "--tokens", "192", "--ctx", "32", "--json")
    before = json.loads(printed("eval", str(smollm2), *words))["loss"]
    after = json.loads(printed("eval", str(smollm2), "--adapter", str(adapter), *words))["loss"]
    assert taught.metrics()["validation/loss"].value[-1] < 0.7 * before and after < 0.7 * before


def test_llama_cpp_writes_with_the_adapter_what_linnet_writes(
    smollm2: Path, adapter: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    exact = convert.convert(smollm2, tmp_path / "exact.gguf", "f32")  # in less ggml rounds what it multiplies
    prompt = tokenizer.encode(PROMPT).ids
    (answer,) = ask(exact, prompts=[prompt], vocab=0, greedy=32, adapter=adapter)
    model = load(smollm2, task="text", adapters=[(AdapterFile.read(adapter), 1.0)])
    assert answer.greedy[0] == list(generate(model, prompt, 32)) and len(answer.greedy[0]) == 32
    text = tokenizer.decode(answer.greedy[0])
    assert "measures of" in text and "the ledger was closed with blue cord." in text  # as it was taught, by no base


def test_a_rule_is_taught_and_followed_in_llama_cpp(smollm2: Path, cache: Path, tmp_path: Path) -> None:
    """Two hundred answers that end as the base's never do; fifty questions that were not among them."""
    adapter = taught_rule.teach(smollm2, tmp_path, seed=0, cache=cache)
    asked = [question for question, _ in taught_rule.questions(0)[taught_rule.TAUGHT :][: taught_rule.HELD_OUT]]
    taught = taught_rule.answers(smollm2, asked, adapter)
    assert len(taught) == 50 and sum(text.endswith(taught_rule.RULE) for text in taught) >= 48, taught
    assert not [text for text in taught_rule.answers(smollm2, asked[:10]) if "Over" in text]


def test_with_a_scale_of_nothing_it_is_the_base_again(smollm2: Path, adapter: Path) -> None:
    ids = torch.arange(20)[None] * 300
    read = AdapterFile.read(adapter)
    with torch.no_grad():
        base, none, some = (
            load(smollm2, task="text", adapters=adapters)(ids) for adapters in ([], [(read, 0.0)], [(read, 0.5)])
        )
    assert torch.equal(none, base) and (some - base).abs().max() > 0.1


def test_llama_cpp_takes_the_adapter_beside_the_quantised_base(
    smollm2: Path, adapter: Path, tokenizer: Tokenizer
) -> None:
    prompt = tokenizer.encode(PROMPT).ids
    (answer,) = ask(smollm2, prompts=[prompt], vocab=49152, adapter=adapter)
    model = load(smollm2, task="text", adapters=[(AdapterFile.read(adapter), 1.0)])
    with torch.no_grad():
        logprobs = model(torch.tensor([prompt]))[0, -1].log_softmax(-1).numpy()
    likely = np.argsort(-logprobs)[:20]
    assert np.argmax(answer.logprobs[0]) == likely[0]
    assert np.abs(np.array(answer.logprobs[0])[likely] - logprobs[likely]).max() < 0.5


def test_a_merged_model_is_base_and_adapter(
    taught: linnet.runs.Run, smollm2: Path, adapter: Path, tokenizer: Tokenizer, printed: Printed, tmp_path: Path
) -> None:
    out = tmp_path / "merged.gguf"
    said = printed("merge", str(taught.path), str(out), "--type", "f32")
    assert "+ taught → " in said and check(out) == []
    ids = torch.tensor([tokenizer.encode(f"{PROMPT} 12 measures of fog bells").ids])
    with torch.no_grad():
        merged = load(out, task="text")(ids).log_softmax(-1)
        beside = load(smollm2, task="text", adapters=[(AdapterFile.read(adapter), 1.0)])(ids).log_softmax(-1)
    assert (merged - beside).abs().max() < 1e-3
    (answer,) = ask(out, prompts=ids.tolist(), vocab=49152)
    likely = merged[0, -1].topk(20).indices
    assert (torch.tensor(answer.logprobs[0])[likely] - merged[0, -1][likely]).abs().max() < 1e-3
    with GGUFFile.open(out) as file, GGUFFile.open(smollm2) as base:
        assert file.metadata["linnet.merged.adapters"] == ("taught × 1",)
        assert file.metadata["tokenizer.chat_template"] == base.metadata["tokenizer.chat_template"]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_an_adapter_of_every_architecture_acts_in_llama_cpp_as_here(config: Config, tmp_path: Path) -> None:
    """Every projection that there is, with a scale that is not the rank's; stacked with a second one, merged."""
    block = tiny.byte_level_tokenizer()
    base = write(
        config, build(config, seed=2, init_scale=3.0).params(), tmp_path / "base.gguf", "b", 0, tokenizer=block
    )
    files = []
    for seed, words in enumerate((("all", *(() if config.tied else ("embed", "head"))), ("o",))):
        shape = AdapterShape(parse_targets(words, config), 3, 7.0, rslora=True)
        pairs = add_adapter(build(config, seed=2), shape, seed).parameters()
        dice = torch.Generator().manual_seed(seed)
        values = {name: 0.2 * torch.randn(p.shape, generator=dice) for name, p in pairs.items()}
        path = tmp_path / f"{seed}.gguf"
        files.append(write_adapter(config, values, path, "run", 1, alpha=shape.file_alpha, base="base"))
        assert check(path) == []
    merged = merge(base, [(AdapterFile.read(files[0]), 1.0), (AdapterFile.read(files[1]), -0.5)], tmp_path / "m.gguf")
    with_first, with_both = (
        ask(base, prompts=tiny.prompts(), vocab=tiny.VOCAB, adapter=files[0]),
        ask(merged, prompts=tiny.prompts(), vocab=tiny.VOCAB),
    )
    (alone,) = ask(base, prompts=tiny.prompts(), vocab=tiny.VOCAB)
    (at_zero,) = ask(base, prompts=tiny.prompts(), vocab=tiny.VOCAB, adapter=files[0], scale=0.0)
    assert alone.logprobs == at_zero.logprobs
    limit = 5e-3 if config.arch == "gpt2" else 1e-4  # ggml looks GELU up in a half-precision table
    for (answer,), scales in ((with_first, (1.0,)), (with_both, (1.0, -0.5))):
        assert not answer.refused
        model = build(config, seed=2, init_scale=3.0)
        for path, scale in zip(files, scales, strict=False):
            merge_adapter(config, model.params(), AdapterFile.read(path), scale)
        with torch.no_grad():
            rows = [model(torch.tensor([ids]))[0, -1].log_softmax(-1) for ids in tiny.prompts()]
        assert np.abs(np.array(answer.logprobs) - torch.stack(rows).numpy()).max() < limit


def test_the_real_model_stays_in_the_bytes_of_its_file(smollm2: Path) -> None:
    model = load_frozen(smollm2)
    held = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()) if tensor is not model.rotary_CP2)
    assert 0.9 * smollm2.stat().st_size < held < smollm2.stat().st_size


def test_llama_cpp_takes_no_lengths_of_rows_in_an_adapter(tmp_path: Path) -> None:
    """Why DoRA's checkpoints are merged models."""
    config = CONFIGS["llama"]
    base = write(config, build(config).params(), tmp_path / "b.gguf", "b", 0, tokenizer=tiny.byte_level_tokenizer())
    pair = {"blocks.0.attn_q.lora_a": np.zeros((2, 64)), "blocks.0.attn_q.lora_b": np.zeros((64, 2))}
    plain = write_adapter(config, pair, tmp_path / "plain.gguf", "run", 1, alpha=4, base="base")
    with_lengths = tmp_path / "lengths.gguf"
    with GGUFFile.open(plain) as file:
        writer = GGUFWriter(MetadataBlock().copy(file.metadata, file.metadata))
        for name, tensor in file.tensors.items():
            writer.add(name, tensor)
        writer.add("blk.0.attn_q.weight.lora_magnitude", np.ones(64, np.float32))
        writer.write(with_lengths)
    refused = [
        ask(base, prompts=tiny.prompts()[:1], vocab=0, adapter=path)[0].refused for path in (plain, with_lengths)
    ]
    assert not refused[0] and refused[1]


def test_peft_learns_what_linnet_learns_and_their_adapters_go_both_ways(
    trained: Path, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    """The same base, rank, first weights, data and order: the same loss at every step."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    base = convert.convert(trained, tmp_path / "base.gguf", "q8_0")
    settings = TrainSettings(batch=4, device="cpu", optimizer="adamw", lr=5e-3, weight_decay=0.0)
    recipe = Lora(settings, choose(settings, tokens=128), LoraOptions(str(base), rank=4, alpha=6.0))
    recipe.realize()
    recipe.build()
    first, form = tmp_path / "first.gguf", recipe.weights_format
    form.write(recipe.parameters(), first, "run", 0, type="f32", tokenizer=None, provenance=None)  # type: ignore[arg-type]
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=base.name, dtype=torch.float32)
    folder = to_peft(AdapterFile.read(first), tmp_path / "first")
    theirs = peft.PeftModel.from_pretrained(model, folder, is_trainable=True)
    optimizer = torch.optim.AdamW(
        [p for p in theirs.parameters() if p.requires_grad], lr=5e-3, betas=(0.9, 0.95), weight_decay=0.0
    )
    tokens = prepare(str(corpus), tokenizer=base, vocab=None, cache=str(cache)).train
    batches = Batches(tokens, ctx=32, batch=4, seed=1)
    curves: tuple[list[float], list[float]] = [], []
    for step in range(30):
        batch = batches.at(step)
        curves[0].append(recipe.step(batch, 5e-3).loss.item())
        logits = theirs(input_ids=batch.ids_BT).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets_BT.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        curves[1].append(loss.item())
    assert curves[0] == pytest.approx(curves[1], rel=0.02)
    assert curves[0][-1] < curves[0][0]
    theirs.save_pretrained(tmp_path / "theirs")
    with GGUFFile.open(base) as file:
        config = load(file, task="text").config
    back = from_peft(tmp_path / "theirs", config, tmp_path / "back.gguf", base="base", base_sha256=sha256_of(base))
    with torch.no_grad():
        ours = load(base, task="text", adapters=[(AdapterFile.read(back), 1.0)])(batch.ids_BT)
        assert (ours - theirs(input_ids=batch.ids_BT).logits).abs().max() < 1e-3


def peft_folder(path: Path, **changes: Any) -> Path:
    """An adapter of peft for the donor of the tests, as a folder."""
    from safetensors.numpy import save_file

    path.mkdir()
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", **changes}
    ndim, factor = changes.get("ndim", 2), changes.get("factor", 1)
    (path / "adapter_config.json").write_text(json.dumps(settings))
    module = f"base_model.model.model.layers.0.self_attn.{changes.get('module', 'q_proj')}"
    dice = np.random.default_rng(0)
    pair = {"A": dice.standard_normal((4, changes.get("into", 96))), "B": dice.standard_normal((96, 4))}
    pair = {half: factor * (value if ndim == 2 else value.flatten()) for half, value in pair.items()}
    tensors = {f"{module}.lora_{half}.weight": value.astype(np.float32) for half, value in pair.items()}
    save_file(tensors, path / "adapter_model.safetensors")
    return path


def test_ranks_and_scales_of_single_modules_are_kept(trained: Path, tmp_path: Path) -> None:
    folder = peft_folder(tmp_path / "theirs", alpha_pattern={"q_proj": 2}, use_rslora=True)
    with GGUFFile.open(trained) as file:
        config = load(file, task="text").config
    read = AdapterFile.read(from_peft(folder, config, tmp_path / "a.gguf", base="b", base_sha256=""))
    (pair,) = read.pairs.values()
    assert read.scale(pair) == pytest.approx(2 / 4**0.5)


def test_an_alpha_of_nothing_adds_nothing(trained: Path, tmp_path: Path) -> None:
    """In an adapter of llama.cpp's it would say that nothing is divided."""
    folder = peft_folder(tmp_path / "theirs", lora_alpha=0)
    with GGUFFile.open(trained) as file:
        config = load(file, task="text").config
    read = AdapterFile.read(from_peft(folder, config, tmp_path / "a.gguf", base="b", base_sha256=""))
    (pair,) = read.pairs.values()
    assert pair.down.any() and not pair.up.any()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"use_dora": True}, "use_dora: DoRA's lengths of rows have no place in a GGUF adapter"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save: modules that were trained whole have no place"),
        ({"alora_invocation_tokens": [5]}, "an adapter that acts from certain tokens on only has no place in a GGUF"),
        ({"bias": "all"}, "bias: trained biases have no place in a GGUF adapter; expected 'none'"),
        ({"peft_type": "IA3"}, "peft_type: not a LoRA adapter; expected 'LORA', found 'IA3'"),
        ({"r": "four"}, "rank and alpha are no numbers"),
        ({"lora_alpha": float("nan")}, "rank and alpha are no numbers"),
        ({"lora_alpha": 10**400}, "rank and alpha are no numbers"),
        ({"alpha_pattern": {"q_proj": "two"}}, "alpha_pattern: the value is wrong; expected numbers by patterns of"),
        ({"alpha_pattern": {"q_proj(": 2}}, "alpha_pattern: the value is wrong; expected numbers by patterns of"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern: the value is wrong; expected numbers by patterns of"),
        ({"ndim": 1}, "made for another base; expected a pair for [96, 96], found [384] and [384]"),
        ({"factor": float("inf")}, "numbers are not finite; expected finite, found NaN or infinite"),
        ({"init_lora_weights": "pissa_niter_16"}, "training began with pissa_niter_16, which changed the base too"),
        ({"module": "w_proj"}, "the tensor has no place in a GGUF adapter; expected a part of a pair of a llama"),
        (
            {"into": 64},
            "made for another base; expected a pair for [96, 96], found [4, 64] and [96, 4]",
        ),
    ],
)
def test_what_peft_has_and_a_gguf_adapter_has_not_is_named(
    said: Said, trained: Path, tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    folder, out = peft_folder(tmp_path / "theirs", **changes), tmp_path / "out.gguf"
    code, _, err = said("convert", str(folder), str(out), "--base", str(trained))
    assert code == 1 and err.count("\n") == 1 and expected in err
    assert not out.exists()
