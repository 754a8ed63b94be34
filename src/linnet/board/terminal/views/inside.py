"""The inside tab: what a training told of its inside, page by page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from linnet.board.terminal.inside_page import PAGES, Page
from linnet.board.terminal.spans import Line, fill, fit, safe
from linnet.board.terminal.state import Board
from linnet.board.terminal.views import inside_findings as findings
from linnet.board.terminal.views import inside_map, inside_trees
from linnet.runs.inspection import Inspection
from linnet.runs.manifest import Manifest

_INSPECTION_PAGES: dict[Page, tuple[str, Callable[[Board, Inspection, int, int], list[Line]]]] = {
    "map": ("taps,grads,drift@100", inside_map.draw_map),
    "spread": ("taps@100", inside_map.draw_spread),
    "time": ("regions,ops@100", inside_trees.draw_time),
    "CKA": ("gram@100", findings.draw_likeness),
    "tokens": ("drift@100", findings.draw_tokens),
}
_OTHERS: dict[Page, tuple[str, Callable[[Board, int, int], list[Line]]]] = {
    "recorded": (
        "nothing recorded: linnet cka, lmc, drift or lens-words with --record",
        findings.draw_recorded,
    ),
    "attention": ("", findings.draw_attention),
    "warnings": ("nothing to warn of", findings.draw_warnings),
}


def draw(board: Board, width: int, height: int) -> list[Line]:
    page, watched = board.inside, board.watched
    lines = [_pages(page.page, width)]
    page.cell_at = None
    if watched is None:
        return fill([*lines, [], [("   no run is open", "dim")]], width, height)
    room = height - 1
    with watched.inside.held() as inspection:
        share = watched.inside.share_read
        if page.page in _OTHERS:
            why, draw_page = _OTHERS[page.page]
            drawn = draw_page(board, width, room)
        elif page.page == "model":
            why = "there is no flow.json that could be shown"
            drawn = inside_trees.draw_model(board, inspection, width, room)
        else:
            asked, draw_inspected = _INSPECTION_PAGES[page.page]
            why = f"not looked into: {_command(watched.summary.manifest, asked)}"
            drawn = draw_inspected(board, inspection, width, room) if inspection is not None else []
    if page.page in _INSPECTION_PAGES and share < 1.0:
        why = f"reading … {100 * share:.0f} %"
        if drawn:
            drawn = [*fill(drawn, width, room - 1), [(f" {why}", "dim")]]
    if not drawn:
        page.rows, page.steps = 0, ()
        drawn = [[], *([(f"   {line}", "dim")] for line in textwrap.wrap(why, max(8, width - 4)))]
    return fill([*lines, *drawn], width, height)


def page_at(x: int, width: int) -> Page | None:
    """The page whose name stands at a column of the first line."""
    end = 0
    for page, text in zip(PAGES, _texts(width), strict=True):
        end += len(text)
        if x < end:
            return page
    return None


def _texts(width: int) -> list[str]:
    texts = [f" {number} {page}" for number, page in enumerate(PAGES, 1)]
    return texts if sum(map(len, texts)) <= width else [f" {number} {page[:4]}" for number, page in enumerate(PAGES, 1)]


def _pages(chosen: Page, width: int) -> Line:
    named = zip(PAGES, _texts(width), strict=True)
    return fit([(text, "tab.on" if page == chosen else "tab") for page, text in named], width)


def _command(manifest: Manifest, groups: str) -> str:
    """How a training is asked for it."""
    recipe = manifest.recipe or "from-scratch"
    return f"linnet train {safe(recipe, 40)} --inspect {groups}"
