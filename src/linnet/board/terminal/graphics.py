"""Images in the terminal's own graphics: kitty's protocol, iTerm2's inline images, and sixel."""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from linnet.board.picture import Pixels
from linnet.runs.media import png

Protocol = Literal["kitty", "iterm", "sixel"]

_CHUNK = 4096  # characters of kitty's payload in one sequence
_LEVELS = (6, 7, 6)  # of red, green and blue, where an image has more colours than sixel has registers
_REGISTERS = 256
_BAYER = (np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) + 0.5) / 16 - 0.5

# kitty's own question, which others pass over; and one that every terminal answers, so that there is an end to waiting.
QUESTION = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"
_KITTY_ANSWER = re.compile(rb"\x1b_Gi=31;OK")
_ATTRIBUTES = re.compile(rb"\x1b\[\?([0-9;]*)c")
_SIXEL_ATTRIBUTE = b"4"


def is_answered(answer: bytes) -> bool:
    """Has the terminal said all that it will?"""
    return _ATTRIBUTES.search(answer) is not None


def has_none(environ: Mapping[str, str] = os.environ) -> bool:
    """Is it known without a question that this terminal draws no images?"""
    if forced := environ.get("LINNET_GRAPHICS"):
        return forced not in get_args(Protocol)
    return environ.get("TERM") in ("dumb", "linux") or environ.get("TERM_PROGRAM") == "Apple_Terminal"


def choose_protocol(ask: Callable[[bytes], bytes], environ: Mapping[str, str] = os.environ) -> Protocol | None:
    """What this terminal draws images by; None: it does not. `ask`: sends a question and returns the answer.

    `LINNET_GRAPHICS` decides (`kitty`, `iterm`, `sixel` or `none`); else what the environment says of iTerm2, which
    answers no question, and what the terminal says itself.
    """
    if has_none(environ):
        return None
    forced = environ.get("LINNET_GRAPHICS")
    for protocol in get_args(Protocol):
        if protocol == forced:
            return cast(Protocol, protocol)
    multiplexed = bool(environ.get("TMUX") or environ.get("STY"))  # which passes on only what it draws itself
    if not multiplexed and (
        environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "mintty") or environ.get("LC_TERMINAL") == "iTerm2"
    ):
        return "iterm"
    answer = ask(QUESTION)
    if _KITTY_ANSWER.search(answer) and not multiplexed:
        return "kitty"
    attributes = _ATTRIBUTES.search(answer)
    return "sixel" if attributes and _SIXEL_ATTRIBUTE in attributes[1].split(b";") else None


def encode(protocol: Protocol, pixels: Pixels, columns: int, rows: int) -> bytes:
    """What to send to have `pixels` (RGB) drawn at the cursor; kitty and iTerm2 scale them to `columns` and `rows`."""
    if protocol == "kitty":
        return kitty(pixels, columns, rows)
    return iterm(pixels, columns, rows) if protocol == "iterm" else sixel(pixels)


def kitty(pixels: Pixels, columns: int, rows: int) -> bytes:
    """One image in kitty's protocol: RGB, compressed, in chunks; the terminal answers nothing."""
    height, width, _ = pixels.shape
    payload = base64.standard_b64encode(zlib.compress(pixels.tobytes(), 1))
    control = f"a=T,q=2,f=24,o=z,s={width},v={height},c={columns},r={rows},".encode()
    parts = [payload[at : at + _CHUNK] for at in range(0, len(payload), _CHUNK)]
    return b"".join(
        b"\x1b_G%sm=%d;%s\x1b\\" % (control if at == 0 else b"", at < len(parts) - 1, part)
        for at, part in enumerate(parts)
    )


KITTY_CLEAR = b"\x1b_Ga=d,q=2\x1b\\"  # takes the images off the screen, which clearing the text does not


def iterm(pixels: Pixels, columns: int, rows: int) -> bytes:
    """One image as iTerm2's inline PNG."""
    content = png.encode(pixels)
    size = f"size={len(content)};width={columns};height={rows};preserveAspectRatio=1"
    return b"\x1b]1337;File=inline=1;%s:%s\x07" % (size.encode(), base64.standard_b64encode(content))


def sixel(pixels: Pixels) -> bytes:
    """One image as sixels: its own colours where they are few, else 252 with dithering."""
    height, width, _ = pixels.shape
    indexes, colours = _quantized(pixels)
    percent = np.rint(colours.astype(np.float64) * 100 / 255).astype(int).tolist()
    parts = [f'\x1bP0;1;0q"1;1;{width};{height}'.encode()]
    parts += [f"#{number};2;{r};{g};{b}".encode() for number, (r, g, b) in enumerate(percent)]
    padded = np.full((-(-height // 6) * 6, width), -1, np.int32)
    padded[:height] = indexes
    bits = (1 << np.arange(6, dtype=np.uint8))[:, None]
    for top in range(0, len(padded), 6):
        band = padded[top : top + 6]
        rows = [
            b"#%d%s" % (number, _run_lengths(((band == number) * bits).sum(axis=0).astype(np.uint8) + 63))
            for number in np.unique(band[band >= 0]).tolist()
        ]
        parts.append(b"$".join(rows) + b"-")
    return b"".join([*parts, b"\x1b\\"])


def _quantized(pixels: Pixels) -> tuple[NDArray[np.int32], Pixels]:
    """An index for every pixel into at most 256 colours, and these."""
    codes = (pixels.astype(np.uint32) * np.array([1 << 16, 1 << 8, 1], np.uint32)).sum(axis=2, dtype=np.uint32)
    own, inverse = np.unique(codes, return_inverse=True)
    if len(own) <= _REGISTERS:
        colours = np.stack([own >> 16, own >> 8 & 255, own & 255], axis=1).astype(np.uint8)
        return inverse.reshape(codes.shape).astype(np.int32), colours
    height, width, _ = pixels.shape
    steps = np.array(_LEVELS) - 1
    threshold = np.tile(_BAYER, (-(-height // 4), -(-width // 4)))[:height, :width, None]
    levels = np.clip(np.rint(pixels * (steps / 255) + threshold * 0.9), 0, steps).astype(np.int32)
    number = (levels[..., 0] * _LEVELS[1] + levels[..., 1]) * _LEVELS[2] + levels[..., 2]
    cube = np.stack(np.meshgrid(*map(np.arange, _LEVELS), indexing="ij"), axis=-1).reshape(-1, 3)
    return number.astype(np.int32), np.rint(cube * 255 / steps).astype(np.uint8)


def _run_lengths(sixels: NDArray[np.uint8]) -> bytes:
    """Characters in a row, the same ones counted: `!12~`."""
    begins = np.flatnonzero(np.append(True, sixels[1:] != sixels[:-1]))
    lengths = np.diff(np.append(begins, len(sixels))).tolist()
    return b"".join(
        b"!%d%c" % (length, code) if length > 3 else b"%c" % code * length
        for code, length in zip(sixels[begins].tolist(), lengths, strict=True)
    )
