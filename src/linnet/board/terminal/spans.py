"""Lines of styled text, before anything knows of a terminal: a style is a word, and a palette gives it a look."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, chop_cells, set_cell_size

from linnet.board.plot import Line as Line
from linnet.board.plot import Span as Span
from linnet.board.words import plain

_LONGEST = 4096  # characters of one foreign text that are looked at; no screen shows more of it in a line
_SIGNS = {"live": "●", "completed": "✓", "interrupted": "‖", "stalled": "…", "gone": "?"}
_SIGNS |= dict.fromkeys(("aborted", "errored", "crashed"), "✗")


def cells(text: str) -> int:
    """How many columns a text takes; some characters take two, some none."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int) -> str:
    """A text in at most `width` columns, with a mark where something is left out."""
    if width <= 0:
        return ""
    if cells(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def pad(text: str, width: int, right: bool = False) -> str:
    """A text in exactly `width` columns."""
    text = cut(text, width)
    room = " " * max(0, width - cells(text))
    return room + text if right else text + room


def safe(text: object, width: int | None = None) -> str:
    """Text from a run for one line: no control characters, and at most `width` columns."""
    shown = plain(str(text)[:_LONGEST])
    return shown if width is None else cut(shown, width)


def around(lines: list[Line], row: int, height: int) -> list[Line]:
    """As many lines as there is room for, with that of the cursor among them."""
    first = min(max(0, row - height // 2), max(0, len(lines) - height))
    return lines[first : first + max(0, height)]


def length(line: Line) -> int:
    return sum(cells(text) for text, _ in line)


def fit(line: Line, width: int, style: str = "") -> Line:
    """A line of exactly `width` columns: cut, or filled with blanks of a style."""
    used, fitted = 0, []
    for text, style_of_text in line:
        wide = cells(text)
        if used + wide > width:
            text = cut(text, width - used) if not text.isspace() else text[: width - used]
            wide = cells(text)
            if text:
                fitted.append((text, style_of_text))
            used += wide
            break
        fitted.append((text, style_of_text))
        used += wide
    if used < width:
        fitted.append((" " * (width - used), style))
    return fitted


def fill(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Exactly `height` lines of exactly `width` columns."""
    shown = [fit(line, width) for line in lines[:height]]
    return shown + [fit([], width) for _ in range(height - len(shown))]


def centered(text: str, width: int, height: int) -> list[Line]:
    """A message in the middle of an empty screen of that size."""
    lines: list[Line] = [[] for _ in range(height // 2)]
    return fill([*lines, [(text.center(width), "dim")]], width, height)


def justify(left: Line, right: Line, width: int) -> Line:
    """Something at the left end of a line and something at its right; the left gives way."""
    room = width - length(right)
    if room <= 0:
        return fit(right, width)
    return fit(left, room) + right


def status_span(status: str, word: bool = True) -> Span:
    """A status as sign, word and colour."""
    sign = _SIGNS.get(status, " ")
    return (f"{sign} {status}" if word else sign, f"status.{status or 'none'}")


def text_of(lines: Sequence[Line]) -> str:
    """Lines as plain text, without the blanks at their ends."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def wrap(text: str, width: int, most: int) -> list[str]:
    """A foreign text with its own line ends, in at most `most` lines of `width` columns."""
    lines: list[str] = []
    for line in text[: width * most * 2].replace("\r\n", "\n").replace("\t", "    ").split("\n"):
        line = plain(line)
        lines += [line] if cells(line) <= width else chop_cells(line, width)
        if len(lines) >= most:
            break
    return lines[:most]
