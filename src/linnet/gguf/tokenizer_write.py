"""The tokenizer block of a GGUF we write, and the tokenizers we train: byte-level BPE only.

The block is given as typed values, `key: (type, value)`, in the format's own types (`u32`, `bool`,
`array:i32`), because llama.cpp refuses a value of a neighbouring type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from linnet.gguf.errors import GGUFError
from linnet.gguf.pretokenizers import Pre, pre_named, pre_of
from linnet.gguf.tokenizer import CONTROL, NORMAL, UNUSED, USER_DEFINED

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TypedValues = dict[str, tuple[str, object]]


def tokenizer_block(
    tokenizer: Tokenizer,
    *,
    eos: str,
    bos: str | None = None,
    add_bos: bool = False,
    rows: int | None = None,
    chat_template: str | None = None,
) -> TypedValues:
    """Describe a byte-level BPE so that llama.cpp gives the ids it gives.

    `eos` ends a text; `bos` begins it, and is `eos` where there is no token of its own (as in GPT-2). Both
    are always written: left out, llama.cpp takes token 11. `rows` is the height of the embedding; unused
    tokens fill it up.
    """
    model = json.loads(tokenizer.model.__getstate__())
    pre = pre_of(tokenizer.pre_tokenizer)
    _check_model(tokenizer, model, pre)
    vocab: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    for name, text in (("eos", eos), ("bos", bos or eos)):
        if text not in vocab:
            raise GGUFError(f"{name} is {text!r}, which is not a token of this tokenizer")
    tokens, types = _padded(vocab, rows)
    for id_, added in tokenizer.get_added_tokens_decoder().items():
        if added.lstrip or added.rstrip or added.single_word:
            raise GGUFError(
                f"the added token {added.content!r} strips its surroundings or wants to stand alone;"
                " llama.cpp does neither: make it without lstrip, rstrip and single_word"
            )
        types[id_] = CONTROL if added.special else USER_DEFINED
    block: TypedValues = {
        "tokenizer.ggml.model": ("string", "gpt2"),
        "tokenizer.ggml.pre": ("string", pre.name),
        "tokenizer.ggml.tokens": ("array:string", tokens),
        "tokenizer.ggml.token_type": ("array:i32", types),
        "tokenizer.ggml.merges": ("array:string", _merges(model["merges"])),
        "tokenizer.ggml.bos_token_id": ("u32", vocab[bos or eos]),
        "tokenizer.ggml.eos_token_id": ("u32", vocab[eos]),
        "tokenizer.ggml.add_bos_token": ("bool", add_bos),
        "tokenizer.ggml.add_eos_token": ("bool", False),
    }
    if chat_template is not None:
        block["tokenizer.chat_template"] = ("string", chat_template)
    return block


_LONGEST_WORD = 2048  # letters of a word that the trainer sees whole
_WORD = re.compile(r"[^\W\d_]++|\d++|\s++|(?:[^\w\s]|_)++")  # as every pre-tokenizer splits, or longer


def train_tokenizer(
    texts: Iterable[str], size: int, *, pre: str = "gpt-2", special: Sequence[str] = ("<|endoftext|>",)
) -> Tokenizer:
    """Train a byte-level BPE of at most `size` tokens that splits words as `pre` says; `special` come first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    least = 256 + len(special)
    if size < least:
        named = f"{len(special)} special token{'s' if len(special) != 1 else ''}"
        raise GGUFError(
            f"a byte-level vocabulary of {size} tokens is too small: the 256 bytes and {named} alone need {least}"
        )
    named_pre = pre_named(pre)
    tokenizer = Tokenizer(models.BPE(ignore_merges=named_pre.whole_words))
    tokenizer.pre_tokenizer = named_pre.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((piece for text in texts for piece in split_long_words(text)), trainer)
    return tokenizer


def split_long_words(text: str) -> Iterator[str]:
    """The text whole, or in pieces if one of its words has more than `_LONGEST_WORD` letters.

    The trainer's time grows with the square of a word's length: 100,000 times the same letter take minutes.
    """
    if not _may_have_long_word(text) or max(len(word[0]) for word in _WORD.finditer(text)) <= _LONGEST_WORD:
        yield text
        return
    for start in range(0, len(text), _LONGEST_WORD):
        yield text[start : start + _LONGEST_WORD]


def _may_have_long_word(text: str) -> bool:
    """A cheap test: a long word, or a long stretch of blanks, fills at least one of these blocks."""
    half = _LONGEST_WORD // 2
    blocks = (text[start : start + half] for start in range(0, len(text) - half + 1, half))
    return any((" " not in block and "\n" not in block) or block.isspace() for block in blocks)


def _check_model(tokenizer: Tokenizer, model: dict[str, Any], pre: Pre) -> None:
    """Refuse what llama.cpp would read differently."""
    from tokenizers import pre_tokenizers

    if model["type"] != "BPE":
        raise GGUFError(f"only a byte-level BPE can be written, found a {model['type']} tokenizer")
    if tokenizer.normalizer is not None:
        raise GGUFError("llama.cpp does not normalise text before BPE: make the tokenizer without a normalizer")
    for option in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model[option]:
            raise GGUFError(f"llama.cpp's BPE has no {option}, found {model[option]!r}: make the tokenizer without it")
    if model["ignore_merges"] != pre.whole_words:
        takes = "takes" if pre.whole_words else "never takes"
        raise GGUFError(
            f"llama.cpp's {pre.name} {takes} words that are tokens whole:"
            f" set tokenizer.model.ignore_merges to {pre.whole_words}, found {model['ignore_merges']}"
        )
    absent = set(pre_tokenizers.ByteLevel.alphabet()).difference(model["vocab"])
    if absent:
        raise GGUFError(
            f"{len(absent)} of the 256 bytes are not tokens, and would vanish from a text: train with"
            " initial_alphabet=ByteLevel.alphabet()"
        )


def _padded(vocab: dict[str, int], rows: int | None) -> tuple[list[str], list[int]]:
    """Texts and types by id; ids without a text, and rows beyond the vocabulary, are unused: `[PADi]`."""
    size = max(vocab.values()) + 1
    if rows is not None and rows < size:
        raise GGUFError(f"the vocabulary has {size} tokens, more than the embedding's {rows} rows")
    by_id = {id_: text for text, id_ in vocab.items()}
    tokens, types = [], []
    for id_ in range(rows or size):
        text = by_id.get(id_)
        types.append(UNUSED if text is None else NORMAL)
        if text is None:
            text = f"[PAD{id_}]"
            while text in vocab:  # a token given twice makes llama.cpp abort
                text += "_"
        tokens.append(text)
    return tokens, types


def _merges(merges: list[str | list[str]]) -> list[str]:
    """Merges as "left right"."""
    joined = []
    for merge in merges:
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        if " " in left or " " in right:
            raise GGUFError(f"the merge of {left!r} and {right!r} has a space, so this is no byte-level BPE")
        joined.append(f"{left} {right}")
    return joined
