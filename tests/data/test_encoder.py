"""The quick encoder gives the ids of `tokenizers`, on everything we could think of."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data import prepare
from linnet.data.tokenizer import Encoder, Vocabulary, word_pattern
from linnet.gguf.pretokenizers import PRES
from linnet.gguf.tokenizer_write import train_tokenizer
from tests.data.conftest import story
from tests.gguf.hard_strings import HARD_STRINGS

_NAMES = [pre.name for pre in PRES]
_ENCODERS: dict[str, Encoder] = {}


def encoder(pre: str) -> Encoder:
    if pre not in _ENCODERS:
        texts = [*HARD_STRINGS, *(story(k) for k in range(50))]
        tokenizer = train_tokenizer(texts, 900, pre=pre)
        _ENCODERS[pre] = Encoder(tokenizer, {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre})
    return _ENCODERS[pre]


def expected(found: Encoder, text: str) -> list[int]:
    ids: list[int] = found.tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def ids(found: Encoder, text: str) -> list[int]:
    return list(map(int, np.frombuffer(found.encode(text), found.dtype)))


@pytest.mark.parametrize("pre", _NAMES)
def test_ids_equal_tokenizers_on_hard_strings(pre: str) -> None:
    found = encoder(pre)
    for text in [*HARD_STRINGS, "<|endoftext|>", "x<|endoftext|>y", " " * 5000, "a" * 5000, "\n \n" * 500]:
        assert ids(found, text) == expected(found, text), repr(text)
    assert not found.remark


@pytest.mark.parametrize("pre", _NAMES)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=150, deadline=None)
def test_ids_equal_tokenizers_on_any_text(pre: str, text: str) -> None:
    found = encoder(pre)
    assert ids(found, text) == expected(found, text)


@pytest.mark.parametrize("pre", _NAMES)
def test_ids_equal_tokenizers_where_spaces_digits_signs_and_letters_meet(pre: str) -> None:
    found, chance = encoder(pre), random.Random(1)
    pool = " \t\n\r\x0b\x1c\x85\u2003'sStTlLdDvVeErRmMaZ09٣.,<|-_é漢字\u0301ſ🙂\x00\x7f\u200b²½Ⅷ\U0001e4d0"
    for _ in range(3000):
        text = "".join(chance.choices(pool, k=chance.randrange(1, 24)))
        assert ids(found, text) == expected(found, text), repr(text)


def test_every_character_is_cut_as_tokenizers_cuts_it() -> None:
    """All 139,000 that this Python knows; those it does not know leave the whole text to `tokenizers`."""
    pre, pattern = PRES[0].pre_tokenizer(), word_pattern(PRES[0].name)
    known = (chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co"))
    text = "".join(f"a{character}1 {character}.\n" for character in known)
    assert [span for _, span in pre.pre_tokenize_str(text)] == [match.span() for match in pattern.finditer(text)]


def test_a_donors_tokenizer_is_encoded_alike(smollm2: Path) -> None:
    found = Vocabulary(smollm2).encoder()
    assert not found.remark
    for text in [*HARD_STRINGS, *(story(k) for k in range(20))]:
        assert ids(found, text) == expected(found, text), repr(text)


@pytest.mark.parametrize("pre", _NAMES)
@settings(max_examples=100, deadline=None)
@given(parts=st.lists(st.text("aBé ' \n\t12.日😀", max_size=6), min_size=1, max_size=5))
def test_parts_of_a_text_have_the_ids_of_the_whole_where_they_begin(pre: str, parts: list[str]) -> None:
    found = encoder(pre)
    encoding = found.tokenizer.encode("".join(parts), add_special_tokens=False)
    ends = np.cumsum([len(part) for part in parts])
    wanted: list[list[int]] = [[] for _ in parts]
    for id_, (start, _) in zip(encoding.ids, encoding.offsets, strict=True):
        wanted[int(np.searchsorted(ends, start, side="right"))].append(id_)
    assert [part.tolist() for part in found.encode_parts(parts)] == wanted
    slow = Encoder(found.tokenizer, {"tokenizer.ggml.model": "llama"})
    assert [part.tolist() for part in slow.encode_parts(parts)] == wanted


def test_user_defined_tokens_written_out_are_left_to_tokenizers() -> None:
    tokenizer = train_tokenizer([story(1)], 300)
    tokenizer.add_tokens(["<tool>"])
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    types = [1] * (len(tokens) - 1) + [4]
    metadata: Mapping[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
    }
    found = Encoder(tokenizer, metadata)
    assert ids(found, "a <tool>b") == expected(found, "a <tool>b")
    assert len(tokens) - 1 in ids(found, "a <tool>b")


def test_an_encoder_that_differs_is_found_out_and_not_used(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = prepare(folder, vocab=300)
    monkeypatch.setenv("LINNET_CACHE", str(cache.with_name("other")))
    monkeypatch.setattr("linnet.data.tokenizer.word_pattern", lambda pre: re.compile(r"\S+|\s+"))
    monkeypatch.setattr("linnet.data.workers.BUNDLE", 4000)
    found = prepare(folder, vocab=300)
    assert found.record.encoding == "the quick way gave other ids for a sample of this corpus"
    assert found.train.fingerprint == right.train.fingerprint


@pytest.mark.usefixtures("cache")
def test_an_encoder_that_differs_in_the_middle_of_a_book_is_found_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample of the whole book is right; those of its passages, of which some are held out, are not."""
    book = tmp_path / "book.txt"
    book.write_text("".join(story(k).replace("tree", "xyxy" if k > 20 else "tree") for k in range(60)), "utf-8")
    pattern = word_pattern("gpt-2").pattern
    monkeypatch.setattr("linnet.data.tokenizer.word_pattern", lambda pre: re.compile(f" x|{pattern}"))
    monkeypatch.setattr("linnet.data.workers.BUNDLE", 1000)
    found = prepare(book, vocab=300, held_out=0.05)
    assert found.record.encoding == "the quick way gave other ids for a sample of this corpus"
    assert found.tokenizer is not None and len(found.held_out) > 0
    for tokens in (found.train, found.held_out):
        for index in range(len(tokens.documents) - 1):
            ids = tokens.document(index).tolist()
            assert ids == found.tokenizer.encode(found.tokenizer.decode(ids), add_special_tokens=False).ids
