"""The tokenizer block we write: exact types, padding, a named error for what llama.cpp reads otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from linnet.gguf.errors import GGUFError
from linnet.gguf.pretokenizers import PRES, pre_of
from linnet.gguf.tokenizer_write import split_long_words, tokenizer_block, train_tokenizer

TEXTS = ["the cat sat on the mat", "it's 1234 and the hat", "that is that  then"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, 290)


def test_every_value_has_the_type_llama_cpp_wants(tokenizer: Tokenizer) -> None:
    block = tokenizer_block(tokenizer, eos="<|endoftext|>", chat_template="{{ x }}")
    assert {key: kind for key, (kind, _) in block.items()} == {
        "tokenizer.ggml.model": "string",
        "tokenizer.ggml.pre": "string",
        "tokenizer.ggml.tokens": "array:string",
        "tokenizer.ggml.token_type": "array:i32",
        "tokenizer.ggml.merges": "array:string",
        "tokenizer.ggml.bos_token_id": "u32",
        "tokenizer.ggml.eos_token_id": "u32",
        "tokenizer.ggml.add_bos_token": "bool",
        "tokenizer.ggml.add_eos_token": "bool",
        "tokenizer.chat_template": "string",
    }
    assert block["tokenizer.ggml.model"][1] == "gpt2"
    assert block["tokenizer.ggml.pre"][1] == "gpt-2"
    assert block["tokenizer.ggml.add_bos_token"][1] is False
    assert block["tokenizer.ggml.bos_token_id"] == block["tokenizer.ggml.eos_token_id"] == ("u32", 0)


def test_rows_beyond_the_vocabulary_are_unused_tokens(tokenizer: Tokenizer) -> None:
    size = tokenizer.get_vocab_size()
    tokenizer.add_tokens(["<tool>", f"[PAD{size + 2}]"])
    block = tokenizer_block(tokenizer, eos="<|endoftext|>", rows=size + 4)
    tokens, types = block["tokenizer.ggml.tokens"][1], block["tokenizer.ggml.token_type"][1]
    assert isinstance(tokens, list) and isinstance(types, list)
    assert tokens[size:] == ["<tool>", f"[PAD{size + 2}]", f"[PAD{size + 2}]_", f"[PAD{size + 3}]"]
    assert types[0] == 3 and types[1] == 1 and types[size:] == [4, 4, 5, 5]
    assert len(set(tokens)) == len(tokens) == len(types) == size + 4


def test_more_tokens_than_rows_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(GGUFError, match="has 286 tokens, more than the embedding's 256 rows"):
        tokenizer_block(tokenizer, eos="<|endoftext|>", rows=256)


@pytest.mark.parametrize("pre", [pre.name for pre in PRES])
def test_trained_tokenizer_is_recognised_by_its_cutting(pre: str) -> None:
    tokenizer = train_tokenizer(TEXTS, 280, pre=pre)
    assert tokenizer_block(tokenizer, eos="<|endoftext|>")["tokenizer.ggml.pre"][1] == pre
    assert tokenizer.decode(tokenizer.encode("it's the 42nd\n cat 🙂").ids) == "it's the 42nd\n cat 🙂"


def test_published_spelling_of_the_llama_3_and_qwen2_expressions_is_recognised() -> None:
    rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for name, digits in (("llama-bpe", r"\p{N}{1,3}"), ("qwen2", r"\p{N}")):
        words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + rest
        published = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        assert pre_of(published).name == name


@pytest.mark.parametrize(
    "cutting",
    [
        None,
        pre_tokenizers.Whitespace(),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    ],
)
def test_cutting_without_a_name_is_refused(cutting: pre_tokenizers.PreTokenizer | None) -> None:
    with pytest.raises(GGUFError, match=r"no name we know for this pre-tokenizer: .*Known are gpt-2: ByteLevel"):
        pre_of(cutting)


def _normalised(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.NFC()


def _unknown(tokenizer: Tokenizer) -> None:
    tokenizer.model.unk_token = "<|endoftext|>"


def _whole_words(tokenizer: Tokenizer) -> None:
    tokenizer.model.ignore_merges = True


def _stripping(tokenizer: Tokenizer) -> None:
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])


def _without_bytes(tokenizer: Tokenizer) -> None:
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=60, show_progress=False))


def _word_level(tokenizer: Tokenizer) -> None:
    tokenizer.model = models.WordLevel({"a": 0}, unk_token="a")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_normalised, "does not normalise.*without a normalizer"),
        (_unknown, "has no unk_token, found '<|endoftext|>'"),
        (_whole_words, "gpt-2 never takes words.*ignore_merges to False, found True"),
        (_stripping, "'<mask>' strips its surroundings"),
        (_without_bytes, "of the 256 bytes are not tokens"),
        (_word_level, "only a byte-level BPE can be written, found a WordLevel"),
    ],
)
def test_what_llama_cpp_would_read_otherwise_is_refused(
    tokenizer: Tokenizer, spoil: Callable[[Tokenizer], None], words: str
) -> None:
    spoil(tokenizer)
    with pytest.raises(GGUFError, match=words):
        tokenizer_block(tokenizer, eos="<|endoftext|>")


def test_end_token_must_be_a_token(tokenizer: Tokenizer) -> None:
    with pytest.raises(GGUFError, match="eos is '</s>', which is not a token"):
        tokenizer_block(tokenizer, eos="</s>")
    with pytest.raises(GGUFError, match="bos is '<s>', which is not a token"):
        tokenizer_block(tokenizer, eos="<|endoftext|>", bos="<s>")


def test_too_small_a_vocabulary_is_refused() -> None:
    with pytest.raises(GGUFError, match="256 bytes and 1 special token alone need 257"):
        train_tokenizer(TEXTS, 256)


def test_unknown_pre_is_refused_in_training() -> None:
    with pytest.raises(GGUFError, match=r"'gpt2'.*known are gpt-2"):
        train_tokenizer(TEXTS, 300, pre="gpt2")


def test_special_tokens_get_the_first_ids() -> None:
    tokenizer = train_tokenizer(TEXTS, 300, special=("<s>", "</s>"))
    assert (tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")) == (0, 1)
    assert isinstance(tokenizer.decoder, decoders.ByteLevel)


@pytest.mark.parametrize("letter", ["\u2581", "a", "7", " ", "語"])
def test_a_word_without_end_is_learnt_in_no_time(letter: str) -> None:
    began = time.process_time()
    tokenizer = train_tokenizer([letter * 100_000, "some words"], 300)
    assert time.process_time() - began < 5  # minutes, were it one word to the trainer
    assert tokenizer.decode(tokenizer.encode(letter * 5000).ids) == letter * 5000


def test_texts_of_usual_words_are_learnt_from_whole() -> None:
    text = "".join(Path(json.__file__).parent.joinpath(name).read_text() for name in ("decoder.py", "encoder.py"))
    chinese = "春眠不覺曉，處處聞啼鳥。" * 500  # no blank in it, and no long word
    for sound in (text, chinese, text.replace(" ", "-")):
        assert list(split_long_words(sound)) == [sound]
    long = text + "x" * 5000
    assert "".join(split_long_words(long)) == long
