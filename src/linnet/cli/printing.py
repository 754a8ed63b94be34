"""What the commands print with: colour where it is wanted, columns that line up, JSON for other programs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from linnet.board.words import cells, is_coloured, is_steering, padded, plain, shorten
from linnet.runs.encode import encode, jsonable, jsonable_record

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_FACT = 14  # columns before the value of a fact
_BEYOND_ASCII = re.compile("[^\x00-\x7e]")  # so written it is made 9 ms sooner than by what it holds
_STATUS_STYLES = {
    "live": "green",
    "completed": "blue",
    "interrupted": "yellow",
    "aborted": "red",
    "errored": "red",
    "crashed": "red",
    "stalled": "yellow",
}


def paint(text: str, style: str) -> str:
    """Colour for a terminal; none for a pipe, or where `NO_COLOR` is set."""
    if not is_coloured():
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text else text


def paint_status(status: str) -> str:
    """A status in its colour; the word itself says all."""
    return paint(status, _STATUS_STYLES.get(status, "dim"))


def theme_of_terminal() -> Literal["light", "dark"]:
    """Some terminals say what colours they have: the last number is the background, and 7 and 15 are white."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in ("7", "15") else "dark"


def width() -> int:
    """Columns to write in: the terminal's, or as many as a pipe likes."""
    return shutil.get_terminal_size((100, 30)).columns if sys.stdout.isatty() else 10_000


def text_width() -> int:
    """Columns for a text of a corpus; 80 in a pipe, so that it is no line of a megabyte."""
    return min(width(), 120) if sys.stdout.isatty() else 80


def print_facts(facts: Mapping[str, object], *, cut: bool = False) -> None:
    """Names and values below each other; what is empty is left out. What a terminal has no room for is `cut`, or goes
    on in the next line.
    """
    room = max(20, width() - _FACT)
    for name, value in facts.items():
        if value:
            text = shorten(plain(value), room) if cut else wrapped(value, room, " " * _FACT)
            print(f"  {paint(f'{name:<11}', 'dim')} {text}")


def wrapped(value: object, room: int, indent: str = "  ") -> str:
    """Text in lines of at most `room` characters, cut between words; `indent` begins all but the first of them."""
    text = plain(value)
    if len(text) <= room:
        return text
    import textwrap  # most of what is printed fits

    return f"\n{indent}".join(textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Columns that line up. `right`: those set to the right.

    Rich's table takes 0.4 s for 500 runs; the command has 0.35 s in all.
    """
    texts = [[plain(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(cells, column)) for column in zip(*texts, strict=True)]
    columns, lines = width(), []
    for number, row in enumerate(texts):
        aligned = [padded(cell, w, right=i in right) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        line = shorten("  ".join(aligned).rstrip(), columns)
        lines.append(paint(line, "dim") if number == 0 else line)
    print("\n".join(lines))


def print_json(value: object) -> None:
    """JSON for other programs; numbers it cannot spell are null."""
    print(_escape(msgspec.json.format(encode(jsonable(msgspec.to_builtins(value))[0]), indent=2).decode()))


def json_line(record: Mapping[str, object]) -> str:
    """One object as a line of JSON; numbers it cannot spell are null, and listed under `nonfinite`."""
    return _escape(encode(jsonable_record(record)).decode())


def _escape(text: str) -> str:
    """JSON that no terminal obeys: control and formatting characters, which stand only in strings, as `\\uXXXX`."""
    return text if text.isascii() and "\x7f" not in text else _BEYOND_ASCII.sub(_escape_one, text)


def _escape_one(match: re.Match[str]) -> str:
    character = match[0]
    if not is_steering(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
