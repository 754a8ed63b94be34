"""Where charts stand: a grid that fits the screen, in pages, grouped by the word before the slash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LEAST_WIDTH, _LEAST_HEIGHT = 28, 6
_GOOD_WIDTH = 30  # of a chart where not all of them fit on the screen
_BEST_SHAPE = 4.4  # columns for each row of a chart that is good to look at
_TALLEST = 18


@dataclass(frozen=True)
class Cell:
    """A chart's place on its page, in characters; `number` is the key that opens it, `group` what stands above it."""

    name: str
    x: int
    y: int
    width: int
    height: int
    number: int
    group: str = ""


@dataclass(frozen=True)
class Heading:
    """The line above a group."""

    text: str
    y: int


@dataclass(frozen=True)
class Page:
    """What is on the screen at once."""

    cells: list[Cell]
    headings: list[Heading]


def group_of(name: str) -> str:
    """The word before the first slash; empty where there is none."""
    return name.split("/", 1)[0] if "/" in name else ""


class Layout:
    """Pages of charts."""

    def __init__(self, pages: list[Page]) -> None:
        self.pages = pages
        self._positions = {cell.name: (at, i) for at, page in enumerate(pages) for i, cell in enumerate(page.cells)}

    def page_number(self, name: str | None) -> int:
        """The page on which a chart stands; the first for one that is nowhere."""
        return self._positions.get(name, (0, 0))[0] if name is not None else 0

    def page_of(self, name: str | None) -> list[Cell]:
        """The charts of the page on which one stands."""
        return self.pages[self.page_number(name)].cells if self.pages else []

    def turn(self, name: str | None, by: int) -> str | None:
        """The first chart of the next page, or the one before."""
        if not self.pages:
            return name
        at = min(max(self.page_number(name) + by, 0), len(self.pages) - 1)
        return self.pages[at].cells[0].name

    def beside(self, name: str | None, right: int, down: int) -> str | None:
        """The chart next to one, also across pages."""
        if name not in self._positions:
            return self.pages[0].cells[0].name if self.pages else None
        at, index = self._positions[name]
        cells = self.pages[at].cells
        if right:
            if 0 <= index + right < len(cells):
                return cells[index + right].name
        else:
            current = cells[index]
            rows = sorted({cell.y for cell in cells})
            row = rows.index(current.y) + down
            if 0 <= row < len(rows):
                return min((c for c in cells if c.y == rows[row]), key=lambda c: abs(c.x - current.x)).name
        step = right + down
        if not 0 <= at + step < len(self.pages):
            return name
        return self.pages[at + step].cells[0 if step > 0 else -1].name


def arrange(groups: Mapping[str, list[str]], width: int, height: int, *, foot: bool = False) -> Layout:
    """A grid in which charts are as large as the screen allows when all of them are shown, and not too small.

    - `groups`: names of charts by group; `""` has no heading.
    - `foot`: the last line is needed for something else, as it is where there are several pages.
    """
    if not groups:
        return Layout([])
    full = height - 1 if foot else height
    columns, tall = _shape(groups, width, full)
    pages = _pages(groups, columns, tall, width, full)
    if len(pages) == 1:
        return Layout(pages)
    room = height - 1  # the last line says which page it is
    tall = max(3, min(tall, room))
    heights = range(tall, min(tall, _LEAST_HEIGHT) - 1, -1)
    numbered = [_pages(groups, columns, height, width, room) for height in heights]
    return Layout(next((lower for lower in numbered if len(lower) <= len(pages)), numbered[0]))


def _pages(groups: Mapping[str, list[str]], columns: int, tall: int, width: int, height: int) -> list[Page]:
    """Charts of one height, row by row, a new page where the next row has no room."""
    pages: list[Page] = []
    cells: list[Cell] = []
    headings: list[Heading] = []
    y = 0

    def turn() -> None:
        nonlocal cells, headings, y
        pages.append(Page(cells, headings))
        cells, headings, y = [], [], 0

    for group, members in groups.items():
        for begin in range(0, len(members), columns):
            head = 1 if len(groups) > 1 and group and (begin == 0 or y == 0) else 0
            if cells and y + head + tall > height:
                turn()
                head = 1 if len(groups) > 1 and group else 0
            if head:
                headings.append(Heading(group, y))
                y += 1
            row = members[begin : begin + columns]
            share = max(len(row), -(-columns // 2))  # what a row lacks its charts take, up to twice their width
            for at, name in enumerate(row):
                left, right = at * width // share, (at + 1) * width // share
                tall_here = min(tall, max(3, height - y))
                cells.append(Cell(name, left, y, right - left, tall_here, len(cells) + 1, group))
            y += tall
    turn()
    return pages


def _shape(groups: Mapping[str, list[str]], width: int, height: int) -> tuple[int, int]:
    """Columns, and the height of a chart: of grids that show all charts at once the best shaped, else the fullest."""
    most = max(1, width // _LEAST_WIDTH)
    heads = sum(1 for group in groups if group) if len(groups) > 1 else 0
    best: tuple[float, int, int] | None = None
    for columns in range(1, most + 1):
        rows = sum(-(-len(members) // columns) for members in groups.values())
        tall = min(_TALLEST, (height - heads) // rows)
        if tall < _LEAST_HEIGHT:
            continue
        shape = (width / columns) / tall
        badness = max(shape / _BEST_SHAPE, _BEST_SHAPE / shape)
        if best is None or badness < best[0]:
            best = (badness, columns, tall)
    if best is not None:
        return best[1], best[2]
    rows = max(1, height // 8)
    return max(1, width // _GOOD_WIDTH), max(3, (height - (1 if len(groups) > 1 else 0)) // rows)
