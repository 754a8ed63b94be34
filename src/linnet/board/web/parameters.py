"""The parameters of a request, each within its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from linnet.board.web.answers import RequestError

MOST_RUNS = 200
MOST_KEYS = 64
MOST_SERIES = 2_000
MOST_POINTS = 8_192
MOST_CELLS = 1_000_000  # columns of a grid, over all series of an answer
LONGEST = 4_096  # characters of a text


class Pairs(Protocol):
    """The query of an address: names may come several times."""

    def get(self, key: str, /) -> str | None: ...
    def getlist(self, key: str, /) -> Sequence[str]: ...


class Parameters:
    """The query of a request."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs

    def text(self, name: str, default: str = "") -> str:
        value = self._pairs.get(name)
        if value is None:
            return default
        if len(value) > LONGEST or "\0" in value:
            raise RequestError(400, f"{name} is a text of at most {LONGEST} characters, found {len(value)}")
        return value

    def has(self, name: str) -> bool:
        return self._pairs.get(name) is not None

    def texts(self, name: str, most: int) -> list[str]:
        """A name that may come several times; each value once, in order."""
        values = list(dict.fromkeys(value for value in self._pairs.getlist(name) if value))
        if len(values) > most:
            raise RequestError(400, f"{name} may be given {most} times, found {len(values)}")
        if any(len(value) > LONGEST or "\0" in value for value in values):
            raise RequestError(400, f"{name} is a text of at most {LONGEST} characters")
        return values

    def flag(self, name: str) -> bool:
        value = self.text(name)
        if value not in ("", "0", "1", "true", "false"):
            raise RequestError(400, f"{name} is 0 or 1, found {value[:40]!r}")
        return value in ("1", "true")

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self.text(name)
        if not value:
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20) or not low <= int(value) <= high:
            raise RequestError(400, f"{name} is an integer from {low} to {high}, found {value[:40]!r}")
        return int(value)

    def integers(self, name: str, most: int) -> list[int]:
        """Integers that are not negative; each as often as it comes."""
        values = self._pairs.getlist(name)
        if len(values) > most:
            raise RequestError(400, f"{name} may be given {most} times, found {len(values)}")
        if not all(value.isascii() and value.isdecimal() and len(value) < 16 for value in values):
            raise RequestError(400, f"{name} is an integer that is not negative")
        return [int(value) for value in values]

    def number(self, name: str) -> float | None:
        """A finite number; None where there is none."""
        value = self.text(name)
        if not value:
            return None
        try:
            number = float(value) if value.isascii() and len(value) < 64 and "_" not in value else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise RequestError(400, f"{name} is a number, found {value[:40]!r}")
        return number

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of some words; the first where there is none."""
        return _known(name, self.text(name) or choices[0], choices)

    def choices(self, name: str, choices: Sequence[str]) -> list[str]:
        """Some of several words; the first where there is none."""
        return [_known(name, value, choices) for value in self.texts(name, len(choices)) or choices[:1]]


def _known(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise RequestError(400, f"{name} is one of {', '.join(choices)}, found {value[:40]!r}")
    return value
