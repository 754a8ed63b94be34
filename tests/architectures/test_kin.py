"""The architectures that are a llama but for a few lines: described once, and then everything works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from linnet.architectures import ARCHITECTURES, RopeScaling
from linnet.errors import UsageError
from linnet.gguf import GGUFError, GGUFFile, config_of, read_card, write
from linnet.gguf.check import check
from linnet.infer import generate
from linnet.models import KVCache, LanguageModel, build, from_transformers, load
from linnet.models.initial import allocate
from linnet.models.loading import config_from_transformers, params_from_transformers
from tests.conftest import SMALL, Said, digest, losses
from tests.gguf import tiny
from tests.gguf.llama_client import ask

SHAPE = {
    "vocab_size": tiny.VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
}
LINEAR = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6}}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, {}),
    "qwen2 untied, linear rope": (
        transformers.Qwen2Config,
        transformers.Qwen2ForCausalLM,
        {"tie_word_embeddings": False, **LINEAR},
    ),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {"head_dim": 16}),
    "qwen3 with wide heads": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {"head_dim": 32}),
}
NAMES = sorted({kind.split()[0] for kind in KINDS})


def peer(kind: str) -> Any:
    """A model of transformers with random weights, norms and biases included."""
    torch.manual_seed(0)
    config, model, changes = KINDS[kind]
    made = model(config(**SHAPE | changes)).float().eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.normal_(1.0, 0.2) if "norm" in name else parameter.normal_(0.0, 0.15)
    return made


def taken_over(theirs: Any) -> LanguageModel:
    config, params = from_transformers(theirs, task="text")
    model = allocate(config)
    model.load_state_dict(params)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_logits_loss_and_gradients_equal_those_of_transformers(kind: str) -> None:
    theirs = peer(kind)
    ours = taken_over(theirs)
    ids_BT = torch.randint(0, tiny.VOCAB, (3, 40), generator=torch.Generator().manual_seed(1))
    output = theirs(input_ids=ids_BT, labels=ids_BT)
    assert torch.allclose(ours(ids_BT), output.logits, atol=1e-5, rtol=1e-5)

    targets_BT = torch.cat((ids_BT[:, 1:], torch.full((3, 1), -1)), 1)
    loss = ours.loss(ids_BT, targets_BT)
    assert loss.item() == pytest.approx(output.loss.item(), abs=1e-5)
    loss.backward()
    output.loss.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    expected = params_from_transformers(ours.config, gradients)
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, expected[name], atol=1e-5, rtol=1e-3), name


def test_checkpoints_run_in_llama_cpp_with_our_logits_and_tokens(tmp_path: Path) -> None:
    models, files = {}, []
    for kind in KINDS:
        model = models[kind] = taken_over(peer(kind))
        path = tmp_path / f"{len(files)}.gguf"
        files.append(write(model.config, model.params(), path, "run", 1, tokenizer=tiny.byte_level_tokenizer()))
        assert check(path) == []
    answers = ask(*files, prompts=tiny.prompts(), vocab=tiny.VOCAB, greedy=16)
    for (kind, model), answer, path in zip(models.items(), answers, files, strict=True):
        assert not answer.refused, f"{kind}: {answer.refused}"
        back = load(path, task="text")
        assert back.config == model.config
        with torch.no_grad():
            rows = [back(torch.tensor([ids]))[0, -1].log_softmax(-1).numpy() for ids in tiny.prompts()]
        assert np.abs(np.array(answer.logprobs) - np.stack(rows)).max() < 1e-4, kind
        assert answer.greedy == [list(generate(back, ids, 16)) for ids in tiny.prompts()], kind


@pytest.mark.parametrize("name", NAMES)
def test_cached_logits_are_the_uncached_ones(name: str) -> None:
    model = taken_over(peer(name))
    ids_BT = torch.randint(0, tiny.VOCAB, (2, 60), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = KVCache(model.config, 64, batch=2)
        pieces = torch.cat([model(part, cache=cache) for part in ids_BT.split([1, 20, 1, 38], 1)], 1)
        assert torch.allclose(pieces, model(ids_BT), atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", [("--graph", "off"), ("--graph", "on", "--optimizer", "muon"), ("--dtype", "bfloat16")])
def test_training_resumes_to_the_bit(name: str, way: tuple[str, ...], said: Said, corpus: Path, tmp_path: Path) -> None:
    words = ["train", "from-scratch", "--corpus", str(corpus), *SMALL, "--arch", name, "--run-id", "a", *way]
    words += ["--schedule", "constant", "--warmup", "1"]
    assert said(*words, "--steps", "12", "--runs", str(tmp_path / "whole"))[0] == 0
    assert said(*words, "--steps", "6", "--runs", str(tmp_path / "cut"))[0] == 0
    assert said("resume", "a", "--steps", "12", "--runs", str(tmp_path / "cut"))[0] == 0
    whole, cut = losses(str(tmp_path / "whole/a")), losses(str(tmp_path / "cut/a"))
    assert cut == whole and len(whole) == 12 and whole[12] < whole[1]
    path = tmp_path / "whole/a/weights/step_12.gguf"
    assert digest(tmp_path / "cut/a/weights/step_12.gguf") == digest(path)
    card = read_card(path)
    assert (card.arch, card.sizes["d_model"], card.sizes["vocab"]) == (name, 64, 384)
    assert check(path) == []


@pytest.mark.parametrize("name", NAMES)
def test_presets_and_files_state_the_same_config(name: str, tmp_path: Path) -> None:
    (described,) = (each for each in ARCHITECTURES.values() if each.name == name)
    small = {"vocab": 32, "d_model": 16, "n_heads": 2, "n_kv": 1, "d_ff": 16, "n_layers": 1, "ctx": 32}
    for changes in ({}, {"head_dim": 12, "tied": False, "rope_scaling": RopeScaling("linear", 4.0)}):
        config = described.config(**small | changes)
        with GGUFFile.open(write(config, build(config).params(), tmp_path / "m.gguf", "m", 1)) as file:
            assert config_of(file) == config
    with pytest.raises(UsageError, match=f"rope_scaling 'llama3' does not belong to a {name}: use linear or none"):
        described.config(**small, rope_scaling=RopeScaling("llama3", 8.0, 16))
    with pytest.raises(GGUFError, match=r"attn_qkv.weight.*: the shape is wrong"):
        write(config, build(described.config(**small)).params(), tmp_path / "wrong.gguf", "m", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_sliding_windows_of_transformers_are_refused_by_name(kind: str) -> None:
    config, _, _ = KINDS[kind]
    with pytest.raises(UsageError, match="use_sliding_window True cannot be taken over: only False"):
        config_from_transformers(config(**SHAPE, use_sliding_window=True))
