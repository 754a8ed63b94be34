"""What a report does not hold, by name: nothing is left out in silence."""

from __future__ import annotations

import msgspec


class LeftOut(msgspec.Struct):
    """A part that is not in the report.

    - `part`: which one, in words; `run`: None where it is of all; `bytes`: None where that is not known.
    - `chosen`: whoever made the report did not want it.
    """

    run: str | None
    part: str
    bytes: int | None = None
    chosen: bool = False
