"""Which of the page's colours a run has: told from its id alone, so it stays the same everywhere and for ever."""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

COLOURS = 12
_DATED = re.compile(r"\d{8}")
_DIGITS = re.compile(r"\d{1,18}")


@lru_cache(maxsize=1 << 16)
def colour_of(run_id: str) -> int:
    """Runs that are numbered one after the other get different colours: their numbers count, and not a checksum."""
    numbers = sum(map(int, _DIGITS.findall(run_id)))
    if _DATED.search(run_id):  # of one day no two have the same number, whatever they are called
        return numbers % COLOURS
    return (numbers + zlib.crc32(_DIGITS.sub("", run_id).encode("utf-8", "replace"))) % COLOURS
