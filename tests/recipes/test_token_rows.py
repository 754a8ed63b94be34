"""Rows found again under another tokenizer: by what a token stands for, not by how its file spells it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet
from linnet import gguf
from linnet.gguf.token_spelling import byte_letters, token_bytes
from linnet.gguf.tokenizer_write import tokenizer_block, train_tokenizer
from linnet.recipes.token_rows import find_rows
from tests.conftest import Said
from tests.gguf.tiny_llama import plain


def keys(path: Path) -> dict[str, Any]:
    with gguf.GGUFFile.open(path) as file:
        return {key: file.metadata[key] for key in file.metadata if key.startswith("tokenizer.")}


SENTENCE_PIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ("<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "▁", "d", "e", "f", "▁d", "ef", "▁def"),
    "tokenizer.ggml.scores": (0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0),
    "tokenizer.ggml.token_type": (2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1),
    "tokenizer.ggml.eos_token_id": 2,
}
BYTE_LEVEL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ("<|end|>", "Ġdef", "Ċ", "def", "Ã", "eĊ", "[PAD6]", "Ãd"),
    "tokenizer.ggml.token_type": (3, 1, 1, 1, 1, 1, 5, 1),
    "tokenizer.ggml.eos_token_id": 0,
}


def sources(new: dict[str, Any], donor: dict[str, Any], pieces: bool) -> list[list[int]]:
    rows = find_rows(donor, new, pieces=pieces)
    return [rows.of[a:b].tolist() for a, b in zip(rows.first[:-1], rows.first[1:], strict=True)]


def test_tokens_of_two_kinds_are_matched_by_their_bytes() -> None:
    found = sources(BYTE_LEVEL, SENTENCE_PIECE, pieces=False)
    # the end of a text, " def", a newline; "def" is no token; the first byte of é; "e\n" is none; unused; no letter
    assert found == [[2], [11], [3], [], [4], [], [], []]


def test_the_rest_is_made_of_the_donors_pieces() -> None:
    found = sources(BYTE_LEVEL, SENTENCE_PIECE, pieces=True)
    assert found == [[2], [11], [3], [6, 10], [4], [7, 3], [], [4, 6]]
    table = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
    rows = find_rows(SENTENCE_PIECE, BYTE_LEVEL, pieces=True)
    taken = rows.take(table)
    assert np.array_equal(taken[1], table[11])
    assert np.allclose(taken[3], table[[6, 10]].mean(0))
    assert np.abs(taken[6] - table.mean(0)).max() < 4 * table.std()  # drawn, as large as the others
    assert np.array_equal(taken, rows.take(table))
    assert rows.coverage == 7 / 8
    assert rows.words == ("4 of 8 rows are tokens of the donor's (50.0%), 3 from the mean of their pieces, 1 new")


def test_a_real_vocabulary_found_in_smollm2s(smollm2: Path, trained: Path) -> None:
    donor, new = keys(smollm2), keys(trained)
    rows = find_rows(donor, new, pieces=True)
    assert 0.95 < rows.coverage < 1  # SmolLM2 has no tokens for bytes that no text contains
    texts, theirs = new["tokenizer.ggml.tokens"], donor["tokenizer.ggml.tokens"]
    tokenizer = gguf.tokenizer.rebuild_tokenizer(donor)
    exact = 0
    for number, (first, last) in enumerate(zip(rows.first[:-1], rows.first[1:], strict=True)):
        of = rows.of[first:last].tolist()
        exact += of == [theirs.index(texts[number])] if texts[number] in theirs else 0
        if len(of) > 1:
            assert tokenizer.decode(of) == tokenizer.decoder.decode([texts[number]])
    assert exact > 450


def test_the_same_tokenizer_is_taken_row_by_row(smollm2: Path) -> None:
    rows = find_rows(keys(smollm2), keys(smollm2), pieces=True)
    assert rows.same and rows.coverage == 1.0
    assert rows.words == "all 49,152 rows by the donor's own tokenizer"


@pytest.mark.parametrize("tokens", ["pieces", "exact"])
def test_a_run_with_a_tokenizer_of_its_own_says_how_much_it_found(
    said: Said, smollm2: Path, trained: Path, corpus: Path, tokens: str
) -> None:
    words = ["train", "warm-start", "--donor", str(smollm2), "--tokenizer", str(trained), "--tokens", tokens]
    small = [
        "--d-model",
        "64",
        "--n-layers",
        "1",
        "--ctx",
        "32",
        "--batch",
        "2",
        "--steps",
        "2",
        "--sample-tokens",
        "4",
    ]
    code, out, err = said(*words, *small, "--corpus", str(corpus))
    assert code == 0, err
    assert "of 512 rows are tokens of the donor's (" in out
    run = linnet.open("latest")
    assert run.manifest.model["vocab"] == 512
    assert run.manifest.config["coverage"] == pytest.approx(1.0 if tokens == "pieces" else 0.95, abs=0.06)


def test_text_that_is_always_a_token_is_found_by_its_bytes() -> None:
    types = list(SENTENCE_PIECE["tokenizer.ggml.token_type"])
    types[11] = 4
    tokens = (*SENTENCE_PIECE["tokenizer.ggml.tokens"][:11], " def")
    donor = {**SENTENCE_PIECE, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": tuple(types)}
    assert sources(BYTE_LEVEL, donor, pieces=False)[1] == [11]


def test_what_the_donor_cannot_spell_is_new() -> None:
    new = {**BYTE_LEVEL, "tokenizer.ggml.tokens": ("<|end|>", "Ġdef", "z", "defz", "Ãz", "Ã", "[PAD6]", "zz")}
    # z is <unk> to the donor: rows of it would all be one row
    assert sources(new, SENTENCE_PIECE, pieces=True) == [[2], [11], [], [], [], [4], [], []]


@pytest.mark.parametrize(("names", "row"), [(("</s>", "<|eot_id|>"), 2), (("<|x|>", "<|eot_id|>"), 3)])
def test_the_end_of_a_text_is_not_the_end_of_a_turn(names: tuple[str, str], row: int) -> None:
    tokens = ("<unk>", "<s>", *names, *SENTENCE_PIECE["tokenizer.ggml.tokens"][4:])
    types = (2, 3, 3, 3, *SENTENCE_PIECE["tokenizer.ggml.token_type"][4:])
    keys = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.eos_token_id": 3}
    assert sources(BYTE_LEVEL, {**SENTENCE_PIECE, **keys}, pieces=True)[0] == [row]


def test_no_mean_is_the_row_of_another_token() -> None:
    new = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ("d", "fd", "df", "dd", "dfd")}
    rows = find_rows(SENTENCE_PIECE, new, pieces=True)
    table = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
    taken = rows.take(table)
    assert np.array_equal(taken[0], table[6])
    assert np.allclose(taken[1], table[[6, 8]].mean(0))
    assert 0 < np.abs(taken[2] - taken[1]).max() < 0.5
    assert 0 < np.abs(taken[3] - taken[0]).max() < 0.5, "d and d is no d"
    assert np.allclose(taken[4], table[[6, 6, 8]].mean(0))
    assert np.array_equal(taken, rows.take(table))


@cache
def every_byte() -> dict[str, Any]:
    tokenizer = train_tokenizer(["the cat sat on the mat, größer als 東京"] * 3, 280)
    return plain(tokenizer_block(tokenizer, eos="<|endoftext|>"))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=12) | st.text(min_size=1, max_size=8).map(str.encode), max_size=20))
def test_the_pieces_of_a_token_spell_it(tokens: list[bytes]) -> None:
    donor = every_byte()
    letters = {byte: letter for letter, byte in byte_letters().items()}
    texts = tuple(dict.fromkeys(["a", *("".join(letters[byte] for byte in token) for token in tokens)]))
    new = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": texts}
    theirs = token_bytes(donor)
    for text, ids in zip(token_bytes(new), sources(new, donor, pieces=True), strict=True):
        assert b"".join(theirs[id_] for id_ in ids) == text  # type: ignore[misc]
