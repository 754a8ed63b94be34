"""The colours of pictures, light and dark; and which of them a run gets."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True)
class Theme:
    """`lines`: eight colours that readers with any of the usual kinds of colour blindness can tell apart."""

    ground: str
    text: str
    dim: str
    grid: str
    lines: tuple[str, ...]


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(
        ground="#ffffff",
        text="#1b1f24",
        dim="#5b6570",
        grid="#e4e7eb",
        lines=("#1455ae", "#b51f03", "#0e8c3f", "#b63f87", "#bd8d03", "#1e98ff", "#640f69", "#313438"),
    ),
    "dark": Theme(
        ground="#10141a",
        text="#e3e8ee",
        dim="#93a0ae",
        grid="#262d37",
        lines=("#21a8eb", "#f07459", "#5fe3a4", "#b9539f", "#e6cd46", "#d9f4ff", "#7468e8", "#93a19c"),
    ),
}
DASHES: tuple[tuple[float, ...], ...] = ((), (6.0, 3.0), (1.5, 2.6), (8.0, 2.6, 1.5, 2.6), (3.2, 2.2))


def slots(run_ids: Sequence[str]) -> list[int]:
    """Which colour each run gets: by its id, so that it keeps it from chart to chart, whichever others are shown.

    Where two runs would get the same one, the later takes the next that is free; beyond the colours they repeat.
    """
    chosen: list[int] = []
    count = len(THEMES["light"].lines)
    for run_id in run_ids:
        free = [slot for slot in range(count) if chosen.count(slot) == len(chosen) // count]
        preferred = zlib.crc32(run_id.encode("utf-8", "surrogatepass")) % count
        chosen.append(min(free, key=lambda slot: (slot - preferred) % count))
    return chosen


def mixed(colour: str, ground: str, share: float) -> str:
    """A colour brought near another; `share`: how much of it is left."""
    pairs = zip(_channels(colour), _channels(ground), strict=True)
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
