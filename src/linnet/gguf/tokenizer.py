"""A `tokenizers.Tokenizer` from the metadata of a GGUF: the ids that llama.cpp gives for the same text.

Two kinds are rebuilt: byte-level BPE (`tokenizer.ggml.model` "gpt2") and SentencePiece ("llama", by scores).
`encode(text)` adds what the file says is added and reads control tokens written out in the text; these are
llama.cpp's `add_special` and `parse_special`. `encode(text, add_special_tokens=False)` turns off the one,
`tokenizer.encode_special_tokens = True` the other. docs/tokenizer.md has the reasons and the known limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.pretokenizers import pre_named

if TYPE_CHECKING:
    from tokenizers import Tokenizer

T = TypeVar("T")

# Letters that cuts of tokens may look at, for each letter of the vocabulary: real ones need about 4. A file full of
# aaa, aaaa, aaaaa … has a cut at every letter, and would need the square of its size.
_LETTERS_TRIED = 64
_WRITTEN_LETTERS = 1 << 19  # of tokens found in a text as they are written; to look for so many takes 2 s to prepare

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Texts that llama.cpp reads as tokens of their own whatever their type in the file says. Ends of texts, turns and
# messages, at which generation stops:
END_TEXTS = tuple(
    """
    <|endoftext|> <|end_of_text|> <|eot_id|> <|eom_id|> <|im_end|> <|end|> <eos> </s> <EOT> _<EOT> [EOT] [EOS]
    <end_of_turn> <end_of_utterance> <｜end▁of▁sentence｜> <|return|> <|call|> <|calls|> <|flush|> <turn|>
    <|tool_response> [e~[
    """.split()  # noqa: SIM905
)
# Marks of filling in the middle:
_MIDDLE_TEXTS = tuple(
    """
    <|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>
    <|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>
    <|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>
    <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]
    <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>
    """.split()  # noqa: SIM905
)
_CONTROL_TEXTS = frozenset(END_TEXTS + _MIDDLE_TEXTS)
# These it reads even where control tokens are not to be parsed.
_USER_DEFINED_TEXTS = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))


def donor_keys(metadata: Mapping[str, object]) -> list[str]:
    """The keys that make up a file's tokenizer, to be copied verbatim into a file that uses it."""
    return [key for key in metadata if key.startswith("tokenizer.")]


def rebuild_tokenizer(metadata: Mapping[str, object]) -> Tokenizer:
    """Make the tokenizer that `metadata` (plain values) describes."""
    model = _get(metadata, "model", str)
    if model not in ("gpt2", "llama"):
        raise GGUFError(
            f"tokenizer.ggml.model is {quoted(model)}: this kind of vocabulary cannot be rebuilt; known are"
            " gpt2 (byte-level BPE) and llama (SentencePiece)"
        )
    try:
        import tokenizers  # noqa: F401
    except ImportError as missing:
        raise GGUFError("tokenising needs the package tokenizers: pip install 'linnet[train]'") from missing
    tokens = _tokens(metadata)
    tokenizer = _byte_level(metadata, tokens) if model == "gpt2" else _sentence_piece(metadata, tokens)
    _add_written_tokens(tokenizer, metadata, tokens)
    return tokenizer


def _byte_level(metadata: Mapping[str, object], tokens: dict[str, int]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models

    pre = pre_named(_get(metadata, "pre", str))
    pairs: dict[tuple[str, str], None] = {}  # the first of equal merges counts
    for merge in _list(metadata, "merges", str):
        left, _, right = merge[1:].partition(" ")
        left = merge[:1] + left
        for text in (left, right, left + right):
            if text not in tokens:
                raise GGUFError(
                    f"tokenizer.ggml.merges has {quoted(merge)}, but {quoted(text)} is not among the tokens"
                )
        pairs[left, right] = None
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=list(pairs), ignore_merges=pre.whole_words))
    tokenizer.pre_tokenizer = pre.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    _add_ends(tokenizer, metadata, tokens, add_bos=pre.add_bos, bos=11, eos=11)
    return tokenizer


