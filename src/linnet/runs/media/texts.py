"""Texts as files."""

from __future__ import annotations

from typing import Any

from linnet.runs.media.capture import LARGEST, Capture, MediaFile


def capture_text(text: Any) -> Capture:
    """A text, or what `str` makes of another value."""
    text = text if isinstance(text, str) else str(text)
    if len(text) > LARGEST // 4:
        raise ValueError(f"expected at most {LARGEST // 4:,} characters, found {len(text):,}")

    def encode() -> MediaFile:
        return MediaFile(
            text.encode("utf-8", "replace"), ".txt", "text/plain; charset=utf-8", {"characters": len(text)}
        )

    return Capture(len(text) * 4, encode)
