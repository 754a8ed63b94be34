"""Someone's own loop: any of our models, or a Llama or GPT-2 of `transformers`, checkpointed for llama.cpp."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

import linnet
from linnet import gguf
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.gguf.tokenizer_write import train_tokenizer
from linnet.models import GPT2Config, LlamaConfig, build, load
from tests.gguf.llama_client import ask

VOCAB = 288
LLAMA = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """As many tokens as the models have rows, less a few: the rest is filled up."""
    return train_tokenizer(["the cat sat on the mat, then that hat"] * 10, 280)


def a_model(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "ours: llama":
        return build(LlamaConfig(vocab=VOCAB, d_model=64, n_heads=4, n_kv=2, d_ff=96, n_layers=2, ctx=64))
    if kind == "ours: gpt2":
        return build(GPT2Config(vocab=VOCAB, d_model=64, n_heads=4, d_ff=128, n_layers=2, ctx=64))
    if kind == "transformers: llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))
    config = transformers.GPT2Config(vocab_size=VOCAB, n_embd=64, n_head=4, n_layer=2, n_positions=64)
    return transformers.GPT2LMHeadModel(config)


def loss_of(model: Any, ids_BT: torch.Tensor) -> torch.Tensor:
    if isinstance(model, linnet.models.LanguageModel):
        return model.loss(ids_BT[:, :-1], ids_BT[:, 1:])
    loss: torch.Tensor = model(input_ids=ids_BT, labels=ids_BT).loss
    return loss


def logprobs(model: Any, prompts: list[list[int]]) -> np.ndarray:
    rows = []
    model.eval()
    with torch.no_grad():
        for prompt in prompts:
            out = model(torch.tensor([prompt]))
            rows.append(torch.log_softmax(getattr(out, "logits", out)[0, -1].float(), -1).numpy())
    return np.array(rows)


@pytest.mark.parametrize("kind", ["ours: llama", "ours: gpt2", "transformers: llama", "transformers: gpt2"])
def test_a_plain_loop_leaves_checkpoints_that_llama_cpp_agrees_with(kind: str, tokenizer: Tokenizer) -> None:
    model = a_model(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    prompts = [[72, 101, 108], list(range(60, 80)), [270, 40, 41, 42]]
    expected, files = [], []
    with linnet.start(arch=kind.split(": ")[1], system_every=0) as run:
        for step in (1, 2, 3):
            model.train()
            loss = loss_of(model, torch.randint(0, VOCAB, (4, 32), generator=generator))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.log(step, loss=loss)
            files.append(run.checkpoint(model, step, tokenizer=tokenizer))
            expected.append(logprobs(model, prompts))
    found = linnet.open("latest")
    assert found.checkpoints() == files
    assert gguf.resolve_link(found.path / "weights/latest").name == "step_3.gguf"
    events = [event.data for event in found.events().read_events() if event.kind == "checkpoint"]
    assert [event["path"] for event in events] == [f"weights/step_{n}.gguf" for n in (1, 2, 3)]
    with gguf.GGUFFile.open(files[-1]) as file:
        assert file.metadata["general.run_id"] == found.id
        assert file.metadata["linnet.train_loss"] == pytest.approx(float(found.metrics()["loss"].value[-1]))
        rebuilt = rebuild_tokenizer(file.metadata)
    assert rebuilt.encode("the hat").ids == tokenizer.encode("the hat").ids
    answers = ask(*files, prompts=prompts, vocab=VOCAB)
    assert not any(answer.refused for answer in answers)
    # llama.cpp looks GELU up in a table of half-precision numbers.
    close = 5e-3 if "gpt2" in kind else 1e-4
    for answer, ours in zip(answers, expected, strict=True):
        assert np.abs(np.array(answer.logprobs) - ours).max() <= close
    assert np.abs(expected[0] - expected[2]).max() > 10 * close  # it did train


def test_a_tokenizer_comes_from_transformers_or_out_of_a_gguf(tokenizer: Tokenizer) -> None:
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    model = a_model("ours: llama")
    with linnet.start(system_every=0) as run:
        first = run.checkpoint(model, 1, tokenizer=theirs)
        second = run.checkpoint(model, 2, tokenizer=first)
        third = run.checkpoint(model, 3, tokenizer=str(run.weights_dir / "latest"), type="q8_0")
        bare = run.checkpoint(model, 4)
    for path in (first, second, third):
        with gguf.GGUFFile.open(path) as file:
            assert rebuild_tokenizer(file.metadata).encode("the mat").ids == tokenizer.encode("the mat").ids
            assert file.metadata["tokenizer.ggml.eos_token_id"] == tokenizer.token_to_id("<|endoftext|>")
    with gguf.GGUFFile.open(bare) as file:
        assert file.metadata["tokenizer.ggml.model"] == "none"


def test_wrapped_and_half_precision_models_are_written_too() -> None:
    model = a_model("ours: llama")
    theirs = a_model("transformers: llama").to(torch.bfloat16)
    with linnet.start(system_every=0) as run:
        compiled = run.checkpoint(torch.compile(model), 1)
        halved = run.checkpoint(theirs, 2, type="bf16")
        compiled_within = run.checkpoint(torch.nn.DataParallel(torch.compile(model)), 3)  # as nanoGPT wraps its own
        compiled_around = run.checkpoint(torch.compile(torch.nn.DataParallel(model)), 4)
    for path in (compiled, compiled_within, compiled_around):
        assert torch.equal(load(path).token_embd.weight, model.token_embd.weight)
    assert torch.equal(load(halved).token_embd.weight, theirs.model.embed_tokens.weight.float())


def test_a_path_is_taken_as_a_checkpoint_that_is_there(tmp_path: Path) -> None:
    with linnet.start(system_every=0) as run:
        file = run.weights_dir / "mine.bin"
        file.write_bytes(b"12345")
        assert run.checkpoint(file, 7, loss=1.5) == file
        (event,) = [e.data for e in linnet.open("latest").events().read_events() if e.kind == "checkpoint"]
    assert (event["path"], event["bytes"], event["loss"]) == ("weights/mine.bin", 5, 1.5)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (torch.nn.Linear(2, 2), {}, "a Linear cannot be written as a GGUF: expected a model of linnet.models"),
        ("ours", {"type": "q4_0"}, "the file type cannot be written"),
        ("ours", {"tokenizer": "nowhere.gguf"}, "nowhere.gguf"),
        ("ours", {"tokenizer": 5}, "a tokenizer of type int is not understood"),
        ("bare", {}, "expected a LlamaForCausalLM or GPT2LMHeadModel"),
        ("mistral", {}, "type 'mistral' cannot be taken over"),
    ],
)
def test_nothing_that_goes_wrong_reaches_the_loop(
    model: Any, options: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    if model == "ours":
        model = a_model("ours: llama")
    elif model == "bare":
        model = transformers.LlamaModel(transformers.LlamaConfig(**LLAMA))
    elif model == "mistral":
        model = transformers.MistralForCausalLM(transformers.MistralConfig(**LLAMA))
    with linnet.start(system_every=0) as run, caplog.at_level(logging.WARNING, "linnet"):
        assert run.checkpoint(model, 1, **options) is None
    assert "checkpoint of step 1 was not written" in caplog.text and words in caplog.text
    found = linnet.open("latest")
    assert (found.status, found.checkpoints()) == ("completed", [])


def test_a_disk_that_refuses_is_warned_about_and_the_next_checkpoint_may_do(caplog: pytest.LogCaptureFixture) -> None:
    model = a_model("ours: llama")
    with linnet.start(system_every=0) as run, caplog.at_level(logging.WARNING, "linnet"):
        (run.run_dir / "weights").write_text("in the way")
        assert run.checkpoint(model, 1) is None
        (run.run_dir / "weights").unlink()
        assert run.checkpoint(model, 2) is not None
    assert "checkpoint of step 1 was not written" in caplog.text


def test_without_the_training_tools_the_warning_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr(importlib, "import_module", refuse)
    with linnet.start(system_every=0) as run, caplog.at_level(logging.WARNING, "linnet"):
        assert run.checkpoint(object(), 1) is None
    assert "pip install 'linnet[train]' (No module named 'torch')" in caplog.text
