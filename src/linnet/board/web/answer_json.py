"""Answers as JSON: what no number or text of JSON can say, made so that every reader takes it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

Figure = float | str | None  # NaN and the infinities are texts: JSON has no numbers for them
_DEEPEST = 64
_NONFINITE = {math.inf: "inf", -math.inf: "-inf"}


def figure(value: float | None) -> Figure:
    """A number as it travels."""
    if value is None or math.isfinite(value):
        return value
    return _NONFINITE.get(value, "nan")


def plain_json(value: Any, depth: int = 0) -> Any:
    """Foreign fields as JSON can have them, with NaN and the infinities as texts."""
    if isinstance(value, float):
        return figure(value)
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {str(name): plain_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item, depth + 1) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return str(value)
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def encoded(answer: object) -> bytes:
    """As JSON. A lone surrogate, which a file name or a damaged text may hold, becomes a question mark."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(answer)))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value
