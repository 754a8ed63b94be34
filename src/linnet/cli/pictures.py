"""Where charts go: a picture file, a pipe, or the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from linnet.board.figure.colours import THEMES, ThemeName, mixed
from linnet.board.words import is_coloured, plain, shorten, size
from linnet.cli.streams import complain
from linnet.errors import UsageError
from linnet.files import write_file

if TYPE_CHECKING:
    from linnet.board.figure.scene import Scene
    from linnet.board.plot import Line

Format = Literal["svg", "png", "text"]
_PICTURE = (720, 440)  # pixels
_PANEL, _LEAST_PANEL = 180, 90  # that each panel beyond the first adds to the height
_LEAST_PICTURE, _MOST_PICTURE = (240, 160), (10_000, 10_000)
_TEXT = (100, 30)  # characters, in a pipe
_LEAST_TEXT, _MOST_TEXT = (40, 12), (1000, 500)
_LARGEST_SCALE, _MOST_PIXELS = 8.0, 200_000_000


def format_of(out: str | None) -> Format:
    """What kind of chart is asked for, by the end of the file's name; a text without one, SVG for a pipe (`-`)."""
    if out is None:
        return "text"
    suffix = Path(out).suffix.lower()
    if out == "-" or suffix == ".svg":
        return "svg"
    if suffix == ".png":
        return "png"
    raise UsageError(f"--out {out}: expected a name that ends in .svg or .png, or - for SVG into a pipe")


def picture_size(width: int | None, height: int | None, scale: float, panels: int = 1) -> tuple[int, int]:
    """Pixels of a picture; by default it is as high as its panels need."""
    usual = _PICTURE[0], _PICTURE[1] + _PANEL * (panels - 1)
    chosen = _chosen(width, height, usual, _LEAST_PICTURE, _MOST_PICTURE, "pixels")
    least = _LEAST_PICTURE[1] + _LEAST_PANEL * (panels - 1)
    if chosen[1] < least or chosen[1] > _MOST_PICTURE[1]:
        name = f"these metrics are of {panels} quantities, each with a panel of its own:"
        raise UsageError(f"{name} give --height from {least:,} to {_MOST_PICTURE[1]:,}, or fewer metrics")
    if not 0.5 <= scale <= _LARGEST_SCALE or chosen[0] * chosen[1] * scale**2 > _MOST_PIXELS:
        raise UsageError(f"--scale {scale:g}: from 0.5 to {_LARGEST_SCALE:g}, for {_MOST_PIXELS:,} pixels at most")
    return chosen


def text_size(width: int | None, height: int | None) -> tuple[int, int]:
    """Columns and lines of a chart in text: by default the terminal's, less the line of the next prompt."""
    columns, lines = shutil.get_terminal_size(_TEXT) if sys.stdout.isatty() else _TEXT
    usual = max(columns, _LEAST_TEXT[0]), min(max(lines - 1, _LEAST_TEXT[1]), 40)
    return _chosen(width, height, usual, _LEAST_TEXT, _MOST_TEXT, "characters")


def _chosen(
    width: int | None,
    height: int | None,
    usual: tuple[int, int],
    least: tuple[int, int],
    most: tuple[int, int],
    unit: str,
) -> tuple[int, int]:
    for name, value, low, high in (("width", width, least[0], most[0]), ("height", height, least[1], most[1])):
        if value is not None and not low <= value <= high:
            raise UsageError(f"--{name} {value}: from {low} to {high:,} {unit}")
    return width or usual[0], height or usual[1]


def write_picture(scene: Scene, out: str, scale: float) -> None:
    """The scene as the file that was asked for, and where it is."""
    if format_of(out) == "svg":
        from linnet.board.figure.svg import write_svg

        content = write_svg(scene)
    else:
        from linnet.board.figure.png import texts_with_boxes, write_png

        content = write_png(scene, scale)
        if texts := texts_with_boxes(scene):
            others = f" and of {len(texts) - 1} more" if len(texts) > 1 else ""
            remark(
                f"no font here has all characters of {shorten(texts[0], 60)!r}{others}: the PNG shows boxes for them,"
                " an SVG (--out FILE.svg) has them whole"
            )
    if out == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    write_file(out, content, sync=False)
    print(f"{plain(out)}  {size(len(content))}")


def print_chart(lines: Sequence[Line], theme: ThemeName) -> None:
    """Lines of text; in colour only on a terminal that wants it."""
    coloured = is_coloured()
    for line in lines:
        if coloured:
            print("".join(_painted(text, style, theme) for text, style in line))
        else:
            print("".join(text for text, _ in line).rstrip())


def remark(text: str) -> None:
    """Something about the chart that it does not show itself; not among the output, which may be a picture."""
    complain(text)


def _painted(text: str, style: str, theme: ThemeName) -> str:
    colours = THEMES[theme]
    name, _, variant = style.partition(".")
    if name == "pixel":  # a cell of a heat map: its text and its ground
        inks = [";".join(str(int(ink[at : at + 2], 16)) for at in (0, 2, 4)) for ink in variant.split(".")]
        return f"\x1b[38;2;{inks[0]};48;2;{inks[1]}m{text}\x1b[0m"
    if name.startswith("line"):
        colour = colours.lines[int(name[4:])]
        colour = mixed(colour, colours.ground, 0.4) if variant == "raw" else colour
    elif name in ("axis", "dim"):
        colour = colours.dim
    else:
        return f"\x1b[1m{text}\x1b[0m" if name == "title" else text
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"\x1b[38;2;{red};{green};{blue}m{text}\x1b[0m"
