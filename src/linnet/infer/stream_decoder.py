"""Tokens as text while they come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTEXT = 16  # tokens before a new one that its text may depend on
_BYTE_TOKEN = re.compile("<0x..>")  # SentencePiece's name for a byte


class StreamDecoder:
    """Tokens as text while they come: what is given out is the decoding of all of them, and is never taken back.

    A letter of several bytes may come in several tokens. SentencePiece's byte tokens are read together up to the next
    token of another kind, and if they are no UTF-8 each of them becomes U+FFFD: until then they are held.
    (`tokenizers.DecodeStream` gives such bytes out one by one, and raises an error when they turn out to be none.)
    """

    def __init__(self, tokenizer: Tokenizer, prompt: list[int]) -> None:
        self.tokens: list[int] = []
        self.text = ""
        self._tokenizer = tokenizer
        self._skipped = {id_ for id_, added in tokenizer.get_added_tokens_decoder().items() if added.special}
        # A first word has no space before it, a later one has: a token is decoded after some that came before.
        tail = prompt[-_CONTEXT:]
        self._context = tail if self._decode(tail) else list(prompt)
        self._prefix = self._decode(self._context)
        self._given = len(self._context)  # so many of its tokens are in the text

    def add(self, token: int) -> str:
        """Take one token more; the text that is certain now."""
        self.tokens.append(token)
        self._context.append(token)
        decoded = self._decode(self._context)
        if decoded.endswith("\ufffd") or self._within_bytes():
            return ""
        return self._give(decoded)

    def finish(self) -> str:
        """The text that was held for what might have followed."""
        return self._give(self._decode(self._context))

    def _give(self, decoded: str) -> str:
        if decoded.startswith(self._prefix):
            new = decoded[len(self._prefix) :]
        else:  # bytes of the prompt and bytes after it, which are no letters together
            new = self._decode(self._context[self._given :])
        self.text += new
        if len(self._context) > 2 * _CONTEXT and (kept := self._decode(self._context[-_CONTEXT:])):
            self._context, decoded = self._context[-_CONTEXT:], kept
        self._prefix, self._given = decoded, len(self._context)
        return new

    def _within_bytes(self) -> bool:
        for token in reversed(self._context[self._given :]):
            if token not in self._skipped:
                return _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token) or "") is not None
        return False

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))
