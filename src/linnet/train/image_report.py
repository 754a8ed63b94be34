"""What a classifier gets wrong, as pictures: which classes it confuses, and the images it is surest and wrong about."""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from linnet.data.images import ImageSet
from linnet.train.image_evaluation import ImageEvaluation

CONFUSION, WRONG = "confusion.svg", "wrong.svg"
_MOST_CLASSES = 40  # of more, those that are confused the most
_CELL, _TILE, _LINE = 34, 72, 16
_STYLE = (
    "<style>text{font:11px system-ui,sans-serif;fill:#222}.t{font-size:13px}.n{text-anchor:middle}.e{text-anchor:end}"
    "rect.page{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#ddd}rect.page{fill:#16181c}.k{fill:#111}}</style>"
)


def draw_confusion(path: Path, found: ImageEvaluation, labels: tuple[str, ...]) -> None:
    """A row for each class, a column for each guess; what is off the diagonal is wrong, and red."""
    counts_KK = found.confusion_KK
    wrong_K = counts_KK.sum(0) + counts_KK.sum(1) - 2 * np.diagonal(counts_KK)
    shown = np.sort(np.argsort(-wrong_K, kind="stable")[:_MOST_CLASSES])
    names = [_short(labels[k]) for k in shown]
    left = 24 + 7 * max(map(len, names))
    size, top = _CELL * len(shown), 40 + 7 * max(map(len, names))
    title = f"{found.accuracy:.2%} of {found.samples:,} images right"
    if len(shown) < len(labels):
        title += f"; the {len(shown)} classes that are confused the most"
    parts = [f'<text class="t" x="8" y="20">{title}; rows: what it is, columns: what it was taken for</text>']
    for place, name in enumerate(names):
        middle = left + _CELL * (place + 0.5)
        parts.append(f'<text transform="translate({middle:.0f} {top - 6}) rotate(-90)">{escape(name)}</text>')
        row = top + _CELL * (place + 0.5) + 4
        parts.append(f'<text class="e" x="{left - 6}" y="{row:.0f}">{escape(name)}</text>')
    for i, label in enumerate(shown):
        whole = max(int(counts_KK[label].sum()), 1)
        for j, guess in enumerate(shown):
            count = int(counts_KK[label, guess])
            if not count:
                continue
            share = count / whole
            colour = _shade((46, 125, 80) if i == j else (200, 60, 40), share if i == j else min(1.0, 0.25 + 3 * share))
            x, y = left + _CELL * j, top + _CELL * i
            parts.append(f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" fill="{colour}"/>')
            ink = "#fff" if i == j and share > 0.5 else "#111"
            parts.append(
                f'<text class="n" style="fill:{ink}" x="{x + _CELL // 2}" y="{y + _CELL // 2 + 4}">{count}</text>'
            )
    _write(path, max(left + size + 12, 8 * len(title) + 320), top + size + 12, parts)


def draw_wrong(path: Path, found: ImageEvaluation, images: ImageSet, labels: tuple[str, ...]) -> None:
    """The surest of the wrong guesses: the image, its class, what it was taken for and with what probability."""
    across = 8
    rows = max(1, -(-len(found.wrong) // across))
    wide, high = _TILE + 24, _TILE + 2 * _LINE + 12
    title = f"{round((1 - found.accuracy) * found.samples):,} of {found.samples:,} images were taken for something else"
    parts = [f'<text class="t" x="8" y="20">{title}{"; the surest of them" if found.wrong else ""}</text>']
    for place, each in enumerate(found.wrong):
        row, column = divmod(place, across)
        x, y = 8 + column * wide, 32 + row * high
        png = base64.b64encode(png_bytes(images.images_NCHW[each.place])).decode()
        parts.append(
            f'<image x="{x}" y="{y}" width="{_TILE}" height="{_TILE}" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{png}"/>'
        )
        parts.append(f'<text x="{x}" y="{y + _TILE + 13}">{escape(_short(labels[each.label], 10))}</text>')
        guess = f"→ {_short(labels[each.guess], 8)} {each.probability:.0%}"
        parts.append(f'<text x="{x}" y="{y + _TILE + 13 + _LINE}">{escape(guess)}</text>')
    _write(path, max(8 + across * wide, 8 * len(title) + 180), 40 + rows * high, parts)


def png_bytes(image_CHW: NDArray[np.uint8]) -> bytes:
    """An image as a PNG file: grey or RGB, eight bits."""
    channels, high, wide = image_CHW.shape
    rows_HX = image_CHW.transpose(1, 2, 0).reshape(high, wide * channels)
    raw = np.concatenate([np.zeros((high, 1), np.uint8), rows_HX], axis=1).tobytes()  # filter 0 before each row
    head = struct.pack(">IIBBBBB", wide, high, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def _write(path: Path, wide: int, high: int, parts: list[str]) -> None:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">'
    page = f'<rect class="page" width="{wide}" height="{high}"/>'
    path.write_text("\n".join([head, _STYLE, page, *parts, "</svg>", ""]), encoding="utf-8")


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _shade(colour: tuple[int, int, int], share: float) -> str:
    """From a pale tint of a colour to the colour itself."""
    mixed = (round(238 + (part - 238) * share) for part in colour)
    return "#" + "".join(f"{part:02x}" for part in mixed)
