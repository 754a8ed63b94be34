"""Text to token ids, several times as fast as `tokenizers` and with the same result.

`tokenizers` cuts a text into words and merges each by itself. Words repeat: of the three million in Python's standard
library fifty thousand differ. So the text is cut by the `re` module and each word's ids are kept, as bytes, once
`tokenizers` has given them; the rest is one join. What can differ from `tokenizers` is therefore the cutting alone, and
that is held against it: for every character in the tests, and on part of each corpus when it is prepared.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from linnet.gguf.pretokenizers import pre_named
from linnet.gguf.tokenizer import USER_DEFINED

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORDS_KEPT = 1 << 20  # then the memory is emptied: a corpus of noise must not fill the machine's
_WORD = 1 << 12  # longer words do not come back and are not kept
_SPACES = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_LATER = r"(?![\x80-\U0010ffff])"  # what follows is ASCII too, so the quick class saw the whole word
_SIGNS = r"[\x00-\x08\x0e-\x1f!-/:-@\[-`{-\x7f]"


class Encoder:
    """Encodes texts with a GGUF's tokenizer, special tokens written out in a text being text."""

    def __init__(self, tokenizer: Tokenizer, metadata: Mapping[str, object]) -> None:
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        rows = tokenizer.get_vocab_size(with_added_tokens=True)
        self.kind = np.dtype("<u2" if rows <= 1 << 16 else "<u4")
        self.remark = ""  # why all is left to `tokenizers`, where it is
        self._words = _Words(self._ids)
        self._cut: re.Pattern[str] | None = None
        self._aside = _written(metadata)
        if metadata.get("tokenizer.ggml.model") != "gpt2":
            self.slow("this kind of vocabulary is not cut into words")
        else:
            self._cut = word_pattern(pre_named(str(metadata["tokenizer.ggml.pre"])).name)

    def slow(self, why: str) -> None:
        """Leave all to `tokenizers` from here on."""
        self._cut = None
        self.remark = why

    def encode(self, text: str) -> bytes:
        """The ids of a text, as bytes of `kind`."""
        if self._cut is None or (self._aside is not None and self._aside.search(text)):
            return self._ids(text)
        try:
            return b"".join(map(self._words.__getitem__, self._cut.findall(text)))
        except _UnknownCharacterError:
            return self._ids(text)

    def agrees(self, text: str) -> bool:
        """Whether the ids of a text are those that `tokenizers` gives."""
        return self._cut is None or self.encode(text) == self._ids(text)

    def _ids(self, text: str) -> bytes:
        return np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, self.kind).tobytes()


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
        found = self._ids(word)
        if len(self) >= _WORDS_KEPT:
            self.clear()
        if len(word) <= _WORD:
            self[word] = found
        return found


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
            rf" ?[A-Za-z]++{_LATER}",
            r"'(?:[sdmt]|ll|ve|re)",
            rf" ?{_SIGNS}++{_LATER}",
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
            rf"[^\r\n0-9A-Za-z\x80-\U0010ffff]?[A-Za-z]++{_LATER}",
            rf"[^\r\n{letters}{numbers}{unknown}]?[{letters}]++",
            digits,
            rf" ?{_SIGNS}++{_LATER}[\r\n]*",
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


def _written(metadata: Mapping[str, object]) -> re.Pattern[str] | None:
    """The texts that `tokenizers` looks for before it cuts: user-defined tokens. Texts with one are left to it."""
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, (list, tuple)) or types is None:
        return None
    at = np.flatnonzero(np.asarray(types) == USER_DEFINED)
    return re.compile("|".join(re.escape(tokens[i]) for i in at)) if at.size else None
