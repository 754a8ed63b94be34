"""The texts of tokens, by the tokenizer of a run's newest checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import cast

from linnet.board.words import visible_blanks
from linnet.files import step_files
from linnet.runs import Run

_TOKENS, _MODEL = "tokenizer.ggml.tokens", "tokenizer.ggml.model"


def token_text(run: Run, token: int) -> str:
    """The text of a token, blanks as `·`; its number where there is no checkpoint with a tokenizer."""
    files = run.checkpoints()
    tokens, by_bytes = _tokens_of(files[-1].parent) if files else ((), False)
    return _readable(tokens[token], by_bytes) if 0 <= token < len(tokens) else str(token)


@lru_cache(maxsize=4)
def _tokens_of(weights: Path) -> tuple[tuple[str, ...], bool]:
    """The tokens of a run as its tokenizer has them, and whether that is one of bytes: in all checkpoints the same."""
    from linnet.gguf.errors import GGUFError
    from linnet.gguf.file import GGUFFile

    _, file = step_files(weights)[-1]
    try:
        with GGUFFile.open(file) as opened:
            tokens = cast("Sequence[str]", opened.metadata.get(_TOKENS) or ())
            return tuple(tokens), opened.metadata.get(_MODEL) == "gpt2"
    except (GGUFError, OSError):
        return (), False


def _readable(token: str, by_bytes: bool) -> str:
    """As it stands in a text: SentencePiece has its own blank, byte-level BPE a letter for each byte."""
    if not by_bytes:
        return token.replace("▁", "·")
    from linnet.gguf.token_spelling import byte_letters

    byte_of = byte_letters()
    try:
        text = bytes(byte_of[letter] for letter in token).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return token
    return visible_blanks(text)
