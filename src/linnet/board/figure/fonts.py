"""Fonts for PNG: Pillow's own, and fonts of this machine for the scripts that it does not have."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

_MOST_FILES = 400  # font files that are looked at
_PREFERRED = (  # how the names of fonts begin that are good to read, and of those that have many scripts
    *("inter-regular", "helvetica", "arial", "liberationsans-regular", "dejavusans.", "notosans-regular"),
    *("notosanscjk-regular", "arial unicode", "pingfang", "hiragino", "msyh", "malgun", "meiryo", "notosans"),
    *("droidsansfallback", "unifont"),
)


def font_for(text: str, size: float) -> FreeTypeFont:
    """A font of `size` pixels that has every character of a text; where none has, the one that has most of them."""
    path, _ = _choose(text)
    return _own(size) if path is None else _load(path, size)


def lacking(text: str) -> frozenset[str]:
    """Characters of a text that its font has no sign for: they are boxes in a picture."""
    return _choose(text)[1]


@cache
def _choose(text: str) -> tuple[str | None, frozenset[str]]:
    """The file of the font for a text, None for Pillow's own, and what it lacks."""
    needed = frozenset(text)
    best: tuple[str | None, frozenset[str]] = None, _missing(None, needed)
    for path in _files() if best[1] else ():
        missing = _missing(path, needed)
        if len(missing) < len(best[1]):
            best = path, missing
        if not missing:
            break
    return best


@cache
def _own(size: float) -> FreeTypeFont:
    from PIL import ImageFont

    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return font


@cache
def _load(path: str, size: float) -> FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.truetype(path, size)


@cache
def _missing(path: str | None, characters: frozenset[str]) -> frozenset[str]:
    """Characters that a font has no sign for: they look as one that no font has."""
    try:
        font = _own(16.0) if path is None else _load(path, 16.0)
        nothing = font.getmask("\uffff")
        blank = (nothing.size, bytes(nothing))
        return frozenset(c for c in characters if not c.isspace() and _glyph(font, c) == blank)
    except (OSError, ValueError):  # no font after all
        return characters


def _glyph(font: FreeTypeFont, character: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(character)
    return mask.size, bytes(mask)


@cache
def _files() -> tuple[str, ...]:
    """Font files of this machine, those that are good to read first."""
    paths = sorted(_walk())[: _MOST_FILES * 4]

    def rank(path: str) -> tuple[int, str]:
        name = Path(path).name.lower()
        return next((at for at, start in enumerate(_PREFERRED) if name.startswith(start)), len(_PREFERRED)), path

    return tuple(sorted(paths, key=rank)[:_MOST_FILES])


def _walk() -> Iterator[str]:
    for folder in _folders():
        for parent, _, names in os.walk(folder):
            for name in names:
                if name.lower().endswith((".ttf", ".otf", ".ttc")):
                    yield str(Path(parent) / name)


def _folders() -> list[Path]:
    home = Path(os.environ.get("HOME") or "~").expanduser()
    if sys.platform == "darwin":
        return [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    if sys.platform == "win32":
        return [Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"]
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    return [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), data / "fonts"]
