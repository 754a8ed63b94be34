"""The tokenizer of a corpus, trained on it or taken from a GGUF as it stands, and text to ids with it.

Either way it is kept as a GGUF without tensors and read back from there, so a corpus prepared just now and one found
in the cache use the very same tokenizer, and the one in a checkpoint is a copy of its bytes.

The `Encoder` is several times as fast as `tokenizers`, with the same result. `tokenizers` cuts a text into words and
merges each by itself. Words repeat: of the three million in Python's standard library fifty thousand differ. So the
text is cut by the `re` module and each word's ids are kept, as bytes, once `tokenizers` has given them; the rest is one
join. What can differ from `tokenizers` is therefore the cutting alone, and that is held against it: for every character
in the tests, and on part of each corpus when it is prepared.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.data.documents import END_OF_TEXT
from linnet.data.errors import DataError
from linnet.data.token_set import token_dtype
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.pretokenizers import pre_named
from linnet.gguf.tokenizer import USER_DEFINED, donor_keys, rebuild_tokenizer
from linnet.gguf.tokenizer_write import tokenizer_block, train_tokenizer
from linnet.gguf.writer import GGUFWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from linnet.gguf.chat_format import ChatFormat
    from linnet.gguf.metadata import Value

_TEMPLATE = "tokenizer.chat_template"
_WORDS_KEPT = 1 << 20  # then the memory is emptied: a corpus of noise must not fill the machine's
_LONGEST_WORD = 1 << 12  # longer words do not come back and are not kept
_SPACES = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_THEN_ASCII = r"(?![\x80-\U0010ffff])"  # so the quick class saw the whole word
_SIGNS = r"[\x00-\x08\x0e-\x1f!-/:-@\[-`{-\x7f]"


class Vocabulary:
    """A tokenizer with all that goes with it, read from a GGUF (a model, or one of ours without tensors).

    A file that is open already stays open. `chat_template` takes the place of the file's.
    """

    def __init__(self, source: str | os.PathLike[str] | GGUFFile, chat_template: str | None = None) -> None:
        path = source.path if isinstance(source, GGUFFile) else source
        with nullcontext(source) if isinstance(source, GGUFFile) else GGUFFile.open(source) as file:
            keys = donor_keys(file.metadata)
            if "tokenizer.ggml.tokens" not in keys:
                raise DataError(f"tokenizer {os.fspath(path)}: this GGUF has no vocabulary inside")
            if chat_template is not None:
                keys = [key for key in keys if key != _TEMPLATE]
            self.metadata: dict[str, Value] = {key: file.metadata[key] for key in keys}
            self.keys = MetadataBlock().copy(file.metadata, keys)
            if chat_template is not None:
                self.metadata[_TEMPLATE] = chat_template
                self.keys.text(_TEMPLATE, chat_template)
            self.rows: int = file.metadata.length("tokenizer.ggml.tokens")
        self.tokenizer: Tokenizer = rebuild_tokenizer(self.metadata)
        self.fingerprint = hashlib.blake2b(self.keys.to_bytes(), digest_size=16).hexdigest()
        self.end = self._end(path)

    def save(self, path: Path) -> None:
        """Write a GGUF that holds this tokenizer and nothing else."""
        _save(self.keys, path)

    def encoder(self) -> Encoder:
        """What encodes texts with it."""
        return Encoder(self.tokenizer, self.metadata)

    def _end(self, path: str | os.PathLike[str]) -> int:
        """The token between documents. A chat model's `eos` ends a turn, so the token of that name goes first."""
        end: object = self.tokenizer.token_to_id(END_OF_TEXT)
        if end is None:
            end = self.metadata.get("tokenizer.ggml.eos_token_id")
        if not isinstance(end, int) or not 0 <= end < self.rows:
            raise DataError(f"tokenizer {os.fspath(path)}: it has no end-of-text token to put between documents")
        return end


class FewTokensError(DataError):
    """A corpus of too few words for a vocabulary; `reached`: how many tokens it gives."""

    def __init__(self, size: int, reached: int) -> None:
        super().__init__(
            f"a vocabulary of {size:,} tokens is more than this corpus can give: it gives {reached:,};"
            f" take more text or `vocab={reached}`"
        )
        self.reached = reached


