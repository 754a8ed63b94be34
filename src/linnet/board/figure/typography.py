"""How wide a text will be in a sans-serif font, before any font is known; and texts cut to a width."""

from __future__ import annotations

import unicodedata

# Helvetica's widths of the characters from the blank to the tilde, in thousandths of the font's size.
_WIDTHS = (
    [278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278]
    + [556] * 10
    + [278, 278, 584, 584, 584, 556, 1015]
    + [667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833]
    + [722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611]
    + [278, 278, 278, 469, 556, 333]
    + [556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833]
    + [556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500]
    + [334, 260, 334, 584]
)
_WIDER = 1.08  # other fonts that a reader may have instead are wider
_BOLD = 1.06
ELLIPSIS = "…"


def text_width(text: str, size: float, bold: bool = False) -> float:
    """About how many pixels a text takes; rather too many than too few."""
    thousandths = sum(map(_character_width, text))
    return thousandths / 1000 * size * _WIDER * (_BOLD if bold else 1.0)


def _character_width(character: str) -> int:
    if " " <= character <= "~":
        return _WIDTHS[ord(character) - 32]
    if unicodedata.combining(character):
        return 0
    return 1000 if unicodedata.east_asian_width(character) in "WF" else 640


def shortened(text: str, width: float, size: float, bold: bool = False) -> str:
    """A text in at most `width` pixels. Its middle is left out: names of runs often differ only at their end."""
    if text_width(text, size, bold) <= width:
        return text
    text = text[:2000]
    least, most = 0, len(text)  # characters that are kept
    while least < most:
        kept = (least + most + 1) // 2
        if text_width(_without_middle(text, kept), size, bold) <= width:
            least = kept
        else:
            most = kept - 1
    return _without_middle(text, least)


def _without_middle(text: str, kept: int) -> str:
    end = kept // 2
    return text[: kept - end].rstrip() + ELLIPSIS + (text[-end:].lstrip() if end else "")
