"""Vocabularies that somebody made large, long or odd: rebuilt in time with their size, or refused in one line."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from linnet.cli import main
from linnet.gguf import GGUFError, GGUFFile, config_of, read_lens
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.recipes.donor import Donor
from tests.gguf.small_files import lens_file, llama_file, restated, sentence_piece_file, sentence_piece_tokenizer


def sentence_piece(*extra: str, types: list[int] | None = None) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", *extra]
    kinds = [2, 3, 3, 1, 1, 1, *(types or [1] * len(extra))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(-n) for n in range(len(tokens))],
        "tokenizer.ggml.token_type": kinds,
    }


def merges_one_by_one(metadata: dict[str, Any]) -> list[list[str]]:
    """Every way to make a token of two others, found by trying each cut."""
    scores = dict(zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"], strict=True))
    return [
        [text[:cut], text[cut:]]
        for text in sorted(scores, key=lambda text: -scores[text])
        for cut in range(len(text) - 1, 0, -1)
        if text[:cut] in scores and text[cut:] in scores
    ]


def test_merges_are_all_the_ways_to_make_a_token_the_best_first() -> None:
    import json

    dice = random.Random(7)
    words = {"".join(dice.choice("ab▁é漢😀") for _ in range(dice.randint(2, 7))) for _ in range(2000)}
    metadata = sentence_piece(*sorted(words), *("a" * n for n in range(8, 30)))
    dice.shuffle(metadata["tokenizer.ggml.scores"])
    model = json.loads(rebuild_tokenizer(metadata).model.__getstate__())
    assert model["merges"] == merges_one_by_one(metadata)


def test_a_token_of_a_megabyte_takes_no_time(tmp_path: Path) -> None:
    begun = time.process_time()
    tokenizer = rebuild_tokenizer(sentence_piece("aa", "a" * 1_000_000))
    assert tokenizer.decode(tokenizer.encode("aab a").ids) == "aab a"
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (sentence_piece(*("a" * n for n in range(2, 1500))), "can be cut in more ways"),
        (sentence_piece(*(f"<c{n}>" * 20 for n in range(8000)), types=[3] * 8000), "letters in all"),
    ],
    ids=["every length of one letter", "a megabyte of control tokens"],
)
def test_a_vocabulary_that_would_take_the_square_of_its_size_is_refused(metadata: dict[str, Any], words: str) -> None:
    begun = time.process_time()
    with pytest.raises(GGUFError, match=words):
        rebuild_tokenizer(metadata)
    assert time.process_time() - begun < 2


LONG = "x\x1b[2J" * 500_000


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer__ggml__model": ("string", LONG)},
        {"tokenizer__ggml__pre": ("string", LONG)},
        {"tokenizer__ggml__merges": ("array:string", [f"{LONG} {LONG}"])},
        {"tokenizer__ggml__tokens": ("array:string", [LONG, LONG])},
        {"llama__attention__key_length": ("string", LONG)},
        {"llama__rope__freq_base": ("string", LONG)},
        {"llama__rope__scaling__type": ("string", LONG)},
        {"general__architecture": ("string", LONG)},
        {"general__type": ("string", LONG), "llama__block_count": ("string", LONG)},
    ],
    ids=lambda changes: next(iter(changes)).replace("__", "."),
)
def test_an_error_line_is_short_and_clean_whatever_the_file_holds(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = restated(llama_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", **changes)
    for command in ("generate", "check", "eval", "inspect", "lens"):
        more = {"eval": ["--prompt", "x"], "lens": ["--d-model", "8", "--out", str(tmp_path / "lens.gguf"), "--force"]}
        main([command, str(path), *more.get(command, [])])
        said = capsys.readouterr()
        for line in (said.out + said.err).splitlines():
            assert "\x1b" not in line and len(line) <= 10_000 + len(str(path)), command
    with GGUFFile.open(path) as file:
        for reads in (lambda: rebuild_tokenizer(file.metadata), lambda: config_of(file)):
            try:
                reads()
            except GGUFError as error:
                assert "\x1b" not in str(error) and len(str(error)) < 1000 + len(str(path))


@pytest.mark.parametrize(
    "key", ["general.type", "general.name", "general.architecture", "linnet.recipe", "toy.\x1b[2J"]
)
def test_inspect_prints_nothing_that_steers_a_terminal(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = key.replace(".", "__")
    path = restated(
        llama_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", **{name: ("string", "\x1b]0;owned\x07\x1b[2J\u202e\x9b")}
    )
    assert main(["inspect", str(path), "--metadata", "--tensors"]) == 0
    said = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)


def test_generate_writes_bytes_that_are_no_letter_as_replacement_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    path = sentence_piece_file(tmp_path / "a.gguf", seed=3, tokenizer=sentence_piece_tokenizer())
    with GGUFFile.open(path) as file:
        tokenizer = rebuild_tokenizer(file.metadata)
    replaced = 0
    for seed in range(3):
        options = ["--prompt", "hello", "--max-tokens", "40", "--temperature", "1.5", "--top-p", "1", "--device", "cpu"]
        assert main(["generate", str(path), *options, "--seed", str(seed), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert main(["generate", str(path), *options, "--seed", str(seed)]) == 0
        streamed = capsys.readouterr().out
        whole = tokenizer.decode([*told["prompt_tokens"], *told["tokens"]])
        assert streamed == whole + "\n"
        assert "hello" + told["text"] == whole
        replaced += "\ufffd" in whole
    assert replaced


def test_errors_about_a_lens_or_a_donor_hold_no_control_characters(tmp_path: Path) -> None:
    lens = restated(lens_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", lens__d_model=("string", "\x1b[2J"))
    with pytest.raises(GGUFError) as caught:
        read_lens(lens)
    assert str(caught.value).isprintable()
    donor = restated(
        llama_file(tmp_path / "c.gguf"), tmp_path / "d.gguf", llama__embedding_length=("string", "\x1b[2J")
    )
    with pytest.raises(GGUFError) as caught:
        Donor(donor)
    assert str(caught.value).isprintable()
