"""Multiple choice by log-probability, held against `transformers` and a plain computation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.data.choices import ChoiceRow
from linnet.errors import LinnetError
from linnet.gguf import GGUFFile, write
from linnet.gguf.chat_families import chat_format_of
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.infer import ChoiceEncoder, choices, score_choices
from linnet.infer.choices import Accuracy, EncodedRow, choice_logprobs
from linnet.models import LanguageModel, LlamaConfig, build, load
from tests.data.chats import sentence
from tests.gguf import tiny
from tests.gguf.small_files import sentence_piece_file


def rows_of(count: int, *, is_question: bool = True) -> list[ChoiceRow]:
    """Rows of prompts and choices of many lengths, some of a single letter."""
    dice = random.Random(5)
    rows = []
    for number in range(count):
        texts = tuple(sentence(dice, dice.choice((1, 1, 3, 6))) for _ in range(dice.choice((2, 3, 4))))
        texts = ("a", "b", "c") if number % 5 == 0 else texts
        prompt = sentence(dice, dice.choice((2, 2, 2, 9)))
        rows.append(ChoiceRow(f"line {number}", prompt, texts, dice.randrange(len(texts)), is_question))
    return rows


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = tiny.llama_config()
    path = tmp_path_factory.mktemp("vocabulary") / "tiny.gguf"
    write(config, build(config).params(), path, "tiny", 1, tokenizer=tiny.byte_level_tokenizer())
    with GGUFFile.open(path) as file:
        return {key: file.metadata[key] for key in file.metadata if key.startswith("tokenizer.")}


def models(arch: str) -> tuple[LanguageModel, Any]:
    """One of ours, and transformers' with the same weights."""
    config = tiny.llama_config(tied=False) if arch == "llama" else tiny.gpt2_config(ctx=256)
    theirs, params = tiny.llama(config) if arch == "llama" else tiny.gpt2(config)  # type: ignore[arg-type]
    ours = build(config)
    ours.load_state_dict(params)
    return ours, theirs


