"""Lines of a stream as structs of a decoder that is made for their fields: what all readers of many lines share.

Each reader has its own idea of which lines fit: one schema to the letter (`decoding.py`), the few metrics that somebody
asked for (`figure_decoder.py`), whatever names a kind of line had so far (`point_decoder.py`). What does not fit is
taken line by line (`events.decode`), with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from linnet.runs.lines import is_one_a_line

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class NumberFields:
    """Metrics as fields of a struct: a metric may be called anything, an attribute may not.

    - `attributes`: by metric; `rename`: the other way round, for `msgspec.defstruct`.
    - `getters`: each gives a metric of a struct.
    """

    def __init__(self, names: Iterable[str], prefix: str = "m") -> None:
        self.attributes = {name: f"{prefix}{index}" for index, name in enumerate(dict.fromkeys(names))}
        self.rename = {attribute: name for name, attribute in self.attributes.items()}
        self.getters: dict[str, Callable[[Any], Any]] = {
            name: attrgetter(attribute) for name, attribute in self.attributes.items()
        }

    def optional(self) -> list[tuple[str, Any, None]]:
        """Fields that a line may lack; None where it does."""
        return [(attribute, float | None, None) for attribute in self.rename]


class LineStructs:
    """Decodes whole lines into structs of a type, or of one of several."""

    def __init__(self, kind: Any) -> None:
        self._decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(kind).decode_lines

    def decode(self, lines: bytes) -> list[Any] | None:
        """A struct for each line; None when one of them does not fit, is damaged or empty."""
        try:
            structs = self._decode(lines)
        except (ValueError, RecursionError):
            return None
        return structs if is_one_a_line(len(structs), lines) else None