def train_vocabulary(
    texts: Iterable[str], size: int, pre: str, path: Path, chat_format: ChatFormat | None = None
) -> None:
    """Train a byte-level BPE of exactly `size` tokens and write it to `path`; with what a chat format needs."""
    special = dict.fromkeys((END_OF_TEXT, *(() if chat_format is None else chat_format.required)))
    tokenizer = train_tokenizer(texts, size, pre=pre, special=tuple(special))
    reached = tokenizer.get_vocab_size(with_added_tokens=True)
    if reached < size:
        raise FewTokensError(size, reached)
    template = None if chat_format is None else chat_format.chat_template()
    _save(MetadataBlock.of(tokenizer_block(tokenizer, eos=END_OF_TEXT, chat_template=template)), path)


def _save(keys: MetadataBlock, path: Path) -> None:
    named = MetadataBlock().text("general.architecture", "none").text("general.type", "vocab")
    GGUFWriter(named.extend(keys)).write(path)


class Encoder:
    """Encodes texts with a GGUF's tokenizer, special tokens written out in a text being text."""

    def __init__(self, tokenizer: Tokenizer, metadata: Mapping[str, object]) -> None:
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        self.dtype = token_dtype(tokenizer.get_vocab_size(with_added_tokens=True))
        self.remark = ""  # why all is left to `tokenizers`, where it is
        self._words = _Words(self._ids)
        self._pattern: re.Pattern[str] | None = None
        self._user_defined = _user_defined(metadata)
        if metadata.get("tokenizer.ggml.model") != "gpt2":
            self.slow("this kind of vocabulary is not cut into words")
        else:
            self._pattern = word_pattern(pre_named(str(metadata["tokenizer.ggml.pre"])).name)

    def slow(self, why: str) -> None:
        """Leave all to `tokenizers` from here on."""
        self._pattern = None
        self.remark = why

    def encode(self, text: str) -> bytes:
        """The ids of a text, as bytes of `dtype`."""
        if self._pattern is None or (self._user_defined is not None and self._user_defined.search(text)):
            return self._ids(text)
        try:
            return b"".join(map(self._words.__getitem__, self._pattern.findall(text)))
        except _UnknownCharacterError:
            return self._ids(text)

    def encode_parts(self, parts: Sequence[str]) -> list[NDArray[Any]]:
        """The ids of a text that is given in parts: for each part those of the tokens that begin in it.

        Together they are the ids of the whole: two parts may meet within a word.
        """
        text, ends = "".join(parts), np.cumsum([len(part) for part in parts]).tolist()
        if self._pattern is not None and not (self._user_defined is not None and self._user_defined.search(text)):
            with suppress(_UnknownCharacterError):
                return self._by_words(self._pattern.findall(text), ends)
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        starts = [start for start, _ in encoding.offsets]
        return np.split(np.array(encoding.ids, self.dtype), np.searchsorted(starts, ends[:-1]))

    def _by_words(self, words: list[str], ends: list[int]) -> list[NDArray[Any]]:
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        word_ends = np.cumsum(lengths)
        word_starts = word_ends - lengths
        parts, begin = [], 0
        for end in ends:
            first = int(np.searchsorted(word_starts, begin))
            last = max(first, int(np.searchsorted(word_ends, end, side="right")))
            ids = b"".join(map(self._words.__getitem__, words[first:last]))
            if first and word_ends[first - 1] > begin:  # the part before ended within this word
                ids = self._begun(words[first - 1], begin - int(word_starts[first - 1]), end - begin) + ids
            if last < len(words) and begin <= word_starts[last] < end:
                ids += self._begun(words[last], 0, end - int(word_starts[last]))
            parts.append(np.frombuffer(ids, self.dtype))
            begin = end
        return parts

    def _begun(self, word: str, first: int, count: int) -> bytes:
        """The ids of those tokens of a word that begin at `count` letters of it, from the letter `first` on."""
        encoding = self.tokenizer.encode(word, add_special_tokens=False)
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        return np.array([id_ for id_, (start, _) in tokens if first <= start < first + count], self.dtype).tobytes()

    def agrees(self, text: str) -> bool:
        """Whether the ids of a text are those that `tokenizers` gives."""
        return self._pattern is None or self.encode(text) == self._ids(text)

    def _ids(self, text: str) -> bytes:
        return np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, self.dtype).tobytes()


