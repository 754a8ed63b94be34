"""Rows found again under another tokenizer: by what a token stands for, not by how its file spells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import gguf
from linnet.recipes.token_rows import find_rows
from tests.conftest import Said


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