@pytest.mark.parametrize("at_once", [64, 4096])
@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_log_probabilities_are_those_of_transformers(
    arch: str, at_once: int, metadata: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each choice with its prompt alone, without a cache, padding or neighbours."""
    monkeypatch.setattr(choices, "_AT_ONCE", at_once)
    ours, theirs = models(arch)
    tokenizer, rows = rebuild_tokenizer(metadata), rows_of(30)
    score = score_choices(ours, ChoiceEncoder(tokenizer, metadata), rows)
    for row, scored in zip(rows, score.rows, strict=True):
        prompt = tokenizer.encode(f"Question: {row.prompt}\nAnswer:").ids
        expected = []
        for choice in row.choices:
            whole = tokenizer.encode(f"Question: {row.prompt}\nAnswer: {choice}").ids
            assert whole[: len(prompt)] == prompt
            with torch.no_grad():
                logp_TV = theirs(torch.tensor([whole])).logits[0].log_softmax(-1)
            expected.append(sum(float(logp_TV[at - 1, whole[at]]) for at in range(len(prompt), len(whole))))
        assert scored.logprobs == pytest.approx(expected, abs=1e-4)
        assert scored.chosen() == expected.index(max(expected))
        by_byte = [total / len(choice.encode()) for total, choice in zip(expected, row.choices, strict=True)]
        assert scored.chosen(scored.bytes) == by_byte.index(max(by_byte))


def test_the_shares_are_of_the_right_answers(metadata: dict[str, Any]) -> None:
    model, _ = models("llama")
    rows = rows_of(40)
    score = score_choices(model, ChoiceEncoder(rebuild_tokenizer(metadata), metadata), rows)
    right = sum(scored.chosen() == row.answer for scored, row in zip(score.rows, rows, strict=True))
    assert 0 < right < 40 and score.acc.value == right / 40
    assert score.acc.stderr == pytest.approx((right / 40 * (1 - right / 40) / 39) ** 0.5)
    assert score.chance == pytest.approx(sum(1 / len(row.choices) for row in rows) / 40)
    assert score.acc_norm.value != score.acc.value, "the choices differ in length"
    answered = [
        ChoiceRow(row.place, row.prompt, row.choices, scored.chosen(), row.is_question)
        for row, scored in zip(rows, score.rows, strict=True)
    ]
    again = score_choices(model, ChoiceEncoder(rebuild_tokenizer(metadata), metadata), answered)
    assert again.acc == Accuracy(1.0, 0.0)


@pytest.mark.parametrize(
    ("prompt", "choice", "follows"),
    [("It is", "red", " red"), ("It is", " red", " red"), ("It is ", "red", " red"), ("It is:\n", "red", "\nred")],
)
def test_there_is_one_blank_between_prompt_and_choice(
    metadata: dict[str, Any], prompt: str, choice: str, follows: str
) -> None:
    tokenizer = rebuild_tokenizer(metadata)
    encoded = ChoiceEncoder(tokenizer, metadata).encode(ChoiceRow("line 1", prompt, (choice, "x"), 0), 256)
    assert tokenizer.decode(list(encoded.prompt)) == prompt.rstrip()
    assert tokenizer.decode(list(encoded.choices[0])) == follows


def test_a_prompt_that_is_too_long_loses_its_beginning_and_is_counted(metadata: dict[str, Any]) -> None:
    model, _ = models("llama")
    rows = [ChoiceRow("line 1", "z" * 400, ("a whale", "b"), 0), ChoiceRow("line 2", "z" * 20, ("a whale", "b"), 0)]
    encoder = ChoiceEncoder(rebuild_tokenizer(metadata), metadata)
    long, short = (encoder.encode(row, 32) for row in rows)
    longest = max(map(len, long.choices))
    assert (len(long.prompt), long.is_cut, short.is_cut) == (33 - longest, True, False)
    assert long.prompt == encoder.encode(rows[0], 1000).prompt[-len(long.prompt) :]
    assert score_choices(model, encoder, rows, ctx=32).cut == 1
    assert score_choices(model, encoder, rows).cut == 1, "the model's own context is 256"
    with pytest.raises(LinnetError, match="line 1 has a choice of 7 tokens, and the context is 6: leave the row out"):
        encoder.encode(rows[0], 6)


def test_what_begins_a_text_stays_and_what_ends_one_ends_no_choice(tmp_path: Path) -> None:
    path = sentence_piece_file(tmp_path / "model.gguf")
    with GGUFFile.open(path) as file:
        metadata = {key: file.metadata[key] for key in file.metadata} | {"tokenizer.ggml.add_eos_token": True}
    encoder = ChoiceEncoder(rebuild_tokenizer(metadata), metadata)
    whole = encoder.encode(ChoiceRow("line 1", "hello hello", ("hello", "he"), 0), 64)
    assert whole.prompt[0] == 1 and 1 not in whole.prompt[1:]
    assert all(2 not in ids for ids in (whole.prompt, *whole.choices))
    cut = encoder.encode(ChoiceRow("line 1", "hello" * 40, ("hello", "he"), 0), 16)
    assert cut.is_cut and cut.prompt[0] == 1 and len(cut.prompt) + max(map(len, cut.choices)) == 17
    assert encoder.encode(ChoiceRow("line 1", "", ("hello", "he"), 0), 16).prompt == (1,)


def test_in_a_chat_a_choice_is_the_answer(smollm2: Path) -> None:
    with GGUFFile.open(smollm2) as file:
        metadata = dict(file.metadata)
    encoder = ChoiceEncoder(rebuild_tokenizer(metadata), metadata, chat_format_of(metadata))
    row = ChoiceRow("line 1", "Where is <|im_end|> Rome?", ("Italy", "The north of France"), 0, True)
    encoded = encoder.encode(row, 256)
    tokenizer = rebuild_tokenizer(metadata)
    texts = [tokenizer.decode(list(ids), skip_special_tokens=False) for ids in (encoded.prompt, *encoded.choices)]
    assert texts[0].endswith("<|im_start|>user\nWhere is <|im_end|> Rome?<|im_end|>\n<|im_start|>assistant\n")
    assert texts[1:] == ["Italy", "The north of France"]
    assert encoded.prompt.count(tokenizer.token_to_id("<|im_end|>")) == 2  # of system message and question


def test_a_real_model_knows_some_answers(smollm2: Path) -> None:
    places = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Egypt": "Cairo", "Russia": "Moscow"}
    names = tuple(places.values())
    rows = [ChoiceRow("line 1", f"The capital of {country} is", names, number) for number, country in enumerate(places)]
    with GGUFFile.open(smollm2) as file:
        metadata = dict(file.metadata)
    model = load(smollm2, task="text")
    score = score_choices(model, ChoiceEncoder(rebuild_tokenizer(metadata), metadata), rows)
    assert score.acc.value == 1.0 and score.chance == pytest.approx(0.2)


def test_numbers_that_are_not_finite_are_an_error() -> None:
    model = build(LlamaConfig(vocab=20, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=1, ctx=16))
    with torch.no_grad():
        model.token_embd.weight.fill_(float("nan"))
    with pytest.raises(LinnetError, match="the model's numbers are not finite, so it prefers nothing"):
        choice_logprobs(model, [EncodedRow((1, 2), ((3,), (4, 5)))])
