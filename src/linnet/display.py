"""What objects show of themselves: a line, a table for a notebook; text from files made harmless for both.

Below the rooms, and needs none of them: whoever has something to show can use it.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

_LONGEST = 200  # letters of a name in a line
_SIZE = 240, 48  # of a sparkline, in pixels
_MOST_POINTS = 400


def plain(text: object) -> str:
    """Text from a run, made harmless for a terminal: control and formatting characters become visible marks."""
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_mark(c) if is_steering(c) else c for c in text)


def is_steering(character: str) -> bool:
    """Could a terminal obey this character instead of showing it? Controls, directions of writing, line separators."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _mark(character: str) -> str:
    return chr(0x2400 + ord(character)) if ord(character) < 32 else "␡" if character == "\x7f" else "·"


def one_line(kind: str, name: object, facts: Iterable[object]) -> str:
    """`<Run llama-20260531-001: completed, step 480>`: what `repr` gives."""
    listed = ", ".join(_short(fact) for fact in facts)
    return f"<{kind} {_short(name)}{f': {listed}' if listed else ''}>"


def _short(value: object) -> str:
    text = plain(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


class Shown:
    """Gives a class what rich and notebooks show of it, from its name and facts about it.

    Where `figure` gives SVG of our own, a notebook shows that too.
    """

    def _shown(self) -> tuple[object, Mapping[str, object]]:
        raise NotImplementedError

    def _figure(self) -> str:
        return ""

    def __rich_repr__(self) -> Iterator[object]:
        name, facts = self._shown()
        yield plain(name)
        for key, value in facts.items():
            if value not in (None, ""):
                yield plain(key), value if isinstance(value, int | float) else _Text(_short(value))

    def _repr_html_(self) -> str:
        name, facts = self._shown()
        return html_facts(name, facts, self._figure())


class _Text(str):
    """Text that rich shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def html_facts(title: object, facts: Mapping[str, object], figure: str = "") -> str:
    """A title, names and values below each other, and a drawing: what a notebook shows. `figure` is SVG of our own."""
    rows = "".join(
        f"<tr><td style='text-align:left;opacity:.6'>{_escaped(name)}</td>"
        f"<td style='text-align:left'>{_escaped(value)}</td></tr>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    return f"<div><b>{_escaped(title)}</b><table>{rows}</table>{figure}</div>"


def html_table(title: object, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a title; the first column is set to the left, the others to the right."""

    def line(cells: Sequence[object], tag: str) -> str:
        sides = ["left"] + ["right"] * (len(cells) - 1)
        shown = zip(cells, sides, strict=True)
        return "".join(f"<{tag} style='text-align:{side}'>{_escaped(cell)}</{tag}>" for cell, side in shown)

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<div><b>{_escaped(title)}</b><table><tr>{line(head, 'th')}</tr>{body}</table></div>"


def _escaped(value: object) -> str:
    return html.escape(_short(value))


def sparkline(steps: Sequence[float], values: Sequence[float], label: str = "") -> str:
    """A small line chart as SVG, in the colour of the text around it; gaps where a value is not finite."""
    points = [(x, y) for x, y in zip(steps, values, strict=True) if math.isfinite(y)]
    if len(points) < 2:
        return ""
    every = math.ceil(len(points) / _MOST_POINTS)
    points = [*points[::every], points[-1]]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    width, height = _SIZE

    def place(x: float, y: float) -> str:
        across = (x - left) / ((right - left) or 1)
        up = (y - low) / ((high - low) or 1)
        return f"{2 + across * (width - 4):.1f},{height - 2 - up * (height - 4):.1f}"

    line = " ".join(place(x, y) for x, y in points)
    return (
        f"<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img'>"
        f"<title>{_escaped(label)}</title>"
        f"<polyline points='{line}' fill='none' stroke='currentColor' stroke-width='1.5'/></svg>"
    )