class _UnknownCharacterError(Exception):
    """A character newer than this Python: it does not know whether that is a letter, and `tokenizers` may."""


class _Words(dict[str, bytes]):
    """Word to ids; asked of the tokenizer when first met."""

    def __init__(self, ids: Callable[[str], bytes]) -> None:
        super().__init__()
        self._ids = ids

    def __missing__(self, word: str) -> bytes:
        if len(word) == 1 and unicodedata.category(word) == "Cn":
            raise _UnknownCharacterError
        ids = self._ids(word)
        if len(self) >= _WORDS_KEPT:
            self.clear()
        if len(word) <= _LONGEST_WORD:
            self[word] = ids
        return ids


@cache
def word_pattern(pre: str) -> re.Pattern[str]:
    """An expression for `re` whose matches are the words that `pre` cuts a text into.

    `re` knows no \\p{L}. Classes of all letters are spelled out, which makes them slow; so the words that are ASCII and
    followed by ASCII have branches of their own in front.
    """
    letters, numbers, unknown = _class("L"), _class("N"), _class("?")
    signs = rf"[^{_SPACES}{letters}{numbers}{unknown}]"
    if pre in ("gpt-2", "smollm"):
        single = pre == "smollm"  # digits stand alone, and cut off what is before and after them
        number = f"[{numbers}]" if single else f" ?[{numbers}]++"
        solid = rf"[^{_SPACES}{numbers}]" if single else rf"[^{_SPACES}]"
        quick_solid = r"[!-/:-~]" if single else r"[!-~]"
        branches = [
            rf" ?[A-Za-z]++{_THEN_ASCII}",
            r"'(?:[sdmt]|ll|ve|re)",
            rf" ?{_SIGNS}++{_THEN_ASCII}",
            rf"[\t-\r ]+(?=[\t-\r ]{quick_solid})",
            rf" ?[{letters}]++",
            number,
            rf" ?{signs}++",
            rf"[{_SPACES}]+(?!{solid})",
            rf"[{_SPACES}]",
        ]
    else:
        digits = rf"[{numbers}]{{1,3}}" if pre == "llama-bpe" else f"[{numbers}]"
        branches = [
            r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])",
            rf"[^\r\n0-9A-Za-z\x80-\U0010ffff]?[A-Za-z]++{_THEN_ASCII}",
            rf"[^\r\n{letters}{numbers}{unknown}]?[{letters}]++",
            digits,
            rf" ?{_SIGNS}++{_THEN_ASCII}[\r\n]*",
            rf" ?{signs}++[\r\n]*",
            rf"[{_SPACES}]*[\r\n]+",
            rf"[{_SPACES}]+(?![^{_SPACES}])",
            rf"[{_SPACES}]+",
        ]
    return re.compile("|".join([*branches, f"[{unknown}]"]))


def _class(category: str) -> str:
    """All characters of a category (`?`: not assigned) as the inside of a character class."""
    runs = re.finditer(f"{re.escape(category)}+", _categories())
    return "".join(f"\\U{run.start():08x}-\\U{run.end() - 1:08x}" for run in runs)


@cache
def _categories() -> str:
    named = (unicodedata.category(chr(code)) for code in range(0x110000))
    return "".join("?" if name == "Cn" else name[0] for name in named)


def _user_defined(metadata: Mapping[str, object]) -> re.Pattern[str] | None:
    """User-defined tokens, which `tokenizers` looks for before it cuts: texts with one are left to it."""
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, (list, tuple)) or types is None:
        return None
    own = np.flatnonzero(np.asarray(types) == USER_DEFINED)
    return re.compile("|".join(re.escape(tokens[i]) for i in own)) if own.size else None
