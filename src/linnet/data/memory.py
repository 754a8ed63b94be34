"""Is there room? Asked before something is unpacked: a small file can hold gigabytes."""

from __future__ import annotations

from pathlib import Path

import psutil

from linnet.data.errors import DataError


def require_memory(path: Path, need: int, content: str, advice: str = "") -> None:
    """Refuse what would take more memory than is free; `content`: `60,000 images of 28 × 28`."""
    free = psutil.virtual_memory().available
    if need > free:
        raise DataError(
            f"{path}: {content} take {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free{advice and ': ' + advice}"
        )