def _sentence_piece(metadata: Mapping[str, object], tokens: dict[str, int]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    texts = list(tokens)
    unknown = _token_id(metadata, "unknown_token_id", 0, len(texts))
    tokenizer = Tokenizer(
        models.BPE(
            vocab=tokens,
            merges=_merges_by_score(metadata, tokens),
            unk_token=None if unknown is None else texts[unknown],
            byte_fallback=True,
        )
    )
    prefixed = _get(metadata, "add_space_prefix", bool, True)
    prepend, strip = ([normalizers.Prepend("▁")], [decoders.Strip(" ", 1, 0)]) if prefixed else ([], [])
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    _add_ends(tokenizer, metadata, tokens, add_bos=True, bos=1, eos=2)
    return tokenizer


def _merges_by_score(metadata: Mapping[str, object], tokens: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, best score first.

    SentencePiece joins whichever two neighbours make the best-scored piece; that is BPE with these merges. Of
    the ways to make one piece the longer left half goes first: the leftmost where two of them overlap.
    """
    scores = _list(metadata, "scores", float)
    if len(scores) < len(tokens):
        raise GGUFError(f"tokenizer.ggml.scores has {len(scores)} values for {len(tokens)} tokens")
    by_score = sorted(tokens, key=lambda text: -scores[tokens[text]])
    longest_prefix = _longest_prefixes(tokens)
    letters_left = _LETTERS_TRIED * (sum(map(len, tokens)) + 4096)
    merges: list[tuple[str, str]] = []
    for text in by_score:
        left = longest_prefix.get(text)
        while left is not None:
            right = text[len(left) :]
            if right in tokens:
                merges.append((left, right))
            letters_left -= len(text)
            left = longest_prefix.get(left)
        if letters_left < 0:
            raise GGUFError(
                f"tokenizer.ggml.tokens: tokens like {quoted(text)} can be cut in more ways than those of any real"
                " vocabulary, too many to rebuild"
            )
    return merges


def _longest_prefixes(tokens: Iterable[str]) -> dict[str, str]:
    """For each token the longest other one that it begins with, where there is one.

    In alphabetical order a token comes after those it begins with, and only tokens that begin alike lie between. So
    each is compared with the one before it and what that begins with: linear in the letters, but for the sorting.
    """
    longest: dict[str, str] = {}
    prefixes: list[str] = []  # each begins with the one before it
    for text in sorted(tokens):
        while prefixes and not text.startswith(prefixes[-1]):
            prefixes.pop()
        if prefixes:
            longest[text] = prefixes[-1]
        prefixes.append(text)
    return longest


def _add_written_tokens(tokenizer: Tokenizer, metadata: Mapping[str, object], tokens: dict[str, int]) -> None:
    """Tell the tokenizer which tokens are read as such where a text has them written out."""
    from tokenizers import AddedToken

    types = _list(metadata, "token_type", int) if "tokenizer.ggml.token_type" in metadata else [NORMAL] * len(tokens)
    if len(types) < len(tokens):
        raise GGUFError(f"tokenizer.ggml.token_type has {len(types)} values for {len(tokens)} tokens")
    written = []
    for text, id_ in tokens.items():
        always = text in _USER_DEFINED_TEXTS or types[id_] == USER_DEFINED
        control = text in _CONTROL_TEXTS or types[id_] in (UNKNOWN, CONTROL)
        if always or control:
            special = control and text not in _USER_DEFINED_TEXTS
            written.append(AddedToken(text, special=special, normalized=False))
    letters = sum(len(token.content) for token in written)
    if letters > _WRITTEN_LETTERS:
        raise GGUFError(
            f"tokenizer.ggml.token_type: the control and user-defined tokens have {letters:,} letters in all, and no"
            f" real vocabulary has {_WRITTEN_LETTERS:,}"
        )
    tokenizer.add_tokens(written)


def _add_ends(
    tokenizer: Tokenizer,
    metadata: Mapping[str, object],
    tokens: dict[str, int],
    *,
    add_bos: bool,
    bos: int,
    eos: int,
) -> None:
    """Put the first and the last token round a text, where the file or its kind's default says so."""
    from tokenizers import processors

    texts = list(tokens)
    ends: dict[str, int] = {}
    for name, default, adds in (("bos", bos, add_bos), ("eos", eos, False)):
        if not _get(metadata, f"add_{name}_token", bool, adds):
            continue
        id_ = _token_id(metadata, f"{name}_token_id", default, len(texts))
        if id_ is None:
            raise GGUFError(f"tokenizer.ggml.add_{name}_token is true, but the vocabulary has no {name}_token_id")
        ends[name] = id_
    if ends:
        before, after = (["bos"] if "bos" in ends else []), (["eos"] if "eos" in ends else [])
        single = [*before, "$A", *after]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single,
            pair=[*single, *(f"{mark}:1" for mark in before), "$B:1", *(f"{mark}:1" for mark in after)],
            special_tokens=[{"id": name, "ids": [id_], "tokens": [texts[id_]]} for name, id_ in ends.items()],
        )


def _tokens(metadata: Mapping[str, object]) -> dict[str, int]:
    """Ids by text, in the order of the ids."""
    tokens: dict[str, int] = {}
    for id_, text in enumerate(_list(metadata, "tokens", str)):
        text = text or f"[EMPTY_{id_}]"  # llama.cpp's own name for it
        if text in tokens:
            raise GGUFError(f"tokenizer.ggml.tokens has {quoted(text)} twice, as {tokens[text]} and as {id_}")
        tokens[text] = id_
    return tokens


def _token_id(metadata: Mapping[str, object], key: str, default: int, count: int) -> int | None:
    """A special token's id; out of range gives the default, and that out of range none, as in llama.cpp."""
    for id_ in (_get(metadata, key, int, default), default):
        if 0 <= id_ < count:
            return id_
    return None


def _get(metadata: Mapping[str, object], key: str, kind: type[T], default: T | None = None) -> T:
    """One value of `tokenizer.ggml.*`, of the right kind."""
    key = f"tokenizer.ggml.{key}"
    value = metadata.get(key, default)
    if value is None:
        raise GGUFError(f"{key} is missing: the file does not say how its vocabulary is to be used")
    if not isinstance(value, kind):
        raise GGUFError(f"{key} should be {kind.__name__}, found {type(value).__name__}")
    return value


def _list(metadata: Mapping[str, object], key: str, kind: type[T]) -> Sequence[T]:
    """One array of `tokenizer.ggml.*`, whose values are of the right kind."""
    key = f"tokenizer.ggml.{key}"
    if key not in metadata:
        raise GGUFError(f"{key} is missing: without it the vocabulary cannot be rebuilt")
    values = metadata[key]
    tolist = getattr(values, "tolist", None)  # a parser may give arrays of numbers as numpy arrays
    values = tolist() if tolist else values
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise GGUFError(f"{key} should be an array, found {type(values).__name__}")
    allowed = (int, float) if kind is float else kind
    for value in values:
        if not isinstance(value, allowed):
            raise GGUFError(f"{key} should hold {kind.__name__} values, found {type(value).__name__}")
    return values
