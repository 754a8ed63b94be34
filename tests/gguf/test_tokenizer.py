"""The tokenizer of a GGUF, rebuilt: the ids of llama.cpp, on files written by gguf-py and on a real model."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer

import gguf
from linnet.gguf import GGUFFile
from linnet.gguf.errors import GGUFError
from linnet.gguf.pretokenizers import PRES
from linnet.gguf.tokenizer import donor_keys, rebuild_tokenizer
from linnet.gguf.tokenizer_write import tokenizer_block, train_tokenizer
from tests.gguf.hard_strings import HARD_STRINGS
from tests.gguf.llama_cpp_tokens import both_by_llama_cpp
from tests.gguf.tiny_llama import plain, write_tiny_llama

CORPUS = [
    text
    for text in HARD_STRINGS * 3 + [Path(__file__).read_text(), Path(gguf.__path__[0], "constants.py").read_text()]
    if "\0" not in text and "<" not in text[:1]
]
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def test_there_are_enough_hard_strings() -> None:
    assert len(set(HARD_STRINGS)) == len(HARD_STRINGS) >= 240


@pytest.fixture(scope="module")
def real(smollm2: Path) -> tuple[Path, dict[str, object]]:
    """A real model and its metadata, which `test_reading` compares with what gguf-py reads (in seconds)."""
    with GGUFFile.open(smollm2) as file:
        return smollm2, dict(file.metadata)


@cache
def trained(pre: str) -> Tokenizer:
    return train_tokenizer(CORPUS, 700, pre=pre)


def sentence_piece_block(
    model: bytes, *, add_bos: bool = True, add_space_prefix: bool = True
) -> dict[str, tuple[str, object]]:
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(pieces.get_piece_size())
    user_defined = {"<tool>", "<|im_start|>"}

    def type_of(id_: int) -> int:
        if pieces.is_unknown(id_):
            return 2
        if pieces.is_control(id_):
            return 3
        if pieces.is_byte(id_):
            return 6
        return 4 if pieces.id_to_piece(id_) in user_defined else 1

    return {
        "tokenizer.ggml.model": ("string", "llama"),
        "tokenizer.ggml.tokens": ("array:string", [pieces.id_to_piece(id_) for id_ in ids]),
        "tokenizer.ggml.scores": ("array:f32", [pieces.get_score(id_) for id_ in ids]),
        "tokenizer.ggml.token_type": ("array:i32", [type_of(id_) for id_ in ids]),
        "tokenizer.ggml.bos_token_id": ("u32", 1),
        "tokenizer.ggml.eos_token_id": ("u32", 2),
        "tokenizer.ggml.unknown_token_id": ("u32", 0),
        "tokenizer.ggml.add_bos_token": ("bool", add_bos),
        "tokenizer.ggml.add_eos_token": ("bool", False),
        "tokenizer.ggml.add_space_prefix": ("bool", add_space_prefix),
    }


@pytest.fixture(scope="module")
def sentence_piece_model() -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in CORPUS for line in text.splitlines() if line.strip()]),
        model_writer=model,
        model_type="bpe",
        vocab_size=1200,
        byte_fallback=True,
        character_coverage=0.99,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=["<tool>", "<|im_start|>"],
        minloglevel=2,
    )
    return model.getvalue()


def assert_same_ids(path: Path, metadata: dict[str, object], texts: list[str] = HARD_STRINGS) -> None:
    """Compare the rebuilt tokenizer with llama.cpp, with special tokens parsed and added, and neither."""
    tokenizer = rebuild_tokenizer(metadata)
    for special, theirs in zip((True, False), both_by_llama_cpp(path, texts), strict=True):
        tokenizer.encode_special_tokens = not special
        ours = [tokenizer.encode(text, add_special_tokens=special).ids for text in texts]
        differing = {text: (mine, its) for text, mine, its in zip(texts, ours, theirs, strict=True) if mine != its}
        assert not differing


def test_smollm2_gives_the_ids_of_llama_cpp(real: tuple[Path, dict[str, object]]) -> None:
    assert_same_ids(*real)


@pytest.mark.parametrize("pre", [pre.name for pre in PRES])
def test_own_vocabulary_gives_the_ids_of_llama_cpp(pre: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(CORPUS, 1500, pre=pre, special=SPECIAL)
    tokenizer.add_tokens(["<tool>", "[INST]"])
    block = tokenizer_block(tokenizer, eos="<|endoftext|>", rows=1536)
    write_tiny_llama(tmp_path / "own.gguf", block)
    assert_same_ids(tmp_path / "own.gguf", plain(block))
    rebuilt = rebuild_tokenizer(plain(block))
    for text in HARD_STRINGS:
        assert rebuilt.encode(text).ids == tokenizer.encode(text).ids
        assert rebuilt.decode(rebuilt.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", [alias for pre in PRES for alias in pre.aliases])
def test_alias_cuts_as_llama_cpp_does(name: str, tmp_path: Path) -> None:
    pre = next(pre for pre in PRES if name in pre.aliases)
    block = tokenizer_block(trained(pre.name), eos="<|endoftext|>")
    block["tokenizer.ggml.pre"] = ("string", name)
    del block["tokenizer.ggml.add_bos_token"]  # the default belongs to the name
    write_tiny_llama(tmp_path / "alias.gguf", block)
    assert_same_ids(tmp_path / "alias.gguf", plain(block), HARD_STRINGS[::3])


def test_bos_is_added_when_the_file_says_so(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(CORPUS, 600, special=("<|endoftext|>", "<s>"))
    block = tokenizer_block(tokenizer, eos="<|endoftext|>", bos="<s>", add_bos=True)
    block["tokenizer.ggml.add_eos_token"] = ("bool", True)
    write_tiny_llama(tmp_path / "bos.gguf", block)
    assert_same_ids(tmp_path / "bos.gguf", plain(block), HARD_STRINGS[::4])
    assert rebuild_tokenizer(plain(block)).encode("").ids == [1, 0]


def test_bos_and_eos_left_out_are_token_11_as_in_llama_cpp(tmp_path: Path) -> None:
    block = tokenizer_block(train_tokenizer(CORPUS, 600, pre="llama-bpe"), eos="<|endoftext|>")
    for key in ("bos_token_id", "eos_token_id", "add_bos_token"):
        del block[f"tokenizer.ggml.{key}"]
    write_tiny_llama(tmp_path / "bare.gguf", block)
    assert_same_ids(tmp_path / "bare.gguf", plain(block), ["", "a", "a b"])
    assert rebuild_tokenizer(plain(block)).encode("").ids == [11]


def test_token_that_looks_like_control_is_control(tmp_path: Path) -> None:
    looks = ["<|im_end|>", "</s>", "<|fim_prefix|>", "<|file_sep|>", "<eos>", "<|channel|>"]
    block = tokenizer_block(train_tokenizer(CORPUS, 600, special=("<|endoftext|>", *looks)), eos="<|endoftext|>")
    types = block["tokenizer.ggml.token_type"][1]
    assert isinstance(types, list)
    types[:7] = [1] * 7
    write_tiny_llama(tmp_path / "looks.gguf", block)
    assert_same_ids(tmp_path / "looks.gguf", plain(block), [f"a{text}b" for text in looks])


@pytest.mark.parametrize("add_space_prefix", [True, False])
def test_sentence_piece_gives_the_ids_of_llama_cpp(
    sentence_piece_model: bytes, add_space_prefix: bool, tmp_path: Path
) -> None:
    block = sentence_piece_block(sentence_piece_model, add_space_prefix=add_space_prefix)
    write_tiny_llama(tmp_path / "spm.gguf", block)
    words = [a + b + c for a in ("aa", "ab", "th e", "  ") for b in ("a", "he", "▁", "\n") for c in ("aa", "in", " ")]
    assert_same_ids(tmp_path / "spm.gguf", plain(block), HARD_STRINGS + [word * 7 for word in words])


def test_sentence_piece_decodes_to_the_text(sentence_piece_model: bytes) -> None:
    tokenizer = rebuild_tokenizer(plain(sentence_piece_block(sentence_piece_model)))
    for text in ("a b", " a", "naïve 🙂\n\tx", "日本語"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_donor_keys_are_all_of_the_tokenizer(real: tuple[Path, dict[str, object]]) -> None:
    keys = donor_keys(real[1])
    assert "tokenizer.chat_template" in keys and "tokenizer.ggml.merges" in keys
    assert all(key.startswith("tokenizer.") for key in keys)


def test_token_written_in_the_text_is_text_when_asked(real: tuple[Path, dict[str, object]]) -> None:
    tokenizer = rebuild_tokenizer(real[1])
    assert tokenizer.encode("<|im_start|>").ids == [1]
    tokenizer.encode_special_tokens = True
    assert len(tokenizer.encode("<|im_start|>").ids) > 1


BARE: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["a", "b", "ab"],
    "tokenizer.ggml.merges": ["a b"],
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "bert"}, "tokenizer.ggml.model is 'bert'.*gpt2.*llama"),
        ({"model": None}, "tokenizer.ggml.model is missing"),
        ({"model": 3}, "tokenizer.ggml.model should be str, found int"),
        (
            {"pre": "default"},
            "tokenizer.ggml.pre is 'default'.*not known; known are gpt-2.*smollm.*llama-bpe.*qwen2",
        ),
        ({"pre": None}, "tokenizer.ggml.pre is missing"),
        ({"tokens": ["a", "b", "a"]}, "has 'a' twice, as 0 and as 2"),
        ({"tokens": "abc"}, "tokens should be an array, found str"),
        ({"tokens": ["a", 3]}, "tokens should hold str values, found int"),
        ({"merges": ["a c"]}, "has 'a c', but 'c' is not among the tokens"),
        ({"merges": ["ab"]}, "has 'ab', but '' is not among the tokens"),
        ({"merges": None}, "tokenizer.ggml.merges is missing"),
        ({"token_type": [1]}, "token_type has 1 values for 3 tokens"),
        ({"add_bos_token": True}, "add_bos_token is true, but the vocabulary has no bos_token_id"),
        ({"model": "llama"}, "tokenizer.ggml.scores is missing"),
        ({"model": "llama", "scores": [0.0]}, "scores has 1 values for 3 tokens"),
    ],
)
def test_bad_metadata_is_refused_by_name(change: dict[str, object], words: str) -> None:
    metadata = {**BARE, **{f"tokenizer.ggml.{key}": value for key, value in change.items()}}
    with pytest.raises(GGUFError, match=words):
        rebuild_tokenizer({key: value for key, value in metadata.items() if value is not None})
