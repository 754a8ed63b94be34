"""How a text is generated: what `linnet generate` has as flags. No torch, so that its `--help` needs none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from linnet.errors import UsageError, suggestion


@dataclass(frozen=True)
class TextOptions:
    """How a text is generated.

    Args:
        max_tokens: At most so many tokens (128); the end of the model's context ends it too.
        temperature: 0: always the likeliest token; higher: bolder (0.8).
        top_k: Choose from so many of the likeliest tokens; 0: from all (0).
        top_p: Choose from the likeliest tokens that together have this probability (0.95).
        min_p: Choose from tokens at least so likely, measured by the likeliest (0).
        repetition_penalty: Above 1: what was there before becomes less likely (1).
        seed: The same seed gives the same text (0).
        stop: End before this text, which is left out; may be given several times.
    """

    max_tokens: int = 128
    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def sampling(self) -> dict[str, Any]:
        """Those that decide how the next token is chosen."""
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class ChatOptions(TextOptions):
    """How an answer is generated: as a text is, but that it may be longer, since it ends by itself.

    Args:
        max_tokens: At most so many tokens of an answer (1024); the end of the model's context ends it too.
    """

    max_tokens: int = 1024


def checked_options(options: Mapping[str, Any], kind: type[TextOptions], caller: str) -> dict[str, Any]:
    """Options by the names there are; a single stop string as well as several."""
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            raise UsageError(f"{caller}: there is no option {name!r}{suggestion(name, known)}")
    stop = options.get("stop", ())
    return {**options, "stop": (stop,) if isinstance(stop, str) else tuple(stop or ())}


def require_utf8(text: str, what: str) -> None:
    """Refuse half a surrogate pair, which is no character: bytes that are no UTF-8 come as such."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is no text in UTF-8: it holds other bytes") from None
