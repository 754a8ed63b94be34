"""What the tokens of a file stand for: byte-level BPE writes ` def` as `Ġdef`, SentencePiece as `▁def`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from linnet.errors import LinnetError
from linnet.gguf.file import GGUFFile
from linnet.gguf.tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

_WRITTEN = (UNKNOWN, CONTROL, USER_DEFINED)  # spelt as they are, not in the kind's own alphabet
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def token_bytes(tokenizer: Mapping[str, Any]) -> list[bytes | str]:
    """What each token stands for: bytes; or its text, for control tokens; or nothing, for unused rows."""
    texts: Sequence[str] = tokenizer["tokenizer.ggml.tokens"]
    types = list(tokenizer.get("tokenizer.ggml.token_type", ())) or [NORMAL] * len(texts)
    alphabet = byte_letters() if tokenizer.get("tokenizer.ggml.model") == "gpt2" else None
    out: list[bytes | str] = []
    for text, kind in zip(texts, types, strict=False):
        if kind == UNUSED:
            out.append("")
        elif kind in _WRITTEN:
            out.append(text)
        elif alphabet is not None:
            out.append(bytes(alphabet[letter] for letter in text) if all(c in alphabet for c in text) else text)
        elif kind == BYTE and (match := _BYTE_TOKEN.fullmatch(text)):
            out.append(bytes.fromhex(match[1]))
        else:
            out.append(text.replace("▁", " ").encode())
    return out


@cache
def byte_letters() -> dict[str, int]:
    """The byte behind each letter of byte-level BPE: printable ones are themselves, the rest follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def stated_tokens(path: str | os.PathLike[str]) -> list[str] | None:
    """The tokens that a file states; None where it states none or cannot be read."""
    try:
        with GGUFFile.open(path) as file:
            tokens: Any = file.metadata.get("tokenizer.ggml.tokens")
    except (LinnetError, OSError):
        return None
    return None if tokens is None else list(tokens)
