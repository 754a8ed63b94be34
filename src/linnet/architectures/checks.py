"""What every config checks of its fields; an error says what to give instead."""

from __future__ import annotations

import math
from typing import Any

from linnet.errors import UsageError

_TRIED = 1 << 16  # numbers tried as divisors: all of them for 32 bits


def check_counts(config: object, *fields: str) -> None:
    """Whole numbers from 1."""
    for field in fields:
        value = getattr(config, field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{field} is {value!r}: give a whole number from 1")


def check_positive(config: object, *fields: str) -> None:
    """Numbers above 0."""
    for field in fields:
        value = getattr(config, field)
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UsageError(f"{field} is {value!r}: give a number above 0")


def check_heads(config: Any, *, even: bool = False) -> None:
    """The heads share the width; `even`: so that each has an even size."""
    if config.d_model % config.n_heads:
        fits = divisors(config.d_model, even=even)
        advice = f"choose n_heads from {fits}, or change d_model" if fits else "change d_model, which is odd"
        raise UsageError(f"n_heads {config.n_heads} does not divide d_model {config.d_model}: {advice}")


def check_rotary_heads(config: Any) -> None:
    """Heads of an even size, given as `head_dim` or following from the width, and key heads that share them out."""
    if config.head_dim < 0:
        raise UsageError(f"head_dim is {config.head_dim}: give an even number, or 0 for d_model / n_heads")
    if not config.head_dim:
        check_heads(config, even=True)
    if config.n_heads % config.n_kv:
        fits = divisors(config.n_heads)
        raise UsageError(f"n_kv {config.n_kv} does not divide n_heads {config.n_heads}: choose n_kv from {fits}")
    if config.head_size % 2:
        fits = divisors(config.d_model, even=True)
        other = f"another n_heads ({fits} fit d_model {config.d_model})" if fits else "another d_model"
        raise UsageError(
            f"the head size is {config.head_size}, and rotary positions turn pairs: make it even, with {other}"
            " or with head_dim"
        )


def divisors(number: int, *, even: bool = False) -> str:
    """The divisors of a number for an error message, up to eight, in order; `even`: those that leave an even quotient.

    A file may state any number: no more is tried than is quick.
    """
    small = [n for n in range(1, min(math.isqrt(number), _TRIED) + 1) if number % n == 0]
    fits = sorted({*small, *(number // n for n in small)})
    return ", ".join([str(n) for n in fits if not even or number // n % 2 == 0][:8])


def require(config: Any, field: str, *known: object) -> None:
    """Refuse a field of a `transformers` config that our models do not know; one that is not there has the first."""
    value = getattr(config, field, known[0])
    if value not in known:
        raise UsageError(f"{field} {value!r} cannot be taken over: only {' or '.join(map(str, known))}")
